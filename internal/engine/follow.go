package engine

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// What follows a task is written once, with its envelope, in a row of its own, so that no claim has to read it. When the task
// succeeds, the row is read and each follower is born in the entry of the ack: here if its queue lies here, else as a message. Then the
// row says what became of each. A task that ends otherwise keeps the row as it is: a replay may make it succeed yet.

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

func newFollower(on string, s *task.Spec) Follower {
	return Follower{On: on, Type: s.Type, Queue: s.Queue, Spec: task.EncodeSpec(s)}
}

func encodeFollowers(rows []Follower) []byte {
	size := 1
	for i := range rows {
		size += len(rows[i].Spec) + len(rows[i].Type) + len(rows[i].Queue) + len(rows[i].Reason) + 48
	}
	all := newRow(size)
	for i := range rows {
		f := &rows[i]
		var r encoder
		r.text(1, f.Type)
		r.text(2, f.Queue)
		r.num(3, uint64(f.Fate))
		r.id(4, f.ID)
		r.text(5, f.Reason)
		r.bytes(6, f.Spec)
		r.text(7, f.On)
		all.bytes(1, r)
	}
	return all
}

func decodeFollowers(row []byte) (rows []Follower, err error) {
	var bad error
	err = decode(row, noNum, func(tag protowire.Number, b []byte) {
		if tag != 1 {
			return
		}
		var f Follower
		err := decodeFields(b, func(tag protowire.Number, v uint64) {
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

// readFollowers reads what follows a task or a group; none if the row is gone.
func readFollowers(from store.Reader, ns string, id task.ID) []Follower {
	row, ok := from.Get(idKey(ns, tabFollow, id))
	if !ok {
		return nil
	}
	rows, err := decodeFollowers(row)
	corrupt(err)
	return rows
}

func (r *Round) setFollowers(ns string, id task.ID, rows []Follower) {
	r.tx.Set(idKey(ns, tabFollow, id), encodeFollowers(rows))
}

// writeThen stores what follows a new task.
func (r *Round) writeThen(ns string, id task.ID, then []task.Spec) {
	rows := make([]Follower, len(then))
	for i := range then {
		rows[i] = newFollower("", &then[i])
	}
	r.setFollowers(ns, id, rows)
}

// maxTaken bounds the bytes that a result takes when it goes along with all that follows its task: what one call writes is bounded.
const maxTaken = 8 << 20

// follow lets what follows a task be born, with its result and into its group, and says what was.
func (r *Round) follow(ns string, id task.ID, x *Exec, result Result) (born []Birth) {
	rows := readFollowers(r.tx, ns, id)
	parent := &task.Parent{ID: id, Result: result.Data, ContentType: result.ContentType}
	if len(rows)*len(result.Data) > maxTaken {
		parent.Result, parent.ContentType, parent.Omitted = nil, "", true
	}
	headers := r.envelope(ns, id).Headers
	for i := range rows {
		f := &rows[i]
		if !x.Ties.member() {
			r.bear(ns, id, i, f, parent, headers, nil)
			continue
		}
		m := &task.Member{Group: x.Ties.Group, Ref: followerRef(id, i)}
		r.bear(ns, id, i, f, parent, headers, m)
		b := Birth{Ref: m.Ref, Type: f.Type, Queue: f.Queue}
		if b.Refused = f.refused(); b.Refused == "" {
			b.ID = f.ID
		}
		born = append(born, b)
	}
	r.setFollowers(ns, id, rows)
	return born
}

// refused says why a follower is no task of its own; "": it is one, or may be yet.
func (f *Follower) refused() string {
	switch f.Fate {
	case FateRefused:
		return f.Reason
	case FateDuplicate:
		return refusedDuplicate
	}
	return ""
}

// bear makes the i-th task that follows another, or a group, in this entry: here if its queue lies here, else by the sender, who also
// comes again while the queue is full. It is part of the trace in these headers, unless it names another.
func (r *Round) bear(ns string, id task.ID, i int, f *Follower, parent *task.Parent, headers map[string]string, m *task.Member) {
	spec, err := task.DecodeSpec(f.Spec)
	corrupt(err)
	spec.Headers = task.WithTrace(spec.Headers, headers)
	spec.Parent, spec.Member, f.Spec = parent, m, nil
	n := uint64(i) + 1 // #nosec G115 -- a few
	a, err := Enqueue(r, &NewTask{Spec: spec, Namespace: ns, ID: r.bornID(id, n), Fresh: true})
	var refused *task.Error
	switch {
	case err == nil:
		f.settled(a, nil)
	case errors.Is(err, ErrUnknownQueue) || errors.Is(err, ErrSlotMoved) || errors.Is(err, task.ErrQueueFull):
		r.send(ns, &OutboxMessage{Request: requestOf(id, n), Spec: spec, From: Origin{Parent: id, N: i}})
		f.Fate = FateSent
	case errors.As(err, &refused):
		f.settled(a, refused)
	default:
		panic(fmt.Sprintf("what follows %s: %v", id, err))
	}
}

// settled notes what became of a follower.
func (f *Follower) settled(a Accepted, refused *task.Error) {
	f.ID, f.Fate = a.ID, FateBorn
	switch {
	case refused != nil:
		f.Fate, f.Reason = FateRefused, string(refused.Code)
	case a.Met:
		f.Fate = FateDuplicate
	}
}

// followerDelivered notes what became of a follower that was sent.
func (r *Round) followerDelivered(ns string, p *OutboxMessage, f Follower) {
	rows := readFollowers(r.tx, ns, p.From.Parent)
	if p.From.N >= len(rows) { // its parent's retention is over
		return
	}
	f.On = rows[p.From.N].On
	rows[p.From.N] = f
	r.setFollowers(ns, p.From.Parent, rows)
}

// followersOf are what follows a task, as it is shown.
func followersOf(from store.Reader, ns string, id task.ID, x *Exec) []Follower {
	all := readFollowers(from, ns, id)
	for i := range all {
		if f := &all[i]; f.Fate == FateWaiting && (x.State == task.Cancelled || x.State == task.Discarded) {
			f.Fate, f.Reason = FateDropped, x.State.String()
		}
	}
	return all
}
