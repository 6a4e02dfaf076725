package schema

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// FollowerState is what became of a task that follows another.
type FollowerState uint8

// The values are stored.
const (
	FollowerWaiting   FollowerState = iota // for the success of its parent
	FollowerSent                           // on its way to another shard, or to a queue that is full
	FollowerBorn                           // it has an id
	FollowerDuplicate                      // an idempotency key or unique key had another task already
	FollowerRefused                        // its shard would not take it
	FollowerDropped                        // its parent ended otherwise
)

var followerStates = []string{"waiting", "sent", "born", "duplicate", "refused", "dropped"}

// String is the state as it is shown.
func (f FollowerState) String() string {
	if int(f) >= len(followerStates) { // of a later release
		return fmt.Sprintf("state_%d", f)
	}
	return followerStates[f]
}

// Follower is a task that follows another, or a group, and what became of it.
type Follower struct {
	On     string // of a group: the point that it waits for; of a task: ""
	Type   string
	Queue  string
	State  FollowerState
	ID     task.ID // born, or of the other task that a key had already
	Reason string  // why it was refused, or how its parent ended
	Spec   []byte  // while it waits: as of task.EncodeSpec
}

// EncodeFollowers is the row of all that follows one task or group.
func EncodeFollowers(rows []Follower) []byte {
	size := 1
	for i := range rows {
		size += len(rows[i].Spec) + len(rows[i].Type) + len(rows[i].Queue) + len(rows[i].Reason) + 48
	}
	all := NewRow(size)
	for i := range rows {
		f := &rows[i]
		var r Encoder
		r.Text(1, f.Type)
		r.Text(2, f.Queue)
		r.Num(3, uint64(f.State))
		r.ID(4, f.ID)
		r.Text(5, f.Reason)
		r.Bytes(6, f.Spec)
		r.Text(7, f.On)
		all.Bytes(1, r)
	}
	return all
}

// DecodeFollowers reads what EncodeFollowers wrote.
func DecodeFollowers(row []byte) (rows []Follower, err error) {
	var bad error
	err = Decode(row, NoNumbers, func(tag protowire.Number, b []byte) {
		if tag != 1 {
			return
		}
		var f Follower
		err := DecodeFields(b, func(tag protowire.Number, v uint64) {
			if tag == 3 {
				f.State = FollowerState(v) // #nosec G115 -- a few
			}
		}, func(tag protowire.Number, b []byte) {
			switch tag {
			case 1:
				f.Type = string(b)
			case 2:
				f.Queue = string(b)
			case 4:
				copy(f.ID[:], b)
			case 5:
				f.Reason = string(b)
			case 6:
				f.Spec = b
			case 7:
				f.On = string(b)
			}
		})
		if err != nil {
			bad = err
		}
		rows = append(rows, f)
	})
	if err == nil {
		err = bad
	}
	return rows, err
}

// ReadFollowers reads what follows a task or a group; none if the row is gone.
func ReadFollowers(from store.Reader, ns string, id task.ID) []Follower {
	row, ok := from.Get(IDKey(ns, TableFollow, id))
	if !ok {
		return nil
	}
	rows, err := DecodeFollowers(row)
	Must(err)
	return rows
}

// FollowersOf are what follows a task, as it is shown.
func FollowersOf(from store.Reader, ns string, id task.ID, x *Exec) []Follower {
	all := ReadFollowers(from, ns, id)
	for i := range all {
		if f := &all[i]; f.State == FollowerWaiting && (x.State == task.Cancelled || x.State == task.Discarded) {
			f.State, f.Reason = FollowerDropped, x.State.String()
		}
	}
	return all
}
