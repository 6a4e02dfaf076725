package workflow

import (
	"errors"
	"fmt"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/outbox"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Policy lets tasks follow others, and be members of groups.
var Policy = engine.Policy{
	Admitted: admitted, Ended: ended, Delivered: delivered, Seal: seal, Check: check,
	Due: map[schema.DeadlineKind]func(*engine.Round, schema.Deadline){schema.OnGroup: groupDue},
}

// What follows a task is written once, with its envelope, in a row of its own, so that no claim has to read it. When the task
// succeeds, the row is read and each follower is born in the entry of the ack: here if its queue lies here, else as a message. Then the
// row says what became of each. A task that ends otherwise keeps the row as it is: a replay may make it succeed yet.

func newFollower(on string, s *task.Spec) schema.Follower {
	return schema.Follower{On: on, Type: s.Type, Queue: s.Queue, Spec: task.EncodeSpec(s)}
}

func setFollowers(r *engine.Round, ns string, id task.ID, rows []schema.Follower) {
	r.Tx().Set(schema.IDKey(ns, schema.TableFollow, id), schema.EncodeFollowers(rows))
}

// writeThen stores what follows a new task.
func writeThen(r *engine.Round, ns string, id task.ID, then []task.Spec) {
	rows := make([]schema.Follower, len(then))
	for i := range then {
		rows[i] = newFollower("", &then[i])
	}
	setFollowers(r, ns, id, rows)
}

// maxTaken bounds the bytes that a result takes when it goes along with all that follows its task: what one call writes is bounded.
const maxTaken = 8 << 20

// follow lets what follows a task be born, with its result and into its group, and says what was.
func follow(r *engine.Round, ns string, id task.ID, x *schema.Exec, result schema.Result) (born []outbox.Birth) {
	rows := schema.ReadFollowers(r.Tx(), ns, id)
	parent := &task.Parent{ID: id, Result: result.Data, ContentType: result.ContentType}
	if len(rows)*len(result.Data) > maxTaken {
		parent.Result, parent.ContentType, parent.Omitted = nil, "", true
	}
	headers := r.Envelope(ns, id).Headers
	for i := range rows {
		f := &rows[i]
		if !x.Links.Member() {
			bear(r, ns, id, i, f, parent, headers, nil)
			continue
		}
		m := &task.Member{Group: x.Links.Group, Ref: followerRef(id, i)}
		bear(r, ns, id, i, f, parent, headers, m)
		b := outbox.Birth{Ref: m.Ref, Type: f.Type, Queue: f.Queue}
		if b.Refused = refusalOf(f); b.Refused == "" {
			b.ID = f.ID
		}
		born = append(born, b)
	}
	setFollowers(r, ns, id, rows)
	return born
}

// refusalOf says why a follower is no task of its own; "": it is one, or may be yet.
func refusalOf(f *schema.Follower) string {
	switch f.State {
	case schema.FollowerRefused:
		return f.Reason
	case schema.FollowerDuplicate:
		return refusedDuplicate
	}
	return ""
}

// bear makes the i-th task that follows another, or a group, in this entry: here if its queue lies here, else by the sender, who also
// comes again while the queue is full. It is part of the trace in these headers, unless it names another.
func bear(r *engine.Round, ns string, id task.ID, i int, f *schema.Follower, parent *task.Parent, headers map[string]string, m *task.Member) {
	spec, err := task.DecodeSpec(f.Spec)
	schema.Must(err)
	spec.Headers = task.WithTrace(spec.Headers, headers)
	spec.Parent, spec.Member, f.Spec = parent, m, nil
	n := uint64(i) + 1 // #nosec G115 -- a few
	a, err := engine.Enqueue(r, &engine.NewTask{Spec: spec, Namespace: ns, ID: engine.ChildID(r, id, n), Fresh: true})
	var refused *task.Error
	switch {
	case err == nil:
		noteBirth(f, a, nil)
	case errors.Is(err, engine.ErrUnknownQueue) || errors.Is(err, engine.ErrSlotMoved) || errors.Is(err, task.ErrQueueFull):
		r.Send(ns, &outbox.Message{Request: engine.RequestOf(id, n), Spec: spec, From: outbox.Origin{Parent: id, N: i}})
		f.State = schema.FollowerSent
	case errors.As(err, &refused):
		noteBirth(f, a, refused)
	default:
		panic(fmt.Sprintf("what follows %s: %v", id, err))
	}
}

// noteBirth notes what became of a follower.
func noteBirth(f *schema.Follower, a engine.Accepted, refused *task.Error) {
	f.ID, f.State = a.ID, schema.FollowerBorn
	switch {
	case refused != nil:
		f.State, f.Reason = schema.FollowerRefused, string(refused.Code)
	case a.Met:
		f.State = schema.FollowerDuplicate
	}
}

// followerDelivered notes what became of a follower that was sent.
func followerDelivered(r *engine.Round, ns string, p *outbox.Message, f schema.Follower) {
	rows := schema.ReadFollowers(r.Tx(), ns, p.From.Parent)
	if p.From.N >= len(rows) { // its parent's retention is over
		return
	}
	f.On = rows[p.From.N].On
	rows[p.From.N] = f
	setFollowers(r, ns, p.From.Parent, rows)
}

// delivered notes what became of a task that follows another, or is a member of a group, and was sent to another shard. While its queue
// is full it stays.
func delivered(r *engine.Round, ns string, m *outbox.Message, a engine.Accepted, refused *task.Error) (stays bool) {
	if !m.IsTask() || m.From.Operation != (task.ID{}) || m.From.Schedule != "" {
		return false
	}
	full := refused != nil && refused.Code == task.CodeQueueFull
	if full && !givesUp(r, ns, m) {
		return true
	}
	f := schema.Follower{Type: m.Spec.Type, Queue: m.Spec.Queue}
	noteBirth(&f, a, refused)
	if m.From.Parent != (task.ID{}) {
		followerDelivered(r, ns, m, f)
	}
	if m.Spec.Member != nil {
		memberDelivered(r, ns, m, &f, full)
	}
	return false
}

// givesUp says whether a member that finds no room need not come: its group, which lives here, is cancelled.
func givesUp(r *engine.Round, ns string, p *outbox.Message) bool {
	if p.Spec.Member == nil || p.From.Parent != (task.ID{}) {
		return false
	}
	g, ok := group(r, ns, p.Spec.Member.Group)
	return ok && g.state == Cancelled
}

// memberDelivered tells a group what became of a member that was sent.
func memberDelivered(r *engine.Round, ns string, p *outbox.Message, f *schema.Follower, givenUp bool) {
	n := &outbox.Notice{Group: p.Spec.Member.Group, Ref: p.Spec.Member.Ref, Type: f.Type, Queue: f.Queue}
	switch refused := refusalOf(f); {
	case givenUp:
		n.Turn, n.State = 1, task.Cancelled
	case refused != "":
		n.Turn, n.Refused = 1, refused
	default:
		n.ID = f.ID
	}
	here := n.Group.Shard()
	if p.From.Parent != (task.ID{}) {
		here = p.From.Parent.Shard()
	}
	notify(r, ns, here, n)
}

// ended lets what follows a task be born when it succeeds, and tells its group how it is.
func ended(r *engine.Round, ns string, id task.ID, x *schema.Exec, result schema.Result) {
	var born []outbox.Birth
	if x.State == task.Succeeded && x.Links.Followed {
		born = follow(r, ns, id, x, result)
	}
	if x.Links.Member() {
		tell(r, ns, id, x, result, born)
	}
}

// admitted stores what follows a new task.
func admitted(r *engine.Round, n *engine.NewTask, _ *schema.Envelope, _ *schema.Exec) {
	if len(n.Then) > 0 {
		writeThen(r, n.Namespace, n.ID, n.Then)
	}
}
