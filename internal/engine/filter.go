package engine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Filter selects tasks: what is set must match.
type Filter struct {
	Queue         string
	States        []task.State // any of them
	Type          string
	Tag           string
	Key           string
	Worker        string
	Error         string  // part of the last failure's message
	Fingerprint   string  `json:",omitempty"` // of a Group, by PrintText
	Operation     task.ID `json:",omitzero"`  // the last that changed the task
	CreatedAfter  store.Time
	CreatedBefore store.Time
	Text          string // part of the payload
	Not           string // a queue whose tasks are not selected
	// Within are patterns of the queues that the caller is limited to; nil: all.
	Within []string `json:",omitempty"`
}

// walk goes through the tasks that the filter may select, newest first: dead letters of one queue by their ends, others by their
// ids. It begins behind a cursor, nil: with the newest, and ends when take says so or that many rows were looked at. Next is where
// it would go on; nil at the end.
func (f *Filter) walk(from store.Reader, ns string, cursor []byte, rows int, take func(id task.ID, x *Exec) (more bool)) (next []byte, err error) {
	prefix := f.index(ns)
	hi := after(prefix)
	if cursor != nil {
		if len(cursor) != 16 && len(cursor) != 24 {
			return nil, task.Invalid("cursor", "is not one that a list gave")
		}
		hi = append(prefix[:len(prefix):len(prefix)], cursor...)
	}
	var last []byte
	more := true
	visit := func(k []byte, x *Exec) bool {
		if !more || rows == 0 {
			next = last
			return false
		}
		rows--
		last = append(last[:0], k[len(prefix):]...)
		more = take(idAt(k), x)
		return true
	}
	if f.Queue != "" {
		walkIndex(from, ns, prefix, hi, visit)
		return next, nil
	}
	from.ScanBack(prefix, hi, func(k, row []byte) bool {
		x, err := decodeExec(row)
		corrupt(err)
		return visit(k, x)
	})
	return next, nil
}

// index begins the rows in which the tasks stand that the filter may select.
func (f *Filter) index(ns string) []byte {
	switch {
	case f.Queue == "":
		return table(ns, tabExec, 0)
	case len(f.States) == 1 && (f.States[0] == task.Dead || f.States[0] == task.Poisoned):
		return statePrefix(ns, tabDead, f.Queue, f.States[0])
	}
	return queueKey(ns, tabListed, f.Queue)
}

// indexChunk is how many rows of an index are read before the tasks that they name.
const indexChunk = 128

// walkIndex visits the tasks that rows of an index name, the last first, until visit returns false.
func walkIndex(from store.Reader, ns string, prefix, hi []byte, visit func(k []byte, x *Exec) bool) {
	for {
		var names [][]byte
		from.ScanBack(prefix, hi, func(k, _ []byte) bool {
			names = append(names, bytes.Clone(k))
			return len(names) < indexChunk
		})
		execs := readExecs(from, ns, names)
		for i, k := range names {
			if !visit(k, execs[i]) {
				return
			}
		}
		if len(names) < indexChunk {
			return
		}
		hi = names[len(names)-1]
	}
}

// tail is the id that ends a key.
func tail(k []byte) []byte { return k[len(k)-16:] }

// readExecs reads the states of tasks whose ids end the keys.
func readExecs(from store.Reader, ns string, names [][]byte) []*Exec {
	order := make([]int, len(names)) // of their ids
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(tail(names[a]), tail(names[b])) })
	keys := make([][]byte, len(names))
	for i, at := range order {
		keys[i] = idKey(ns, tabExec, idAt(names[at]))
	}
	execs := make([]*Exec, len(names))
	from.GetEach(keys, func(i int, row []byte) {
		x, err := decodeExec(row)
		corrupt(err)
		execs[order[i]] = x
	})
	for i, x := range execs {
		if x == nil {
			corrupt(fmt.Errorf("row %q names a task that has no state", names[i]))
		}
	}
	return execs
}

// matches says whether the filter selects a task. What is cheap to know is asked first.
func (f *Filter) matches(from store.Reader, ns string, id task.ID, x *Exec) bool {
	switch {
	case f.Queue != "" && x.Queue != f.Queue,
		f.Not != "" && x.Queue == f.Not,
		f.Within != nil && !task.Scope{Queues: f.Within}.Sees(x.Queue),
		f.Type != "" && x.Type != f.Type,
		f.Key != "" && x.Key != f.Key,
		f.Worker != "" && x.Claim.Worker != f.Worker,
		f.Operation != (task.ID{}) && x.Operation != f.Operation,
		f.CreatedAfter != 0 && x.CreatedAt <= f.CreatedAfter,
		f.CreatedBefore != 0 && x.CreatedAt >= f.CreatedBefore,
		len(f.States) > 0 && !hasState(f.States, x.State):
		return false
	}
	if f.Tag != "" || f.Text != "" {
		e := readEnvelope(from, ns, id)
		if f.Tag != "" && !hasTag(e.Tags, f.Tag) || f.Text != "" && !bytes.Contains(e.Payload, []byte(f.Text)) {
			return false
		}
	}
	return f.matchesFailure(from, ns, id, x)
}

// matchesFailure says whether the filter selects a task by its last failure. A fingerprint that was written saves reading it.
func (f *Filter) matchesFailure(from store.Reader, ns string, id task.ID, x *Exec) bool {
	if x.Print != 0 && f.Fingerprint != "" && PrintText(x.Print) != f.Fingerprint {
		return false
	}
	if f.Error == "" && (f.Fingerprint == "" || x.Print != 0) {
		return true
	}
	v := View{Exec: x, Attempts: readAttempts(from, ns, id)}
	return strings.Contains(v.LastFailure().Message, f.Error) && (f.Fingerprint == "" || PrintText(printOf(&v)) == f.Fingerprint)
}

func hasState(states []task.State, s task.State) bool {
	for _, have := range states {
		if have == s {
			return true
		}
	}
	return false
}

func hasTag(tags []string, tag string) bool {
	for _, have := range tags {
		if have == tag {
			return true
		}
	}
	return false
}
