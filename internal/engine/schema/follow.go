package schema

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Fate is what became of a task that follows another.
type Fate uint8

// The values are stored.
const (
	FateWaiting   Fate = iota // for the success of its parent
	FateSent                  // on its way to another shard, or to a queue that is full
	FateBorn                  // it has an id
	FateDuplicate             // an idempotency key or unique key had another task already
	FateRefused               // its shard would not take it
	FateDropped               // its parent ended otherwise
)

var fates = []string{"waiting", "sent", "born", "duplicate", "refused", "dropped"}

// String is the fate as it is shown.
func (f Fate) String() string {
	if int(f) >= len(fates) { // of a later release
		return fmt.Sprintf("fate_%d", f)
	}
	return fates[f]
}

// Follower is a task that follows another, or a group, and what became of it.
type Follower struct {
	On     string // of a group: the point that it waits for; of a task: ""
	Type   string
	Queue  string
	Fate   Fate
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
		r.Num(3, uint64(f.Fate))
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
				f.Fate = Fate(v) // #nosec G115 -- a few
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
		if f := &all[i]; f.Fate == FateWaiting && (x.State == task.Cancelled || x.State == task.Discarded) {
			f.Fate, f.Reason = FateDropped, x.State.String()
		}
	}
	return all
}
