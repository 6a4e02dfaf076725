package schema

import (
	"bytes"

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
	tx.Set(IDKey(ns, TableOutbox, p.Request), p.Encode())
}

// ReadMessage reads a message from the outbox.
func ReadMessage(from store.Reader, ns string, request task.ID) (*Message, bool) {
	row, ok := from.Get(IDKey(ns, TableOutbox, request))
	if !ok {
		return nil, false
	}
	return Must(DecodeMessage(request, row)), true
}

// MessageNamespaces returns the namespaces that have messages.
func MessageNamespaces(from store.Reader) (names []string) {
	lo, hi := []byte{TableOutbox}, []byte{TableOutbox + 1}
	for more := true; more; {
		more = false
		from.Scan(lo, hi, func(k, _ []byte) bool {
			name, _, _ := bytes.Cut(k[1:], []byte{0})
			names, more = append(names, string(name)), true
			lo = append(append([]byte{TableOutbox}, name...), 1) // after the last row of the namespace
			return false
		})
	}
	return names
}

// StoredMessage is a message in the outbox of which only the address has been decoded.
type StoredMessage struct {
	Request task.ID
	To      Address

	row []byte
}

// Message decodes the message.
func (s *StoredMessage) Message() (*Message, error) { return DecodeMessage(s.Request, s.row) }

// ListMessages reads up to limit messages, or roughly 8 MiB of them, after a request id. It decodes only their addresses: while
// a shard is lost, a sender lists its messages many times and sends few. One whose row can't be understood may have any
// address.
func ListMessages(from store.Reader, ns string, behind task.ID, limit int) (messages []StoredMessage) {
	lo, hi := TableBounds(ns, TableOutbox)
	if behind != (task.ID{}) {
		lo = append(IDKey(ns, TableOutbox, behind), 0)
	}
	m := Count(from)
	m.Scan(lo, hi, func(k, row []byte) bool {
		row = bytes.Clone(row) // it is valid only during the scan
		messages = append(messages, StoredMessage{IDAt(k), DecodeAddress(row), row})
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
	Refused  string // the error code; "": it was not refused
	Result   Result // of a successful member, unless it is too large to keep
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
