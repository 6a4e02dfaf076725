package workflow

import (
	"errors"
	"fmt"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Policy implements follow-up tasks and groups.
var Policy = engine.Policy{
	Admitted: admitted, Ended: ended, Delivered: delivered, Seal: seal, Check: check,
	Due: map[schema.DeadlineKind]func(*engine.Round, schema.Deadline){schema.OnGroup: groupDue},
}

// The follow-ups of a task are written once, with its envelope, in a row of their own, so that no claim has to read
// them. When the task succeeds, the row is read and each follow-up is created in the entry of the ack: enqueued here if
// its queue is in this shard, else sent as a message. From then on the row records the state of each. A task that ends
// otherwise keeps the row as it is, because it may still succeed after a replay.

func newFollower(on string, s *task.Spec) schema.Follower {
	return schema.Follower{On: on, Type: s.Type, Queue: s.Queue, Spec: task.EncodeSpec(s)}
}

func setFollowers(r *engine.Round, ns string, id task.ID, rows []schema.Follower) {
	r.Tx().Set(schema.IDKey(ns, schema.TableFollow, id), schema.EncodeFollowers(rows))
}

// writeThen stores the follow-ups of a new task.
func writeThen(r *engine.Round, ns string, id task.ID, then []task.Spec) {
	rows := make([]schema.Follower, len(then))
	for i := range then {
		rows[i] = newFollower("", &then[i])
	}
	setFollowers(r, ns, id, rows)
}

// maxTaken bounds the bytes of all copies of a result that is passed to follow-ups, and so what one call writes.
const maxTaken = 8 << 20

// createFollowers creates the follow-ups of a task, with its result and in its group. It returns those that are members of the group.
func createFollowers(r *engine.Round, ns string, id task.ID, x *schema.Exec, result schema.Result) (created []schema.NewMember) {
	rows := schema.ReadFollowers(r.Tx(), ns, id)
	parent := &task.Parent{ID: id, Result: result.Data, ContentType: result.ContentType}
	if len(rows)*len(result.Data) > maxTaken {
		parent.Result, parent.ContentType, parent.Omitted = nil, "", true
	}
	headers := r.Envelope(ns, id).Headers
	for i := range rows {
		f := &rows[i]
		if f.State != schema.FollowerWaiting {
			continue // it was created when another task or group of this id ended
		}
		if !x.Links.Member() {
			createFollower(r, ns, id, i, f, parent, headers, nil)
			continue
		}
		m := &task.Member{Group: x.Links.Group, Ref: followerRef(id, i)}
		createFollower(r, ns, id, i, f, parent, headers, m)
		b := schema.NewMember{Ref: m.Ref, Type: f.Type, Queue: f.Queue}
		if b.Refused = refusalOf(f); b.Refused == "" {
			b.ID = f.ID
		}
		created = append(created, b)
	}
	setFollowers(r, ns, id, rows)
	return created
}

// refusalOf returns why a follow-up did not become a task of its own; "": it did, or still may.
func refusalOf(f *schema.Follower) string {
	switch f.State {
	case schema.FollowerRefused:
		return f.Reason
	case schema.FollowerDuplicate:
		return refusedDuplicate
	}
	return ""
}

// createFollower creates the i-th follow-up of a task or a group in this entry: it enqueues it if its queue is in this
// shard and not full, else it sends a message, which is repeated while the queue is full. The task belongs to the trace
// in headers, unless it has its own.
func createFollower(r *engine.Round, ns string, id task.ID, i int, f *schema.Follower,
	parent *task.Parent, headers map[string]string, m *task.Member) {
	spec := schema.Must(task.DecodeSpec(f.Spec))
	spec.Headers = task.WithTrace(spec.Headers, headers)
	spec.Parent, spec.Member, f.Spec = parent, m, nil
	n := uint64(i) + 1 // #nosec G115 -- a few
	a, err := engine.Enqueue(r, &engine.NewTask{Spec: spec, Namespace: ns, ID: engine.ChildID(r, id, n), Fresh: true})
	var refused *task.Error
	switch {
	case err == nil:
		noteEnqueued(f, a, nil)
	case errors.Is(err, engine.ErrUnknownQueue) || errors.Is(err, engine.ErrSlotMoved) || errors.Is(err, task.ErrQueueFull):
		r.Send(ns, &schema.Message{Request: task.RequestOf(id, n), Spec: spec, From: schema.Origin{Parent: id, N: i}})
		f.State = schema.FollowerSent
	case errors.As(err, &refused):
		noteEnqueued(f, a, refused)
	default:
		panic(fmt.Sprintf("what follows %s: %v", id, err))
	}
}

// noteEnqueued records the outcome of enqueuing a follow-up.
func noteEnqueued(f *schema.Follower, a engine.Accepted, refused *task.Error) {
	f.ID, f.State = a.ID, schema.FollowerCreated
	switch {
	case refused != nil:
		f.State, f.Reason = schema.FollowerRefused, string(refused.Code)
	case a.KeyTaken:
		f.State = schema.FollowerDuplicate
	}
}

// followerDelivered records the outcome of a follow-up that was sent.
func followerDelivered(r *engine.Round, ns string, p *schema.Message, f schema.Follower) {
	rows := schema.ReadFollowers(r.Tx(), ns, p.From.Parent)
	if p.From.N >= len(rows) { // its parent's retention is over
		return
	}
	f.On = rows[p.From.N].On
	rows[p.From.N] = f
	setFollowers(r, ns, p.From.Parent, rows)
}

// delivered records the outcome of a follow-up, or a member of a group, that was sent to another shard. While its queue
// is full, the message stays.
func delivered(r *engine.Round, ns string, m *schema.Message, a engine.Accepted, refused *task.Error) (stays bool) {
	if !m.IsTask() || m.From.Operation != (task.ID{}) || m.From.Schedule != "" {
		return false
	}
	full := refused != nil && refused.Code == task.CodeQueueFull
	if full && !givesUp(r, ns, m) {
		return true
	}
	f := schema.Follower{Type: m.Spec.Type, Queue: m.Spec.Queue}
	noteEnqueued(&f, a, refused)
	if m.From.Parent != (task.ID{}) {
		followerDelivered(r, ns, m, f)
	}
	if m.Spec.Member != nil {
		memberDelivered(r, ns, m, &f, full)
	}
	return false
}

// givesUp reports whether to give up on a member that finds no room, because its group is at home here and cancelled.
func givesUp(r *engine.Round, ns string, p *schema.Message) bool {
	if p.Spec.Member == nil || p.From.Parent != (task.ID{}) {
		return false
	}
	g, ok := group(r, ns, p.Spec.Member.Group)
	return ok && g.state == Cancelled
}

// memberDelivered notifies a group of the outcome of a member that was sent.
func memberDelivered(r *engine.Round, ns string, p *schema.Message, f *schema.Follower, givenUp bool) {
	n := &schema.Notice{Group: p.Spec.Member.Group, Ref: p.Spec.Member.Ref, Type: f.Type, Queue: f.Queue}
	switch refused := refusalOf(f); {
	case givenUp:
		n.Revision, n.State = 1, task.Cancelled
	case refused != "":
		n.Revision, n.Refused = 1, refused
	default:
		n.ID = f.ID
	}
	here := n.Group.Shard()
	if p.From.Parent != (task.ID{}) {
		here = p.From.Parent.Shard()
	}
	sendNotice(r, ns, here, n)
}

// ended creates the follow-ups of a task that has succeeded, and notifies its group of its state.
func ended(r *engine.Round, ns string, id task.ID, x *schema.Exec, result schema.Result) {
	var created []schema.NewMember
	if x.State == task.Succeeded && x.Links.Followed {
		created = createFollowers(r, ns, id, x, result)
	}
	if x.Links.Member() {
		notifyHome(r, ns, id, x, result, created)
	}
}

// admitted stores the follow-ups of a new task.
func admitted(r *engine.Round, n *engine.NewTask, _ *schema.Envelope, _ *schema.Exec) {
	if len(n.Then) > 0 {
		writeThen(r, n.Namespace, n.ID, n.Then)
	}
}
