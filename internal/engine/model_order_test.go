package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// TestModelOfOrder is TestModel in queues with strict key order, most of the time.
func TestModelOfOrder(t *testing.T) {
	runModel(t, []string{"a", "c"}, modelSteps, func(d *duel) []func() string {
		return []func() string{d.enqueueStep, d.enqueueStep, d.claimStep, d.claimStep, d.claimStep, d.settleStep, d.settleStep,
			d.passStep, d.cancelStep, d.retryStep, d.leaderStep, d.orderStep, d.groupStep}
	})
}

func (d *duel) keyOrder() task.KeyOrder {
	return []task.KeyOrder{task.KeyOrderNone, task.KeyOrderStrict}[d.rng.IntN(2)]
}

// orderStep changes the order of a queue's keys, more often to strict.
func (d *duel) orderStep() string {
	q := d.pick(d.queues...)
	c := d.m.rules[q]
	c.Settings.KeyOrder = task.KeyOrderStrict
	if d.rng.IntN(4) == 0 {
		c.Settings.KeyOrder = task.KeyOrderNone
	}
	d.rule(q, c)
	return "order"
}

// lineUp assigns places to tasks: in the order of the key when a task begins, and in its lane when it has become the
// first. It must be called after each event.
func (m *model) lineUp() {
	created := map[*modelTask]bool{} // in this step: a task that replaces another has its place
	for _, t := range m.tasks {
		switch {
		case t.state.Ended():
			t.order, t.begun = 0, false
		case !t.begun:
			created[t] = true
			if t.begun = true; m.rules[t.queue].Settings.KeyOrder == task.KeyOrderStrict && t.key != "" {
				m.places++
				t.order = m.places
			}
		}
	}
	for _, t := range m.tasks {
		first := t.order != 0 && t.state == task.Ready && m.before(t) == nil
		if first && !t.inLine && !created[t] {
			m.places++
			t.place = m.places
		}
		t.inLine = first
	}
}

// before returns the first task of a key's order, unless it is t itself.
func (m *model) before(t *modelTask) (first *modelTask) {
	for _, o := range m.tasks {
		if o.queue == t.queue && o.key == t.key && o.order != 0 && o.order < t.order && (first == nil || o.order < first.order) {
			first = o
		}
	}
	return first
}

// waitsInOrder reports whether a ready task must not run because of others of its key. Holding is how many of those are claimed and do
// not yield.
func (m *model) waitsInOrder(t *modelTask, holding int) bool {
	if t.key == "" {
		return false
	}
	return t.order != 0 && m.before(t) != nil || m.rules[t.queue].Settings.KeyOrder == task.KeyOrderStrict && holding > 0
}

// keyed tracks the tasks of ordered keys, from the answers only.
type keyed struct {
	live    map[task.ID]task.Token // claimed
	batch   map[task.ID]int        // by which claim
	yields  map[task.ID]bool       // whether that yields
	passed  int                    // tasks that were claimed while others of the key yielded
	order   map[string][]task.ID   // of each key, those that have not ended
	claims  int
	started int
}

// TestOrderOfKeys checks strict order with random lives of tasks: the tasks of a key start in the order in which they
// were enqueued, each when its predecessors have ended, through failures, snoozes, releases, lost leases and new
// leaders. Only a claim that asks for runs gets several, in order; and while such a run lasts, no other claim gets a
// task of the key, unless the run yields: then one gets an earlier task that has come back.
func TestOrderOfKeys(t *testing.T) {
	passed := 0
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if seed%2 > 0 {
				engine.KeepWarm(t, 2, 2)
				engine.ShortLines(t)
			}
			w, rng := engine.NewWorld(t), rand.New(rand.NewPCG(seed, 1))
			s := task.DefaultSettings()
			s.KeyOrder, s.MaxAttempts = task.KeyOrderStrict, 3
			w.PutQueue("default", s, false)
			k := &keyed{live: map[task.ID]task.Token{}, batch: map[task.ID]int{}, yields: map[task.ID]bool{}, order: map[string][]task.ID{}}
			for range 1500 {
				k.step(w, rng)
				if rng.IntN(25) == 0 {
					if err := w.Check(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if k.started < 200 {
				t.Errorf("only %d tasks were started, want at least 200", k.started)
			}
			passed += k.passed
		})
	}
	if passed < 12 {
		t.Errorf("%d tasks were claimed while later ones of their keys were, want at least one for each seed on average", passed)
	}
}

func (k *keyed) step(w *engine.World, rng *rand.Rand) {
	switch n := rng.IntN(20); {
	case n < 6:
		s := task.Spec{Type: []string{"x", "y"}[rng.IntN(2)], Queue: "default", Key: fmt.Sprint("k", rng.IntN(5)),
			Priority: task.Priorities[rng.IntN(3)], Retry: &task.Retry{Initial: 5 * time.Second, Factor: 2, Max: time.Minute}}
		if rng.IntN(4) == 0 {
			s.Delay = time.Duration(rng.IntN(20)) * time.Second
		}
		a, err := w.Enqueue(s)
		if err != nil {
			w.T.Fatal(err)
		}
		k.order[s.Key] = append(k.order[s.Key], a.ID)
	case n < 11:
		k.claim(w, rng)
	case n < 16:
		k.settle(w, rng)
	case n < 17:
		k.forgetLost(w)
		for _, ids := range k.order { // any
			if len(ids) > 0 {
				_, _ = engine.Run(w, func(r *engine.Round) (struct{}, error) {
					return struct{}{}, engine.Cancel(r, "default", ids[rng.IntN(len(ids))])
				})
				break
			}
		}
	case n < 18:
		w.BecomeLeader()
	default:
		w.Pass(time.Duration(rng.IntN(20)) * time.Second)
	}
}

func (k *keyed) claim(w *engine.World, rng *rand.Rand) {
	runs := rng.IntN(2) == 0
	c := engine.ClaimRequest{Queues: []engine.Share{{Queue: "default"}}, Max: 1 + rng.IntN(6), Runs: runs, Yields: rng.IntN(2) == 0,
		Lease: time.Duration(5+rng.IntN(30)) * time.Second}
	if rng.IntN(3) == 0 {
		c.Types = []string{"x"}
	}
	k.forgetLost(w)
	k.claims++
	given := w.Claim(c)
	if len(given) > c.Max {
		w.T.Fatalf("a claim of at most %d tasks got %d", c.Max, len(given))
	}
	for _, got := range given {
		k.started++
		for _, id := range k.order[got.Key] {
			_, claimed := k.live[id]
			if claimed && (!runs || k.batch[id] != k.claims) {
				w.T.Fatalf("task %s was claimed while another call holds %s of its key %q", got.ID, id, got.Key)
			}
			if id == got.ID {
				break
			}
			if !claimed {
				w.T.Fatalf("task %s was claimed before %s of its key %q, which has not ended", got.ID, id, got.Key)
			}
		}
		for id := range k.live {
			if !slices.Contains(k.order[got.Key], id) || k.batch[id] == k.claims {
				continue
			}
			if !k.yields[id] {
				w.T.Fatalf("task %s was claimed while another call holds %s of its key %q", got.ID, id, got.Key)
			}
			k.passed++
		}
		k.live[got.ID], k.batch[got.ID], k.yields[got.ID] = got.Token, k.claims, c.Yields
	}
}

func (k *keyed) settle(w *engine.World, rng *rand.Rand) {
	k.forgetLost(w)
	for id, token := range k.live { // any
		h := engine.Hold{Namespace: "default", ID: id, Token: token}
		_, err := engine.Run(w, func(r *engine.Round) (engine.Settled, error) {
			switch rng.IntN(6) {
			case 0:
				return engine.Fail(r, h, engine.FailRequest{})
			case 1:
				return engine.Release(r, h, 0)
			case 2:
				return engine.Release(r, h, 3*time.Second)
			}
			return engine.Ack(r, h, schema.Result{})
		})
		if err != nil {
			w.T.Fatal(err)
		}
		return
	}
}

// forgetLost updates from the rows which tasks are still claimed and which have ended. Each step that uses either must call it.
func (k *keyed) forgetLost(w *engine.World) {
	execs := map[task.ID]*schema.Exec{}
	eachExec(w, func(id task.ID, x *schema.Exec) { execs[id] = x })
	for id, token := range k.live {
		if x := execs[id]; x == nil || x.State != task.Claimed || x.Fence != token.Fence {
			delete(k.live, id)
		}
	}
	for key, ids := range k.order {
		k.order[key] = slices.DeleteFunc(ids, func(id task.ID) bool { return execs[id] == nil || execs[id].State.Ended() })
	}
}

// The model agrees when keys are cold, and leaders begin with one lane of each priority.
func TestModelOfOrderCold(t *testing.T) {
	for _, c := range []struct{ warm, lanes int }{{0, 1}, {2, 2}} {
		t.Run(fmt.Sprintf("%d warm, %d read at once", c.warm, c.lanes), func(t *testing.T) {
			engine.KeepWarm(t, c.warm, c.lanes)
			engine.ShortLines(t)
			runModel(t, duelQueues, modelSteps/2, func(d *duel) []func() string {
				return append(d.verbs(), d.leaderStep, d.manyStep, d.orderStep, d.orderStep)
			})
		})
	}
}
