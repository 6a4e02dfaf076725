package query

import (
	"bytes"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Filter selects tasks: all fields that are set must match.
type Filter struct {
	Queue         string
	States        []task.State // any of them
	Type          string
	Tag           string
	Key           string
	Worker        string
	Error         string  // part of the last failure's message
	Fingerprint   string  `json:",omitempty"` // of a DeadGroup, as formatted by fingerprint.Text
	Operation     task.ID `json:",omitzero"`  // the last one that changed the task
	CreatedAfter  store.Time
	CreatedBefore store.Time
	Text          string         // part of the payload
	Payload       []PayloadField `json:",omitempty"` // all of them
	Not           string         // a queue to exclude
	// Within are patterns of the queues to which the caller is limited; nil: all.
	Within []string `json:",omitempty"`
}

// matchesState reports whether a task's state matches the filter.
func (f *Filter) matchesState(x *schema.Exec) bool {
	switch {
	case !f.matches(x.State, x.Queue, x.Type),
		f.Key != "" && x.Key != f.Key,
		f.Worker != "" && x.Claim.Worker != f.Worker,
		f.Operation != (task.ID{}) && x.Operation != f.Operation,
		f.CreatedAfter != 0 && x.CreatedAt <= f.CreatedAfter,
		f.CreatedBefore != 0 && x.CreatedAt >= f.CreatedBefore:
		return false
	}
	return true
}

// matches reports whether a state, a queue and a type match the filter.
func (f *Filter) matches(s task.State, queue, typ string) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, s)) && (f.Type == "" || typ == f.Type) && f.maySee(queue)
}

// matchesEnvelope reports whether a task's envelope matches the filter.
func (f *Filter) matchesEnvelope(e *schema.Envelope) bool {
	if f.Tag != "" && !slices.Contains(e.Tags, f.Tag) || f.Text != "" && !bytes.Contains(e.Payload, []byte(f.Text)) {
		return false
	}
	for i := range f.Payload {
		if !f.Payload[i].matches(e.Payload) {
			return false
		}
	}
	return true
}

// matchesFailure reports whether a task's last failure matches the filter. A stored fingerprint saves reading the failure.
func (f *Filter) matchesFailure(from store.Reader, ns string, id task.ID, x *schema.Exec) bool {
	if x.Fingerprint != 0 && f.Fingerprint != "" && fingerprint.Text(x.Fingerprint) != f.Fingerprint {
		return false
	}
	if f.Error == "" && (f.Fingerprint == "" || x.Fingerprint != 0) {
		return true
	}
	v := View{Exec: x, Attempts: schema.ReadAttempts(from, ns, id)}
	return strings.Contains(v.LastFailure().Message, f.Error) && (f.Fingerprint == "" || fingerprint.Text(printOf(&v)) == f.Fingerprint)
}
