package engine_test

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// modelBreaker models the breaker of one type: the list of all outcomes while it was closed, or its state since it opened.
type modelBreaker struct {
	ended []modelEnd

	opened, passed int
	probing        bool
	probe          *modelTask
	until          store.Time
}

type modelEnd struct {
	at     store.Time
	failed bool
}

func (m *model) breaker(t *modelTask) (*modelBreaker, task.Breaker) {
	rules := m.rules[t.queue].Settings
	return m.broken[[2]string{t.queue, t.typ}], rules.BreakerOf(t.typ)
}

// breaks reports whether the breaker of a task's type holds all its tasks.
func (m *model) breaks(t *modelTask) bool {
	b, _ := m.breaker(t)
	return b != nil && b.opened > 0 && (!b.probing || b.probe != nil)
}

// onTrial reports whether only one task of the type may run.
func (m *model) onTrial(t *modelTask) bool {
	b, _ := m.breaker(t)
	return b != nil && b.probing && b.probe == nil
}

// line identifies the tasks among which a task waits for its turn: those of its key, or of its type if that is on trial.
func (m *model) line(t *modelTask) [2]string {
	if m.onTrial(t) {
		return [2]string{t.key, t.typ}
	}
	return [2]string{t.key}
}

func (m *model) probe(t *modelTask) {
	if m.onTrial(t) {
		b, _ := m.breaker(t)
		b.probe, b.until = t, 0
	}
}

func (m *model) judgeIfProbe(t *modelTask) {
	if b, _ := m.breaker(t); b != nil && b.probe == t {
		m.judge(t, modelNone)
	}
}

func (m *model) judge(t *modelTask, v modelVerdict) {
	at := [2]string{t.queue, t.typ}
	b, rule := m.breaker(t)
	switch {
	case !rule.IsSet():
	case b != nil && b.opened > 0 && b.probe == t:
		b.probe = nil
		switch {
		case v == modelFailure:
			m.open(b, rule)
		case v == modelSuccess && b.passed+1 >= rule.Probes:
			delete(m.broken, at)
		default:
			b.until = m.now.Add(24 * time.Hour)
			if v == modelSuccess {
				b.passed++
			}
		}
	case v == modelNone || b != nil && b.opened > 0:
	default:
		if b == nil {
			b = &modelBreaker{}
			m.broken[at] = b
		}
		b.ended = append(b.ended, modelEnd{m.now, v == modelFailure})
		m.openIfDue(b, rule)
	}
}

func (m *model) seen(b *modelBreaker, rule task.Breaker) (all modelTally) {
	tenth := func(at store.Time) int { return int(at.Sub(0) / (rule.Window / 10)) }
	for _, e := range b.ended {
		if tenth(e.at) > tenth(m.now)-10 {
			all.attempts++
			if e.failed {
				all.failed++
			}
		}
	}
	return all
}

func (m *model) openIfDue(b *modelBreaker, rule task.Breaker) {
	if all := m.seen(b, rule); all.attempts >= rule.MinAttempts &&
		float64(all.failed)/float64(all.attempts) >= float64(rule.FailureRate)/100 {
		m.open(b, rule)
	}
}

func (m *model) open(b *modelBreaker, rule task.Breaker) {
	*b = modelBreaker{opened: b.opened + 1}
	b.until = m.now.Add(rule.HoldAfter(b.opened))
}

// tryBefore ends the first hold that ends by now, if that is before a task is due.
func (m *model) tryBefore(t *modelTask, due, now store.Time) bool {
	var first *modelBreaker
	var name [2]string
	for of, b := range m.broken {
		if b.until != 0 && b.until <= now && (first == nil || b.until < first.until) {
			first, name = b, of
		}
	}
	if first == nil || t != nil && due <= first.until {
		return false
	}
	if first.probing {
		delete(m.broken, name)
	}
	first.probing = true
	first.until = first.until.Add(24 * time.Hour)
	return true
}

// ruleBreakers applies changed rules.
func (m *model) ruleBreakers(queue string, was, now *task.Settings) {
	for of, b := range m.broken {
		before, rule := was.BreakerOf(of[1]), now.BreakerOf(of[1])
		switch {
		case of[0] != queue || rule == before:
		case !rule.IsSet(), b.opened == 0 && rule.Window != before.Window, b.probing && b.passed >= rule.Probes:
			delete(m.broken, of)
		case b.opened == 0:
			m.openIfDue(b, rule)
		case !b.probing:
			b.until = max(b.until.Add(rule.HoldAfter(b.opened)-before.HoldAfter(b.opened)), m.now)
		}
	}
}

// breakerRules sets rules for the types that trigger often.
func (d *duel) breakerRules(s *task.Settings) {
	rule := func() (b task.Breaker) {
		if d.rng.IntN(4) > 0 {
			b = task.Breaker{FailureRate: 10 + d.rng.IntN(60), Window: time.Duration(1+d.rng.IntN(3)) * time.Minute,
				MinAttempts: 1 + d.rng.IntN(3), Hold: time.Duration(1+d.rng.IntN(20)) * time.Second, MaxHold: time.Minute,
				Probes: 1 + d.rng.IntN(3)}
		}
		return b
	}
	if s.Breaker = rule(); d.rng.IntN(2) == 0 {
		s.Breakers = map[string]task.Breaker{"y": rule()}
	}
}

func (d *duel) closeBreakerStep() string {
	queue, typ := d.pick(d.queues...), d.pick("x", "y", "")
	n, err := engine.Run(d.World, func(r *engine.Round) (int, error) {
		return engine.CloseBreakers(r, "default", queue, typ)
	})
	closed := 0
	for of, b := range d.m.broken {
		if of[0] == queue && (typ == "" || of[1] == typ) && b.opened > 0 {
			delete(d.m.broken, of)
			closed++
		}
	}
	if err != nil || n != closed {
		d.T.Fatalf("closed %d breakers of %q, %v, but the model closed %d", n, queue, err, closed)
	}
	return map[bool]string{true: "close a breaker", false: "close no breaker"}[n > 0]
}

// compareBreakers compares the breakers of all types with the model's.
func (d *duel) compareBreakers() error {
	for _, c := range d.Broke {
		d.seen[fmt.Sprintf("a breaker changes, by %q, open before: %t", c.Closed, c.Opened > 1)]++
	}
	d.Broke = nil
	for _, name := range d.queues {
		for _, typ := range []string{"x", "y"} {
			got, ok := d.BreakerMemory(name, typ)
			if !ok {
				continue
			}
			want := modelBreaker{}
			if m := d.m.broken[[2]string{name, typ}]; m != nil {
				want = *m
			}
			probe := task.ID{}
			if want.probe != nil {
				probe = want.probe.id
			}
			if got.Opened != want.opened || got.Passed != want.passed || got.Until != want.until || got.Probe != probe ||
				(got.State == breaker.Probing) != want.probing {
				return fmt.Errorf("breaker of %s/%s is %+v; the model has %+v", name, typ, got, want)
			}
			if seen := d.m.seen(&want, got.Rule); got.Rule.IsSet() && got.Opened == 0 && (got.Attempts != seen.attempts ||
				got.Failed != seen.failed) {
				return fmt.Errorf("breaker of %s/%s has seen %+v; the model %+v", name, typ, got, want.ended)
			}
			d.seen["breaker "+got.State.String()]++
		}
	}
	return nil
}

// trialSeen collects the explanations of the tasks of a type on trial.
type trialSeen struct {
	mayRun bool // nothing else holds back one of them
	probes int
}

func (d *duel) judgeTrial(trials map[string]*trialSeen, t *modelTask, held bool) {
	seen := trials[t.typ]
	if seen == nil {
		seen = &trialSeen{}
		trials[t.typ] = seen
	}
	mayRun := !d.m.held(t)
	seen.mayRun = seen.mayRun || mayRun
	if !held {
		if seen.probes++; !mayRun {
			d.T.Fatalf("%+v is explained as the probe, but the model holds it", t)
		}
	}
}

// modelTally counts attempts that ended, as far as they matter to a breaker.
type modelTally struct{ attempts, failed int }

// modelVerdict returns the verdict of an attempt.
type modelVerdict int

const (
	modelNone modelVerdict = iota
	modelSuccess
	modelFailure
)
