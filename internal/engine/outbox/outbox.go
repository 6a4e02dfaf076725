// Package outbox stores a shard's messages to other shards. A message is written in the log entry that needs it,
// delivered by the leader's sender as often as necessary, and removed when the other shard has answered. The receiving
// shard processes it once: a message has its own request id, which that shard remembers (task.MessageWindow). The
// package knows neither who sends messages nor how they are handled.
package outbox

import (
	"bytes"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Message is a message to another shard: a task to enqueue, or a notice to a group's home shard if Notice is set, an
// order to cancel a task if Cancel is, or a notification for the system shard to deliver to webhooks if Notification
// is.
type Message struct {
	Request task.ID
	Spec    task.Spec
	SentAt  store.Time
	From    Origin

	Notice       *Notice
	Cancel       task.ID
	Notification *task.Notification
}

// Address is what determines where a message goes: the queue and the slot of a task; or the shard of a group, or of a
// task to cancel; or nothing if it is a notification.
type Address struct {
	Shard uint32
	Queue string
	Slot  int
}

// Address returns the message's address.
func (p *Message) Address() Address {
	switch {
	case p.Notice != nil:
		return Address{Shard: p.Notice.Group.Shard()}
	case p.Cancel != task.ID{}:
		return Address{Shard: p.Cancel.Shard()}
	case p.Notification != nil:
		return Address{}
	}
	slot, _ := p.Spec.Slot() // a task in the outbox has a request, and so a slot
	return Address{Queue: p.Spec.Queue, Slot: slot}
}

// IsTask reports whether the message is a task to enqueue.
func (p *Message) IsTask() bool {
	return p.Notice == nil && p.Cancel == task.ID{} && p.Notification == nil
}

// Origin identifies the sender of a task, which is notified of the outcome of its delivery: a tick of a schedule, a
// parent that the task follows, or an operation. A member sent by its group's home shard has none: its spec names the
// group.
type Origin struct {
	Schedule string
	Plan     task.ID
	Tick     uint64

	Parent task.ID
	N      int // index among the parent's follow-ups

	Operation task.ID // the operation that moves the task
}

// Put puts a message into the outbox.
func (p *Message) Put(tx *store.Tx, ns string) {
	p.SentAt = tx.Now()
	if p.IsTask() {
		p.Spec.RequestID, p.Spec.RequestTTL = p.Request, task.MessageWindow
	}
	tx.Set(schema.IDKey(ns, schema.TableOutbox, p.Request), p.Encode())
}

// Read reads a message from the outbox.
func Read(from store.Reader, ns string, request task.ID) (*Message, bool) {
	row, ok := from.Get(schema.IDKey(ns, schema.TableOutbox, request))
	if !ok {
		return nil, false
	}
	return schema.Must(Decode(request, row)), true
}

// Namespaces returns the namespaces that have messages.
func Namespaces(from store.Reader) (names []string) {
	lo, hi := []byte{schema.TableOutbox}, []byte{schema.TableOutbox + 1}
	for more := true; more; {
		more = false
		from.Scan(lo, hi, func(k, _ []byte) bool {
			name, _, _ := bytes.Cut(k[1:], []byte{0})
			names, more = append(names, string(name)), true
			lo = append(append([]byte{schema.TableOutbox}, name...), 1) // after the last row of the namespace
			return false
		})
	}
	return names
}

// Stored is a message in the outbox of which only the address has been decoded.
type Stored struct {
	Request task.ID
	To      Address

	row []byte
}

// Message decodes the message.
func (s *Stored) Message() (*Message, error) { return Decode(s.Request, s.row) }

// List reads up to limit messages, or roughly 8 MiB of them, after a request id. It decodes only their addresses: while
// a shard is lost, a sender lists its messages many times and sends few. One whose row can't be understood may have any
// address.
func List(from store.Reader, ns string, behind task.ID, limit int) (messages []Stored) {
	lo, hi := schema.TableBounds(ns, schema.TableOutbox)
	if behind != (task.ID{}) {
		lo = append(schema.IDKey(ns, schema.TableOutbox, behind), 0)
	}
	m := schema.Count(from)
	m.Scan(lo, hi, func(k, row []byte) bool {
		row = bytes.Clone(row) // it is valid only during the scan
		messages = append(messages, Stored{schema.IDAt(k), DecodeAddress(row), row})
		return len(messages) < limit && !m.Full()
	})
	return messages
}

// Notice reports the state of a member to its group's home shard.
type Notice struct {
	Group    task.ID
	Ref      task.ID
	Revision uint64     // how often the member has ended or was replayed; 0: it was just created
	ID       task.ID    // zero: it was refused
	State    task.State // the final state; 0: it has not ended
	Type     string
	Queue    string
	Refused  string        // the error code; "": it was not refused
	Result   schema.Result // of a successful member, unless it is too large to keep
	Omitted  bool
	// NewMembers are follow-ups of the member that belong to the group, too. The home shard learns of them in the same
	// entry as of the member's end, or the group could be complete in between.
	NewMembers []NewMember
}

// NewMember is a member that was created in another shard.
type NewMember struct {
	Ref     task.ID
	ID      task.ID // zero: it is on its way to another shard
	Type    string
	Queue   string
	Refused string
}
