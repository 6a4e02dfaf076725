package system

import "testing"

// A leader's change log of queues and of workers is bounded, and it knows from which version on it is complete.
func TestChangeLogIsBounded(t *testing.T) {
	if ChangeLogSize != 1000 {
		t.Errorf("a leader remembers %d changes of each kind, want 1000", ChangeLogSize)
	}
	for _, kind := range []Kind{QueueChanged, WorkerChanged} {
		var log changeLog
		log.learn(0)
		for at := range uint64(3 * ChangeLogSize) {
			log.add(at+1, Change{kind, Name{"default", "a"}})
			if n := len(log.queues) + len(log.workers); n >= 2*ChangeLogSize {
				t.Fatalf("the change log has %d changes of kind %d, want fewer than twice its size", n, kind)
			}
		}
		if log.newest != 3*ChangeLogSize || log.base != 2*ChangeLogSize+1 {
			t.Errorf("kind %d: the log has all changes after %d, up to %d", kind, log.base, log.newest)
		}
	}
}

// A leader's memory ends with its term.
func TestMemoryEndsWithTheTerm(t *testing.T) {
	s := NewShard(nil)
	var m Memory[int]
	add := func() (sum int, led bool) {
		led = m.In(s, func(of *int) { *of++; sum = *of })
		return sum, led
	}
	if n, led := add(); led || n != 0 {
		t.Errorf("before a term: got %d, leads %t", n, led)
	}
	for term := range 3 {
		ctx := s.Elected()
		add()
		if n, led := add(); !led || n != 2 {
			t.Errorf("term %d: got %d, leads %t", term, n, led)
		}
		if term == 1 {
			continue // it is elected again without having been dropped
		}
		if !s.Dropped() || s.Dropped() || s.Leads() || ctx.Err() == nil {
			t.Errorf("term %d did not end", term)
		}
		if n, led := add(); led || n != 0 {
			t.Errorf("after term %d: got %d, leads %t", term, n, led)
		}
	}
}
