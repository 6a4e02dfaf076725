package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// anomaly spoils a legal history in a way that no queue that keeps its promises could have caused.
type anomaly struct {
	name  string
	rule  Invariant
	kind  string // of world
	spoil func(s *scene) (task string)
	// stream and exact say who must detect it: replay and facts with the log, or the search without it. The other may detect it too.
	stream, exact bool
}

// scene is a legal history with what is known of its tasks.
type scene struct {
	*world
	rng   *rand.Rand
	whole []*life // replayed tasks, each in log order
	open  []*life // tasks with unanswered calls
	o     Options
}

// histories are generated once: most anomalies start from the same one.
var histories = map[string]*world{}

func newScene(kind string, seed uint64) *scene {
	name := fmt.Sprint(kind, seed)
	if histories[name] == nil {
		histories[name] = run(seed, worlds[kind])
	}
	w := histories[name].clone()
	s := &scene{world: w, rng: rand.New(rand.NewPCG(seed, 99)), o: w.options()}
	b := newBook(w.records, s.o)
	b.resolve()
	for _, l := range b.lives {
		sortByLog(l.events)
		if l.open {
			s.open = append(s.open, l)
		} else {
			s.whole = append(s.whole, l)
		}
	}
	return s
}

// somewhere tries the events of tasks in random order until one can be spoiled.
func somewhere(s *scene, lives []*life, spoil func(l *life, i int) bool) string {
	type place struct {
		l *life
		i int
	}
	var places []place
	for _, l := range lives {
		for i := range l.events {
			if !l.events[i].final && l.events[i].Code != Unknown {
				places = append(places, place{l, i})
			}
		}
	}
	s.rng.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
	for _, p := range places {
		if spoil(p.l, p.i) {
			return p.l.id
		}
	}
	return ""
}

// after returns the response to a call made right after the i-th event of a task, before any other call on it; ok is
// false if there was no such moment.
func (l *life) after(i int) (r Record, ok bool) {
	at := &l.events[i]
	for j := range l.events {
		e := &l.events[j]
		switch {
		case e.Code == Unknown:
		case e.Index > at.Index && e.CallNS > at.ReturnNS+10:
		case e.Index < at.Index && e.ReturnNS <= at.ReturnNS:
		case j == i || e.Index == at.Index && e.ReturnNS <= at.ReturnNS && e.TimeUS <= at.TimeUS && j < i:
		default:
			return r, false
		}
	}
	return Record{Client: 900, Seq: i, CallNS: at.ReturnNS + 1, ReturnNS: at.ReturnNS + 2, Task: l.id,
		Answer: Answer{Code: OK, Shard: at.Shard, Index: at.Index + 1, TimeUS: at.TimeUS + 1}}, true
}

// stateAt returns the state before and after the i-th event.
func (l *life) stateAt(i int) (before, after state) {
	after = beginning()
	for j := 0; j <= i; j++ {
		before = after
		after, _ = after.step(&l.events[j])
	}
	return before, after
}

// put adds a record right after the i-th event of a task.
func put(s *scene, l *life, i int, change func(r *Record)) bool {
	r, ok := l.after(i)
	if ok {
		change(&r)
		s.records = append(s.records, r)
	}
	return ok
}

// liveClaim reports whether the i-th event is a claim that stays live for a moment.
func (l *life) liveClaim(i int) bool {
	e := &l.events[i]
	return e.Op == Claim && e.Code == OK && !e.Retried && e.LeaseUntilUS > e.TimeUS+10
}

// next returns the next accepted event of the task with an op.
func (l *life) next(i int, op Op) *event {
	for j := i + 1; j < len(l.events); j++ {
		if e := &l.events[j]; e.Op == op && e.Code == OK {
			return e
		}
	}
	return nil
}

func (l *life) has(ops ...Op) bool {
	return slices.ContainsFunc(l.events, func(e event) bool { return slices.Contains(ops, e.Op) })
}

// calmTokens reports whether none of the task's unanswered calls has one of the tokens or could have moved the task otherwise.
func (l *life) calmTokens(tokens ...string) bool {
	return !slices.ContainsFunc(l.events, func(e event) bool {
		return e.Code == Unknown && (slices.Contains(tokens, e.Token) || e.Token == "" && e.Op != Enqueue)
	})
}

// elsewhere returns a record of an unknown task.
func (s *scene) elsewhere(op Op) Record {
	last := s.final[len(s.final)-1]
	last.Op, last.Task, last.CallNS, last.ReturnNS = op, "ghost", last.ReturnNS+1, last.ReturnNS+2
	last.Index, last.Payload, last.State, last.Fence, last.Attempt = last.Index+1, 77, "", 0, 0
	return last
}

func (s *scene) finalOf(task string) *Record {
	i := slices.IndexFunc(s.final, func(r Record) bool { return r.Task == task })
	return &s.final[i]
}

// on spoils an accepted call of a kind.
func on(op Op, spoil func(s *scene, l *life, i int) bool) func(*scene) string {
	return func(s *scene) string {
		return somewhere(s, s.whole, func(l *life, i int) bool {
			e := &l.events[i]
			return e.Op == op && e.Code == OK && spoil(s, l, i)
		})
	}
}

func TestAnomalies(t *testing.T) {
	t.Logf("%-34s %-5s %8s %8s %8s", "anomaly", "", "check", "stream", "exact")
	for _, a := range anomalies {
		var found, check, stream, exact int
		for seed := uint64(1); found < seeds && seed < 4*uint64(seeds); seed++ {
			s := newScene(a.kind, seed)
			task := a.spoil(s)
			if task == "" {
				continue
			}
			found++
			s.o.Sample = -1 // the search is tested separately
			whole := Check(s.records, s.o)
			if sees(whole, task, "") {
				check++
			}
			if byLog(s, task, a.rule) {
				stream++
			}
			if sees(bySearch(s), task, "") {
				exact++
			}
			if !sees(whole, task, "") {
				t.Errorf("%s: seed %d, task %s: not detected: %s", a.name, seed, task, whole)
			}
		}
		number, _, _ := strings.Cut(string(a.rule), " ")
		t.Logf("%-34s %-5s %5d/%d %5d/%d %5d/%d", a.name, number, check, found, stream, found, exact, found)
		if found < seeds {
			t.Errorf("%s: only %d histories allow it", a.name, found)
		}
		if a.stream && stream < found || a.exact && exact < found {
			t.Errorf("%s: detected by the log in %d, by search in %d, of %d histories", a.name, stream, exact, found)
		}
	}
}

// sees reports whether a report has a violation for a task, and of a rule if one is given.
func sees(r *Report, task string, rule Invariant) bool {
	return slices.ContainsFunc(r.Violations, func(v Violation) bool {
		return (v.Task == task || task == "anywhere") && (rule == "" || v.Rule == rule)
	})
}

// byLog checks by replay, and reports whether it detected the anomaly. Where calls shared an entry in a way that the
// replay could not resolve, the task is searched with the log, which may describe the violation differently.
func byLog(s *scene, task string, rule Invariant) bool {
	b := newBook(s.records, s.o)
	b.facts()
	b.resolve()
	open := b.open()
	b.replay()
	b.sweep()
	left := slices.DeleteFunc(b.open(), func(l *life) bool { return slices.Contains(open, l) })
	if b.search(left, true); slices.ContainsFunc(left, func(l *life) bool { return l.id == task }) {
		rule = ""
	}
	return sees(b.sum(), task, rule)
}

// bySearch checks only by searches without the log.
func bySearch(s *scene) *Report {
	b := newBook(s.records, s.o)
	b.resolve()
	b.sweep()
	b.report = Report{}
	b.search(b.lives, false)
	return b.sum()
}

// TestReport: a finding can be understood from the report alone.
func TestReport(t *testing.T) {
	r := Check(timed(enqueue(), claim(1, until(3)), claim(2), call(Ack, token(1))), Options{Sample: -1})
	const want = `4 calls, 1 tasks: 1 replayed, 0 searched, 0 searched as a sample; 1 violations, 0 undecided
I3 a stale token changes nothing: task "t": accepted, and the token is not that of the current claim
	3.000000-3.100000 client 1 #2 claim t fence=2 token=token2 payload=7 claim_key=k2: ok attempt=2 until_us=100000000 at 1/3 3000000 us
	4.000000-4.100000 client 1 #3 ack t token=token1: ok at 1/4 4000000 us`
	if got := r.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestClock: shard time that is an hour off the wall clock is detected.
func TestClock(t *testing.T) {
	w := run(1, worlds["calm"])
	o := w.options()
	o.Began, o.ClockBound = time.UnixMicro(w.began), 10*time.Millisecond
	if r := Check(w.records, o); !r.OK() {
		t.Fatalf("the history with the right time was rejected: %s", r)
	}
	o.Began = o.Began.Add(time.Hour)
	if r := Check(w.records, o); !sees(r, "anywhere", Early) {
		t.Fatalf("shard time that is an hour off was not detected: %s", r)
	}
}

// TestUndecided: a history that can't be decided is not a success.
func TestUndecided(t *testing.T) {
	records := timed(enqueue())
	for i := range maxUnknown + 1 {
		records = append(records, Record{Seq: i, CallNS: int64(i+3) * 1e9, Op: []Op{Cancel, Retry, Discard}[i%3], Task: "t",
			Answer: Answer{Code: Unknown}})
	}
	if r := Check(records, Options{}); r.OK() || len(r.Undecided) != 1 {
		t.Errorf("a history with %d unanswered calls must be undecided: %s", maxUnknown+1, r)
	}
	records = records[:maxUnknown] // one fewer, for the lapse that the search may add
	if r := Check(records, Options{}); !r.OK() {
		t.Errorf("a history with %d unanswered calls must pass: %s", maxUnknown, r)
	}
	end := timed(call(Get, in("poisoned"), at(99, 99), func(r *Record) { r.CallNS, r.ReturnNS = 99e9, 99e9 }))
	if r := Check(records, Options{Final: end, Timeout: time.Millisecond}); r.OK() || len(r.Undecided) != 1 {
		t.Errorf("a search limited to a millisecond must be undecided: %s", r)
	}
	began := time.Now()
	if r := Check(records[:12], Options{Final: end}); r.OK() || r.Found != 1 {
		t.Errorf("a search without a limit must find a violation: %s", r)
	}
	t.Logf("an illegal history with 11 unanswered calls took %v", time.Since(began))
}
