package engine

import (
	"bytes"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// What a shard wants of another goes through its outbox: written in the entry that wants it, brought there by the leader's
// sender as often as need be, and removed when the other shard has answered. There it counts once: a message is enqueued with a
// request id of its own, which that shard remembers for as long as the leader's sender may come again.

// OutboxMessage is what is on its way to another shard: a task; or, if Notice is set, what a group's home is to hear; if Cancel is, an order
// to cancel that task; if News is, what the system shard is to tell webhooks of.
type OutboxMessage struct {
	Request task.ID
	Spec    task.Spec
	SentAt  store.Time
	From    Origin

	Notice *Notice
	Cancel task.ID
	News   *task.News
}

// IsTask says whether the message is a task to be enqueued.
func (p *OutboxMessage) IsTask() bool {
	return p.Notice == nil && p.Cancel == task.ID{} && p.News == nil
}

// Origin is what sent a task, and wants to hear what became of it: a tick of a schedule, or a parent that the task follows. A member
// that was sent by its group's home has none: its spec names the group.
type Origin struct {
	Schedule string
	Plan     task.ID
	Tick     uint64

	Parent task.ID
	N      int // which one of those that follow it

	Operation task.ID // that moves a task
}

// outboxWindow is how long the shard that took a message remembers it: longer than the leader's sender may need to come back from a shard
// that has no leader.
const outboxWindow = 24 * time.Hour

// send puts a message into the outbox.
func (r *Round) send(ns string, p *OutboxMessage) {
	p.SentAt = r.now
	if p.IsTask() {
		p.Spec.RequestID, p.Spec.RequestTTL = p.Request, outboxWindow
	}
	r.tx.Set(schema.IDKey(ns, schema.TableOutbox, p.Request), p.encode())
	r.ToSend = true
}

func readMessage(from store.Reader, ns string, request task.ID) (*OutboxMessage, bool) {
	row, ok := from.Get(schema.IDKey(ns, schema.TableOutbox, request))
	if !ok {
		return nil, false
	}
	p, err := decodeMessage(request, row)
	schema.Must(err)
	return p, true
}

// OutboxNamespaces are those that have messages.
func OutboxNamespaces(from store.Reader) (names []string) {
	lo, hi := []byte{schema.TableOutbox}, []byte{schema.TableOutbox + 1}
	for more := true; more; {
		more = false
		from.Scan(lo, hi, func(k, _ []byte) bool {
			name, _, _ := bytes.Cut(k[1:], []byte{0})
			names, more = append(names, string(name)), true
			lo = append(append([]byte{schema.TableOutbox}, name...), 1) // behind the last row of the namespace
			return false
		})
	}
	return names
}

// Outbox reads up to limit messages behind a request, or about 8 MiB of them.
func Outbox(from store.Reader, ns string, behind task.ID, limit int) (messages []*OutboxMessage) {
	lo, hi := schema.TableBounds(ns, schema.TableOutbox)
	if behind != (task.ID{}) {
		lo = append(schema.IDKey(ns, schema.TableOutbox, behind), 0)
	}
	m := &schema.Counted{Reader: from}
	m.Scan(lo, hi, func(k, row []byte) bool {
		p, err := decodeMessage(schema.IDAt(k), bytes.Clone(row)) // which is not the caller's behind the scan
		schema.Must(err)
		messages = append(messages, p)
		return len(messages) < limit && m.Bytes < schema.PageBytes
	})
	return messages
}

// Delivered removes a message that was brought to its shard, or that no shard will ever take: then refused says why. Stays says that
// it is to be brought again: what follows a task, or belongs to a group, waits until its queue has room.
func Delivered(r *Round, ns string, request task.ID, a Accepted, refused *task.Error) (stays bool) {
	p, ok := readMessage(r.tx, ns, request)
	if !ok {
		return false
	}
	full := p.IsTask() && p.From.Schedule == "" && refused != nil && refused.Code == task.CodeQueueFull
	if full && !r.givesUp(ns, p) {
		return true
	}
	r.tx.Delete(schema.IDKey(ns, schema.TableOutbox, request))
	switch {
	case !p.IsTask():
	case p.From.Operation != (task.ID{}):
		r.arrived(ns, p, a, refused)
	case p.From.Schedule != "":
		r.tickDelivered(ns, p, a, refused)
	default:
		f := schema.Follower{Type: p.Spec.Type, Queue: p.Spec.Queue}
		noteBirth(&f, a, refused)
		if p.From.Parent != (task.ID{}) {
			r.followerDelivered(ns, p, f)
		}
		if p.Spec.Member != nil {
			r.memberDelivered(ns, p, &f, full)
		}
	}
	return false
}

// givesUp says whether a member that finds no room need not come: its group, which lives here, is cancelled.
func (r *Round) givesUp(ns string, p *OutboxMessage) bool {
	if p.Spec.Member == nil || p.From.Parent != (task.ID{}) {
		return false
	}
	g, ok := r.group(ns, p.Spec.Member.Group)
	return ok && g.state == GroupCancelled
}

// memberDelivered tells a group what became of a member that was sent.
func (r *Round) memberDelivered(ns string, p *OutboxMessage, f *schema.Follower, givenUp bool) {
	n := &Notice{Group: p.Spec.Member.Group, Ref: p.Spec.Member.Ref, Type: f.Type, Queue: f.Queue}
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
	r.notify(ns, here, n)
}
