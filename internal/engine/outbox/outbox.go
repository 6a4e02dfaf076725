// Package outbox is what a shard wants of others: messages that are written in the entry that wants them, brought there by the
// leader's sender as often as need be, and removed when the other shard has answered. There a message counts once: it is enqueued with
// a request id of its own, which that shard remembers for as long as the sender may come again. It knows neither who sends messages nor
// what becomes of them.
package outbox

import (
	"bytes"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Message is what is on its way to another shard: a task; or, if Notice is set, what a group's home is to hear; if Cancel is, an order
// to cancel that task; if News is, what the system shard is to tell webhooks of.
type Message struct {
	Request task.ID
	Spec    task.Spec
	SentAt  store.Time
	From    Origin

	Notice       *Notice
	Cancel       task.ID
	Notification *task.Notification
}

// IsTask says whether the message is a task to be enqueued.
func (p *Message) IsTask() bool {
	return p.Notice == nil && p.Cancel == task.ID{} && p.Notification == nil
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

// Window is how long the shard that took a message remembers it: longer than the leader's sender may need to come back from a shard
// that has no leader.
const Window = 24 * time.Hour

// Put puts a message into the outbox.
func (p *Message) Put(tx *store.Tx, ns string) {
	p.SentAt = tx.Now()
	if p.IsTask() {
		p.Spec.RequestID, p.Spec.RequestTTL = p.Request, Window
	}
	tx.Set(schema.IDKey(ns, schema.TableOutbox, p.Request), p.Encode())
}

// Read reads a message that is in the outbox.
func Read(from store.Reader, ns string, request task.ID) (*Message, bool) {
	row, ok := from.Get(schema.IDKey(ns, schema.TableOutbox, request))
	if !ok {
		return nil, false
	}
	p, err := Decode(request, row)
	schema.Must(err)
	return p, true
}

// Namespaces are those that have messages.
func Namespaces(from store.Reader) (names []string) {
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

// List reads up to limit messages behind a request, or about 8 MiB of them.
func List(from store.Reader, ns string, behind task.ID, limit int) (messages []*Message) {
	lo, hi := schema.TableBounds(ns, schema.TableOutbox)
	if behind != (task.ID{}) {
		lo = append(schema.IDKey(ns, schema.TableOutbox, behind), 0)
	}
	m := &schema.Counted{Reader: from}
	m.Scan(lo, hi, func(k, row []byte) bool {
		p, err := Decode(schema.IDAt(k), bytes.Clone(row)) // which is not the caller's behind the scan
		schema.Must(err)
		messages = append(messages, p)
		return len(messages) < limit && m.Bytes < schema.PageBytes
	})
	return messages
}

// Notice tells the home of a group how a member stands.
type Notice struct {
	Group   task.ID
	Ref     task.ID
	Turn    uint64     // how often the member has ended or come to life again; 0: it was born
	ID      task.ID    // zero: it was refused
	State   task.State // the end; 0: it lives
	Type    string
	Queue   string
	Refused string        // the code; "": it was not
	Result  schema.Result // of success, if it is not too large to keep
	Omitted bool
	// Born is what follows the member and belongs to the group, too: known to the home in the entry that counts the member's end, or
	// the group could be complete in between.
	Born []Birth
}

// Birth is a member that was born in another shard.
type Birth struct {
	Ref     task.ID
	ID      task.ID // zero: it is on its way
	Type    string
	Queue   string
	Refused string
}
