package schema

import (
	"fmt"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// FollowerState is the state of a follow-up task, from its parent's point of view.
type FollowerState uint8

// The values are stored.
const (
	FollowerWaiting   FollowerState = iota // for the success of its parent
	FollowerSent                           // on its way to another shard, or waiting for room in its queue
	FollowerCreated                        // enqueued: it has an id
	FollowerDuplicate                      // its idempotency key or unique key already had another task
	FollowerRefused                        // its shard refused it
	FollowerDropped                        // its parent ended without success
)

var followerStates = []string{"waiting", "sent", "created", "duplicate", "refused", "dropped"}

// String returns the state as it is shown.
func (f FollowerState) String() string {
	if int(f) >= len(followerStates) { // of a later release
		return fmt.Sprintf("state_%d", f)
	}
	return followerStates[f]
}

// Follower is a follow-up task of a task or a group, with its state.
type Follower struct {
	On     string // of a group: the event that it waits for; of a task: ""
	Type   string
	Queue  string
	State  FollowerState
	ID     task.ID // its own, or that of the other task that already had its key
	Reason string  // why it was refused, or the state in which its parent ended
	Spec   []byte  // while it waits: encoded by task.EncodeSpec
}

// EncodeFollowers returns the row of all follow-ups of one task or group.
func EncodeFollowers(rows []Follower) []byte {
	size := 1
	for i := range rows {
		size += len(rows[i].Spec) + len(rows[i].Type) + len(rows[i].Queue) + len(rows[i].Reason) + 48
	}
	f := Encoding(make([]byte, 0, size))
	Parts(&f, 1, &rows, (*Follower).fields)
	return f.Row()
}

// DecodeFollowers decodes a row of EncodeFollowers.
func DecodeFollowers(row []byte) (rows []Follower, err error) {
	f := Decoding(row)
	for f.Next() {
		Parts(&f, 1, &rows, (*Follower).fields)
	}
	return rows, f.Err()
}

func (w *Follower) fields(f *Fields) {
	f.Text(1, &w.Type)
	f.Text(2, &w.Queue)
	Num(f, 3, &w.State)
	f.ID(4, &w.ID)
	f.Text(5, &w.Reason)
	f.Bytes(6, &w.Spec)
	f.Text(7, &w.On)
}

// ReadFollowers reads the follow-ups of a task or a group; none if the row is gone.
func ReadFollowers(from store.Reader, ns string, id task.ID) []Follower {
	all, _ := Read(from, IDKey(ns, TableFollow, id), DecodeFollowers)
	return all
}

// FollowersOf returns the follow-ups of a task as they are shown.
func FollowersOf(from store.Reader, ns string, id task.ID, x *Exec) []Follower {
	all := ReadFollowers(from, ns, id)
	for i := range all {
		if f := &all[i]; f.State == FollowerWaiting && (x.State == task.Cancelled || x.State == task.Discarded) {
			f.State, f.Reason = FollowerDropped, x.State.String()
		}
	}
	return all
}
