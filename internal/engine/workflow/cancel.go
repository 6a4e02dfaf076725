package workflow

import (
	"bytes"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Cancelling a group takes one log entry that marks it as cancelled. After that its deadline walks over its members,
// some in each round: it cancels those of this shard and sends orders for those of other shards. A member that is on
// its way is cancelled when its shard has answered. So a crash in between loses nothing, and repeating the call is a
// no-op.

// cancelChunk is how many members are cancelled in one round.
const cancelChunk = 200

// Cancel cancels a group with all its members, and drops the tasks that it would have enqueued. Cancelling a cancelled
// group is a no-op; a complete one is refused with wrong_state.
func Cancel(r *engine.Round, by task.Author, ns string, id task.ID) (*View, error) {
	g, ok := group(r, ns, id)
	switch {
	case !ok:
		return nil, task.NotFound("group", id.String())
	case g.state == Complete:
		return nil, &task.Error{Code: task.CodeWrongState, Message: "cancel group " + id.String() + ": it is complete"}
	case g.state == Running:
		g.state, g.open = Cancelled, false
		dropPoints(r, ns, g, "cancelled")
		g.cancelling, g.cancelCursor, g.dirty = true, task.ID{}, true
		setGroupDeadline(r, ns, g, r.Now())
		advance(r, ns, g, task.ID{})
		actions.Record(r, audit.Entry{By: by, Action: task.GroupCancelled, Namespace: ns,
			Target: task.Target{Kind: task.OnGroup, Name: id.String()}})
	}
	return viewOfGroup(r, ns, g), nil
}

// setGroupDeadline sets the deadline of a group.
func setGroupDeadline(r *engine.Round, ns string, g *taskGroup, at store.Time) {
	if g.deadline != 0 {
		r.Tx().Delete(schema.DeadlineKey(g.deadline, schema.OnGroup, ns, g.id[:]))
	}
	g.deadline, g.dirty = at, true
	r.SetDeadline(at, schema.OnGroup, ns, g.id[:])
}

// groupDue handles the deadline of a group.
func groupDue(r *engine.Round, d schema.Deadline) {
	g, ok := anyGroup(r, d.Namespace, d.ID())
	if !ok || g.deadline != d.At {
		return
	}
	g.deadline, g.dirty = 0, true
	switch until, doubted := r.DeletesFrom(); {
	case g.cancelling:
		cancelSome(r, d.Namespace, g)
	case doubted:
		setGroupDeadline(r, d.Namespace, g, until)
	default:
		forgetSome(r, d.Namespace, g)
	}
	r.YieldTurn() // so that other deadlines get theirs
}

// cancelSome cancels the next members of a group that have not ended.
func cancelSome(r *engine.Round, ns string, g *taskGroup) {
	refs, members := membersOf(r.Tx(), ns, g.id, g.cancelCursor, cancelChunk)
	for _, m := range members {
		if m.pending() && m.id != (task.ID{}) {
			cancelMember(r, ns, g.id, m.id)
		}
	}
	if len(refs) == cancelChunk {
		g.cancelCursor = refs[len(refs)-1]
		setGroupDeadline(r, ns, g, r.Now())
		return
	}
	g.cancelling, g.cancelCursor = false, task.ID{}
	if g.keptUntil != 0 {
		setGroupDeadline(r, ns, g, g.keptUntil)
	}
}

// cancelMember cancels a member, or sends its shard an order to do so.
func cancelMember(r *engine.Round, ns string, group, id task.ID) {
	if id.Shard() == group.Shard() {
		_ = engine.Cancel(r, ns, id) // it may have ended, which its home then knows
		return
	}
	r.Send(ns, &schema.Message{Request: task.RequestOf(task.PartID(group, id), cancelOrders), Cancel: id})
}

// cancelOrders keeps the ids of cancel orders apart from those of tasks and notices.
const cancelOrders = 1 << 41

// forgetSome deletes the next rows of a group whose retention is over, but not before the request that created it can
// no longer be repeated.
func forgetSome(r *engine.Round, ns string, g *taskGroup) {
	if until := g.createdAt.Add(task.RequestWindow); r.Now() < until {
		g.expired = true
		setGroupDeadline(r, ns, g, until)
		return
	}
	refs, _ := membersOf(r.Tx(), ns, g.id, task.ID{}, ForgetChunk)
	for _, ref := range refs {
		r.Tx().Delete(schema.MemberKey(ns, g.id, ref))
	}
	if len(refs) == ForgetChunk {
		g.expired = true
		setGroupDeadline(r, ns, g, r.Now())
		return
	}
	r.Tx().Delete(schema.IDKey(ns, schema.TableFollow, g.id))
	r.Tx().Delete(schema.IDKey(ns, schema.TableGroup, g.id))
	delete(engine.RoundMemory[groups](r).byName, groupName{ns, g.id})
}

// ForgetChunk is how many members of a group are deleted in one round.
const ForgetChunk = 1000

// membersOf reads up to limit members after one.
func membersOf(from store.Reader, ns string, group, behind task.ID, limit int) (refs []task.ID, members []*member) {
	lo := append(schema.MemberKey(ns, group, behind), 0) // none has the reference zero
	prefix := schema.IDKey(ns, schema.TableMember, group)
	from.Scan(lo, schema.After(prefix), func(k, row []byte) bool {
		m := schema.Must(decodeMember(bytes.Clone(row)))
		refs, members = append(refs, schema.IDAt(k)), append(members, m)
		return len(refs) < limit
	})
	return refs, members
}
