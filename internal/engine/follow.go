package engine

import (
	"errors"
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// What follows a task is written once, with its envelope, in a row of its own, so that no claim has to read it. When the task
// succeeds, the row is read and each follower is born in the entry of the ack: here if its queue lies here, else as a message. Then the
// row says what became of each. A task that ends otherwise keeps the row as it is: a replay may make it succeed yet.

func newFollower(on string, s *task.Spec) schema.Follower {
	return schema.Follower{On: on, Type: s.Type, Queue: s.Queue, Spec: task.EncodeSpec(s)}
}

func (r *Round) setFollowers(ns string, id task.ID, rows []schema.Follower) {
	r.tx.Set(schema.IDKey(ns, schema.TableFollow, id), schema.EncodeFollowers(rows))
}

// writeThen stores what follows a new task.
func (r *Round) writeThen(ns string, id task.ID, then []task.Spec) {
	rows := make([]schema.Follower, len(then))
	for i := range then {
		rows[i] = newFollower("", &then[i])
	}
	r.setFollowers(ns, id, rows)
}

// maxTaken bounds the bytes that a result takes when it goes along with all that follows its task: what one call writes is bounded.
const maxTaken = 8 << 20

// follow lets what follows a task be born, with its result and into its group, and says what was.
func (r *Round) follow(ns string, id task.ID, x *schema.Exec, result schema.Result) (born []Birth) {
	rows := schema.ReadFollowers(r.tx, ns, id)
	parent := &task.Parent{ID: id, Result: result.Data, ContentType: result.ContentType}
	if len(rows)*len(result.Data) > maxTaken {
		parent.Result, parent.ContentType, parent.Omitted = nil, "", true
	}
	headers := r.envelope(ns, id).Headers
	for i := range rows {
		f := &rows[i]
		if !x.Links.Member() {
			r.bear(ns, id, i, f, parent, headers, nil)
			continue
		}
		m := &task.Member{Group: x.Links.Group, Ref: followerRef(id, i)}
		r.bear(ns, id, i, f, parent, headers, m)
		b := Birth{Ref: m.Ref, Type: f.Type, Queue: f.Queue}
		if b.Refused = refusalOf(f); b.Refused == "" {
			b.ID = f.ID
		}
		born = append(born, b)
	}
	r.setFollowers(ns, id, rows)
	return born
}

// refusalOf says why a follower is no task of its own; "": it is one, or may be yet.
func refusalOf(f *schema.Follower) string {
	switch f.Fate {
	case schema.FateRefused:
		return f.Reason
	case schema.FateDuplicate:
		return refusedDuplicate
	}
	return ""
}

// bear makes the i-th task that follows another, or a group, in this entry: here if its queue lies here, else by the sender, who also
// comes again while the queue is full. It is part of the trace in these headers, unless it names another.
func (r *Round) bear(ns string, id task.ID, i int, f *schema.Follower, parent *task.Parent, headers map[string]string, m *task.Member) {
	spec, err := task.DecodeSpec(f.Spec)
	schema.Must(err)
	spec.Headers = task.WithTrace(spec.Headers, headers)
	spec.Parent, spec.Member, f.Spec = parent, m, nil
	n := uint64(i) + 1 // #nosec G115 -- a few
	a, err := Enqueue(r, &NewTask{Spec: spec, Namespace: ns, ID: r.bornID(id, n), Fresh: true})
	var refused *task.Error
	switch {
	case err == nil:
		noteBirth(f, a, nil)
	case errors.Is(err, ErrUnknownQueue) || errors.Is(err, ErrSlotMoved) || errors.Is(err, task.ErrQueueFull):
		r.send(ns, &OutboxMessage{Request: requestOf(id, n), Spec: spec, From: Origin{Parent: id, N: i}})
		f.Fate = schema.FateSent
	case errors.As(err, &refused):
		noteBirth(f, a, refused)
	default:
		panic(fmt.Sprintf("what follows %s: %v", id, err))
	}
}

// noteBirth notes what became of a follower.
func noteBirth(f *schema.Follower, a Accepted, refused *task.Error) {
	f.ID, f.Fate = a.ID, schema.FateBorn
	switch {
	case refused != nil:
		f.Fate, f.Reason = schema.FateRefused, string(refused.Code)
	case a.Met:
		f.Fate = schema.FateDuplicate
	}
}

// followerDelivered notes what became of a follower that was sent.
func (r *Round) followerDelivered(ns string, p *OutboxMessage, f schema.Follower) {
	rows := schema.ReadFollowers(r.tx, ns, p.From.Parent)
	if p.From.N >= len(rows) { // its parent's retention is over
		return
	}
	f.On = rows[p.From.N].On
	rows[p.From.N] = f
	r.setFollowers(ns, p.From.Parent, rows)
}
