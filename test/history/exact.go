package history

import (
	"time"

	"github.com/anishathalye/porcupine"
)

// maxUnknown is the maximum number of unanswered calls of one task: the search for an illegal history takes about twice
// as long with each (12: a tenth of a second, 15: a second).
const maxUnknown = 15

// search looks, task by task, for any order in which all answers make sense: one in which no call comes before another
// that had returned when it was made. With the log, an order must also follow the known indexes. It returns how many
// tasks it searched.
func (b *book) search(lives []*life, withLog bool) int {
	side(lives, func(l *life) { b.searchOne(l, withLog) })
	return len(lives)
}

// searchOne searches one task.
func (b *book) searchOne(l *life, withLog bool) {
	operations, unknown := b.operations(l, withLog)
	if unknown > maxUnknown {
		b.undecided(l.id, "too many calls without an answer")
		return
	}
	timeout := b.o.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	switch porcupine.CheckOperationsTimeout(taskModel, operations, timeout) {
	case porcupine.Illegal:
		f, shown := explain(operations, timeout)
		b.violation(f, l.id, shown...)
	case porcupine.Unknown:
		b.undecided(l.id, "the search took too long")
	}
}

// operations returns the events of a task as the search sees them.
func (b *book) operations(l *life, withLog bool) (operations []porcupine.Operation, unknown int) {
	shard := l.shard()
	operations = make([]porcupine.Operation, len(l.events))
	for i := range l.events {
		e := l.events[i]
		if e.Code == Unknown {
			unknown++
		}
		if e.Code == Unknown || e.Retried {
			e.from = max(e.from, b.floor(shard, e.CallNS))
		}
		e.ordered = withLog && e.Index != 0 && e.Code != Unknown
		operations[i] = porcupine.Operation{ClientId: e.Client, Input: &e, Call: e.CallNS, Return: e.returned()}
	}
	return operations, unknown
}

// shard returns the task's shard, or 0 if no answer has it.
func (l *life) shard() uint32 {
	for i := range l.events {
		if e := &l.events[i]; e.Index != 0 {
			return e.Shard
		}
	}
	return 0
}

// taskModel is the life of one task in porcupine's terms.
var taskModel = porcupine.Model{
	Init: func() any { s := beginning(); return &s },
	Step: func(s, in, _ any) (bool, any) {
		next, f := s.(*state).step(in.(*event))
		return f == fine, &next
	},
	Equal: func(a, b any) bool { return a.(*state).equal(b.(*state)) },
	Hash:  func(s any) uint64 { return s.(*state).hash() },
}

// explain finds what contradicts a history that has no order: the answer that had to follow the longest part that makes sense.
func explain(operations []porcupine.Operation, timeout time.Duration) (fault, []*Record) {
	_, info := porcupine.CheckOperationsVerbose(taskModel, operations, timeout)
	var longest []int
	for _, part := range info.PartialLinearizations()[0] {
		if len(part) > len(longest) {
			longest = part
		}
	}
	s := beginning()
	placed := make([]bool, len(operations))
	var shown []*Record
	for _, i := range longest {
		placed[i] = true
		e := operations[i].Input.(*event)
		next, _ := s.step(e)
		if next != s {
			shown = append(shown, e.Record)
		}
		s = next
	}
	var culprit *event
	for i, done := range placed {
		if e := operations[i].Input.(*event); !done && (culprit == nil || e.returned() < culprit.returned()) {
			culprit = e
		}
	}
	if culprit == nil {
		return fault{Order, "no order of the answers makes sense"}, shown
	}
	_, f := s.step(culprit)
	if f == fine {
		f = fault{Order, "no order of the answers makes sense"}
	}
	return f, append(shown[max(0, len(shown)-maxShown):], culprit.Record)
}

// maxShown is how many records before the one that does not fit are shown.
const maxShown = 4
