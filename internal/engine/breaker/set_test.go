package breaker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// host is a queue that records what its breakers do.
type host struct {
	now       store.Time
	rule      task.Breaker
	mayHave   bool
	deadlines map[string]store.Time
	touched   []string
	changes   []Change
	woken     int
}

func (h *host) Now() store.Time          { return h.now }
func (h *host) Rule(string) task.Breaker { return h.rule }
func (h *host) Touch(typ string)         { h.touched = append(h.touched, typ) }
func (h *host) Hold(string)              {}
func (h *host) Wake()                    { h.woken++ }
func (h *host) MayHave(string) bool      { return h.mayHave }
func (h *host) Changed(c Change)         { h.changes = append(h.changes, c) }
func (h *host) SweepLater()              {}
func (h *host) SetDeadline(typ string, _, at store.Time) {
	if h.deadlines[typ] = at; at == 0 {
		delete(h.deadlines, typ)
	}
}

func newHost() *host {
	rule := task.Breaker{FailureRate: 50, MinAttempts: 2, Window: time.Minute, Hold: time.Minute, Probes: 2}
	rule.Fill()
	return &host{now: store.TimeOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), rule: rule, mayHave: true,
		deadlines: map[string]store.Time{}}
}

// judge reports outcomes of attempts: f failed, s succeeded.
func judge(s *Set, h *host, ends string) {
	for _, end := range ends {
		o := map[rune]task.Outcome{'f': task.OutcomeFailed, 's': task.OutcomeSucceeded}[end]
		s.Judge(h, task.ID{9}, "t", o, schema.Failure{Message: map[rune]string{'f': "down"}[end]})
	}
}

func TestVerdicts(t *testing.T) {
	for o, want := range map[task.Outcome]verdict{task.OutcomeSucceeded: success, task.OutcomeFailed: failure, task.OutcomeDead: failure,
		task.OutcomeTimedOut: failure, task.OutcomeLeaseLost: failure, task.OutcomeLeaderless: noVerdict, task.OutcomeReleased: noVerdict} {
		if got := verdictOf(o); got != want {
			t.Errorf("verdictOf(%v) = %d, want %d", o, got, want)
		}
	}
}

// A breaker opens when enough attempts have ended, and enough of them failed. Its row is written once in a round.
func TestOpens(t *testing.T) {
	for _, c := range []struct {
		ends      string
		min, rate int
		opens     bool
	}{
		{"f", 2, 50, false},
		{"sf", 2, 50, true},
		{"sssf", 2, 50, false},
		{"sssfff", 2, 50, true},
		{"s" + strings.Repeat("f", 100), 101, 100, false},
	} {
		s, h := NewSet(), newHost()
		h.rule.MinAttempts, h.rule.FailureRate = c.min, c.rate
		judge(s, h, c.ends)
		if b := s.Of("t"); (b.State == Open) != c.opens || (h.deadlines["t"] != 0) != c.opens || b.LastError != "down" {
			t.Errorf("after %q with at least %d attempts and a failure rate of %d%%: %+v", c.ends, c.min, c.rate, b)
		}
		if infos, n := s.NotClosed(&task.Settings{}); (n == 1) != c.opens || len(infos) != n {
			t.Errorf("after %q, NotClosed reports %d breakers", c.ends, n)
		}
		if len(h.touched) != 1 || !slices.Equal(s.Types(), []string{"t"}) {
			t.Errorf("after %q the rows of %v were written, but the types are %v", c.ends, h.touched, s.Types())
		}
	}
	s, h := NewSet(), newHost()
	judge(s, h, "f")
	if judge(s, h, "s"); s.Of("t").LastError != "down" {
		t.Errorf("after a success the last error is %q", s.Of("t").LastError)
	}
	s.Judge(h, task.ID{1}, "u", task.OutcomeFailed, schema.Failure{Message: strings.Repeat("x", 300)})
	if n := len(s.Of("u").LastError); n != 200 {
		t.Errorf("%d bytes of the error were kept, want 200", n)
	}
}

// The number of types with a breaker is bounded: others are not judged.
func TestTypesAreBounded(t *testing.T) {
	for more, judged := range map[int]bool{-1: true, 0: false, 1: false} {
		s, h := NewSet(), newHost()
		for i := range MaxTypes + more {
			s.Add(&Breaker{Type: fmt.Sprint("job-", i)})
		}
		judge(s, h, "f")
		if (s.Of("t") != nil) != judged {
			t.Errorf("with %d types another one was judged: %t", MaxTypes+more, !judged)
		}
		if s.Judge(h, task.ID{1}, "job-0", task.OutcomeFailed, schema.Failure{}); s.Of("job-0").Seen.Sum(h.now, h.rule.Window).Failed != 1 {
			t.Error("a type that has a breaker was not judged")
		}
	}
}

// The longest open are listed first.
func TestListOrder(t *testing.T) {
	s := NewSet()
	for i := range 9 {
		s.Add(&Breaker{Type: fmt.Sprint(i), State: Open, Since: store.Time(100 - i/2)})
	}
	infos, _ := s.NotClosed(&task.Settings{})
	got := ""
	for _, i := range infos {
		got += i.Type
	}
	if got != "867452301" {
		t.Errorf("NotClosed lists the types in the order %s", got)
	}
}

// An open breaker lets probes through when its hold ends, one at a time, and closes when enough have succeeded.
func TestProbes(t *testing.T) {
	s, h := NewSet(), newHost()
	judge(s, h, "ff")
	b := s.Of("t")
	if s.LetThrough(h, task.ID{1}, "t"); b.Probe != (task.ID{}) || b.Tries() {
		t.Errorf("an open breaker let a task through: %+v", b)
	}
	s.HoldEnds(h, "t", b.Until-1)
	s.HoldEnds(h, "u", b.Until)
	if b.State != Open {
		t.Errorf("the hold ended too early: %+v", b)
	}
	h.now = b.Until
	if s.HoldEnds(h, "t", b.Until); b.State != Probing || !b.Tries() || h.woken != 1 {
		t.Errorf("after the hold ended, woken %d times: %+v", h.woken, b)
	}
	s.LetThrough(h, task.ID{1}, "t")
	if s.LetThrough(h, task.ID{2}, "t"); b.Probe != (task.ID{1}) || b.Tries() {
		t.Errorf("a second probe was let through: %+v", b)
	}
	if judge(s, h, "f"); b.State != Probing || b.Probe != (task.ID{1}) {
		t.Errorf("a task that is not the probe was judged: %+v", b)
	}
	if s.Judge(h, task.ID{1}, "t", task.OutcomeSucceeded, schema.Failure{}); b.Passed != 1 || !b.Tries() || h.woken != 2 {
		t.Errorf("after a probe succeeded, woken %d times: %+v", h.woken, b)
	}
	s.LetThrough(h, task.ID{3}, "t")
	b.Passed = 2 // out of more that are required
	if s.Judge(h, task.ID{3}, "t", task.OutcomeSucceeded, schema.Failure{}); s.Of("t") != nil || h.woken != 3 || len(h.deadlines) > 0 {
		t.Errorf("after enough probes succeeded, woken %d times: %+v", h.woken, s.Of("t"))
	}
}

// Closed breakers without an outcome for a window are forgotten, a bounded number at a time.
func TestSweep(t *testing.T) {
	s, h := NewSet(), newHost()
	for i := range 5 {
		s.Judge(h, task.ID{1}, fmt.Sprint(i), task.OutcomeSucceeded, schema.Failure{})
	}
	s.Add(&Breaker{Type: "open", State: Open})
	for _, c := range []struct {
		later   time.Duration
		limit   int
		dropped int
		left    bool
	}{{0, 9, 0, true}, {2 * time.Minute, 2, 2, true}, {0, 0, 0, true}, {0, 9, 3, false}, {0, 9, 0, false}} {
		h.now = h.now.Add(c.later)
		if dropped, left := s.Sweep(h, c.limit); dropped != c.dropped || left != c.left {
			t.Errorf("Sweep(%d) dropped %d, some are left: %t, want %d, %t", c.limit, dropped, left, c.dropped, c.left)
		}
	}
	if s.Of("open") == nil {
		t.Error("an open breaker was forgotten")
	}
}

// Breakers follow their rule as it changes, and only then.
func TestFollow(t *testing.T) {
	rule := newHost().rule
	with := func(change func(b *task.Breaker)) task.Breaker { b := rule; change(&b); return b }
	for what, c := range map[string]struct {
		b       Breaker
		to      task.Breaker
		state   string // "": removed
		changes int
		touched bool
	}{
		"the same":             {Breaker{State: Probing, Passed: 3}, rule, "probing", 0, false},
		"closed, rule gone":    {Breaker{}, task.Breaker{}, "", 0, true},
		"closed, rate gone":    {Breaker{}, with(func(b *task.Breaker) { b.FailureRate = 0 }), "", 0, true},
		"open, rule gone":      {Breaker{State: Open}, task.Breaker{}, "", 1, true},
		"another window":       {Breaker{}, with(func(b *task.Breaker) { b.Window *= 2 }), "", 0, true},
		"more probes":          {Breaker{State: Probing, Passed: 1}, with(func(b *task.Breaker) { b.Probes = 3 }), "probing", 0, false},
		"fewer than succeeded": {Breaker{State: Probing, Passed: 2}, with(func(b *task.Breaker) { b.Probes = 1 }), "", 1, true},
	} {
		s, h := NewSet(), newHost()
		c.b.Type = "t"
		s.Add(&c.b)
		h.rule = c.to
		s.Follow(h, &task.Settings{Breaker: rule})
		state := ""
		if b := s.Of("t"); b != nil {
			state = b.State.String()
		}
		if state != c.state || len(h.changes) != c.changes || (len(h.touched) > 0) != c.touched {
			t.Errorf("%s: state %q, want %q, changes %v, rows written %v", what, state, c.state, h.changes, h.touched)
		}
	}
}
