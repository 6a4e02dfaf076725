package workflow

import (
	"bytes"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/auditlog"
	"github.com/pawlq/pawl/internal/engine/outbox"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Cancelling a group is one entry that says so, and then rows: time passes over its members, some in each round, and cancels those of
// this shard; to those of other shards it sends an order. A member that is on its way is cancelled when its shard has answered. So a
// crash in the middle loses nothing, and a call that is repeated changes nothing.

// walkChunk is how many members one round goes over.
const walkChunk = 200

// Cancel cancels a group with all its members. What it would have enqueued is dropped. On one that is cancelled it changes
// nothing; one that is complete is refused with wrong_state.
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
		g.walking, g.walk, g.dirty = true, task.ID{}, true
		wakeGroup(r, ns, g, r.Now())
		advance(r, ns, g, task.ID{})
		auditlog.Record(r, audit.Entry{By: by, Action: task.GroupCancelled, Namespace: ns, Target: task.Target{Kind: task.OnGroup, Name: id.String()}})
	}
	return viewOfGroup(r, ns, g), nil
}

// wakeGroup sets when time is to look at a group again.
func wakeGroup(r *engine.Round, ns string, g *taskGroup, at store.Time) {
	if g.wake != 0 {
		r.Tx().Delete(schema.DeadlineKey(g.wake, schema.OnGroup, ns, g.id[:]))
	}
	g.wake, g.dirty = at, true
	r.SetDeadline(at, schema.OnGroup, ns, g.id[:])
}

// groupDue does for a group what its deadline is for.
func groupDue(r *engine.Round, d schema.Deadline) {
	g, ok := anyGroup(r, d.Namespace, d.ID())
	if !ok || g.wake != d.At {
		return
	}
	g.wake, g.dirty = 0, true
	switch until, doubted := r.DeletesFrom(); {
	case g.walking:
		cancelSome(r, d.Namespace, g)
	case doubted:
		wakeGroup(r, d.Namespace, g, until)
	default:
		forgetSome(r, d.Namespace, g)
	}
	r.YieldTurn() // others have theirs
}

// cancelSome cancels the next members of a group that have not ended.
func cancelSome(r *engine.Round, ns string, g *taskGroup) {
	refs, members := membersOf(r.Tx(), ns, g.id, g.walk, walkChunk)
	for i, m := range members {
		if m.pending() && m.id != (task.ID{}) {
			cancelMember(r, ns, g.id, refs[i], m.id)
		}
	}
	if len(refs) == walkChunk {
		g.walk = refs[len(refs)-1]
		wakeGroup(r, ns, g, r.Now())
		return
	}
	g.walking, g.walk = false, task.ID{}
	if g.keptUntil != 0 {
		wakeGroup(r, ns, g, g.keptUntil)
	}
}

// cancelMember cancels a member, or has its shard told to.
func cancelMember(r *engine.Round, ns string, group, ref, id task.ID) {
	if id.Shard() == group.Shard() {
		_ = engine.Cancel(r, ns, id) // it may have ended; then its home knows
		return
	}
	r.Send(ns, &outbox.Message{Request: engine.RequestOf(engine.PartID(group, ref), cancelOrders), Cancel: id})
}

// cancelOrders are apart from births and notices.
const cancelOrders = 1 << 41

// forgetSome removes the next rows of a group whose retention is over. They stay for as long as the request that made it may be repeated.
func forgetSome(r *engine.Round, ns string, g *taskGroup) {
	if until := g.createdAt.Add(engine.DedupWindow); r.Now() < until {
		g.leaving = true
		wakeGroup(r, ns, g, until)
		return
	}
	refs, _ := membersOf(r.Tx(), ns, g.id, task.ID{}, ForgetChunk)
	for _, ref := range refs {
		r.Tx().Delete(schema.MemberKey(ns, g.id, ref))
	}
	if len(refs) == ForgetChunk {
		g.leaving = true
		wakeGroup(r, ns, g, r.Now())
		return
	}
	r.Tx().Delete(schema.IDKey(ns, schema.TableFollow, g.id))
	r.Tx().Delete(schema.IDKey(ns, schema.TableGroup, g.id))
	delete(engine.RoundMemory[groups](r).byName, groupName{ns, g.id})
}

// ForgetChunk is how many members of a group one round forgets.
const ForgetChunk = 1000

// membersOf reads up to limit members behind one.
func membersOf(from store.Reader, ns string, group, behind task.ID, limit int) (refs []task.ID, members []*member) {
	lo := append(schema.MemberKey(ns, group, behind), 0) // none has the reference zero
	prefix := schema.IDKey(ns, schema.TableMember, group)
	from.Scan(lo, schema.After(prefix), func(k, row []byte) bool {
		m, err := decodeMember(bytes.Clone(row))
		schema.Must(err)
		refs, members = append(refs, schema.IDAt(k)), append(members, m)
		return len(refs) < limit
	})
	return refs, members
}
