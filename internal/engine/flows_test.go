package engine

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// crew is a set of workers that together run a number of tasks at the same time, each for as long as its key defines.
type crew struct {
	*World
	slots   int
	lasts   map[string]time.Duration
	running []job
	used    map[string]time.Duration // workers' time, by key
	started map[string]int
}

type job struct {
	Hold
	key  string
	ends store.Time
}

func newCrew(t *testing.T, slots int, lasts map[string]time.Duration) *crew {
	c := &crew{World: NewWorld(t), slots: slots, lasts: lasts, used: map[string]time.Duration{}, started: map[string]int{}}
	c.PutQueue("default", task.DefaultSettings(), false)
	return c
}

// add enqueues tasks of a key.
func (c *crew) add(key string, n int) {
	for range n {
		if _, err := c.Enqueue(task.Spec{Type: "job", Queue: "default", Key: key}); err != nil {
			c.T.Fatal(err)
		}
	}
}

// work advances time in steps.
func (c *crew) work(d, step time.Duration) {
	for end := c.Now.Add(d); c.Now < end; c.Pass(step) {
		left := c.running[:0]
		for _, j := range c.running {
			if j.ends > c.Now {
				left = append(left, j)
				continue
			}
			if _, err := Run(c.World, func(r *Round) (Settled, error) { return Ack(r, j.Hold, schema.Result{}) }); err != nil {
				c.T.Fatal(err)
			}
		}
		c.running = left
		for _, t := range c.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: c.slots - len(c.running), Lease: time.Hour}) {
			c.started[t.Key]++
			c.used[t.Key] += c.lasts[t.Key]
			c.running = append(c.running, job{Hold{Namespace: "default", ID: t.ID, Token: t.Token}, t.Key, c.Now.Add(c.lasts[t.Key])})
		}
	}
}

// Keys that always have tasks share the workers' time by their weights, however long their tasks run.
func TestFairness(t *testing.T) {
	for _, c := range []struct {
		slots  int
		lasts  map[string]time.Duration
		shares map[string]float64
	}{
		{10, map[string]time.Duration{"a": time.Second, "b": time.Second}, map[string]float64{"a": 0.5, "b": 0.5}},
		{10, map[string]time.Duration{"a": 10 * time.Second, "b": time.Second}, map[string]float64{"a": 0.5, "b": 0.5}},
		{1, map[string]time.Duration{"a": 5 * time.Second, "b": time.Second, "": time.Second}, map[string]float64{"a": 1. / 3,
			"b": 1. / 3, "": 1. / 3}},
		{8, map[string]time.Duration{"vip": time.Second, "b": time.Second}, map[string]float64{"vip": 0.75, "b": 0.25}},
		{1, map[string]time.Duration{"vip": time.Second, "b": 4 * time.Second}, map[string]float64{"vip": 0.75, "b": 0.25}},
	} {
		t.Run(fmt.Sprintf("%d %v", c.slots, c.lasts), func(t *testing.T) {
			w := newCrew(t, c.slots, c.lasts)
			s := task.DefaultSettings()
			s.Keys = map[string]task.KeyRules{"vip": {Weight: 3}}
			w.PutQueue("default", s, false)
			for key := range c.lasts {
				w.add(key, 600)
			}
			w.work(100*time.Second, 500*time.Millisecond)
			if err := w.Check(); err != nil {
				t.Fatal(err)
			}
			all := time.Duration(0)
			for _, used := range w.used {
				all += used
			}
			for key, share := range c.shares {
				if got := w.used[key].Seconds() / all.Seconds(); math.Abs(got-share) > 0.05 {
					t.Errorf("key %q got %.2f of the time, want %.2f: %v by %v tasks", key, got, share, w.used, w.started)
				}
			}
		})
	}
}

// The first task of a new key goes before the waiting tasks of others, but the key gets no credit for its absence: when
// it has many tasks, the others still get their share.
func TestNewKeyGoesFirst(t *testing.T) {
	w := newCrew(t, 4, map[string]time.Duration{"a": 2 * time.Second, "b": 2 * time.Second})
	w.add("a", 2000)
	w.work(10*time.Minute, 2*time.Second)
	w.add("b", 500)
	before := w.started["a"]
	w.work(2*time.Second, 2*time.Second)
	if w.started["b"] == 0 {
		t.Error("the new key did not get the first turn")
	}
	w.work(100*time.Second, 2*time.Second)
	if a, b := w.started["a"]-before, w.started["b"]; a < 9*b/10 || b < 9*a/10 {
		t.Errorf("after that, %d and %d tasks were started, want about the same number", a, b)
	}
}

// Nor does it get credit while long tasks run, whether others wait behind them or not.
func TestNewKeyWhileOthersRun(t *testing.T) {
	for _, behind := range []int{0, 8} {
		w := newCrew(t, 4, map[string]time.Duration{"a": 500 * time.Second, "b": time.Second})
		w.add("a", 4+behind)
		w.work(450*time.Second, 10*time.Second)
		w.add("b", 2000)
		w.work(10*time.Second, time.Second)
		w.add("a", 8)
		w.work(240*time.Second, time.Second)
		if w.started["a"] <= 4 || w.started["b"] == 0 {
			t.Errorf("with %d tasks waiting behind the long ones, started %v", behind, w.started)
		}
	}
}

// Keys take turns in order of arrival, and an idle one is forgotten.
func TestManyKeys(t *testing.T) {
	const keys = 2000
	w := newCrew(t, 50, map[string]time.Duration{})
	for i := range keys {
		w.add(fmt.Sprint("k", i), 2)
	}
	w.work(time.Duration(keys/50)*time.Second, time.Second)
	for i := range keys {
		if n := w.started[fmt.Sprint("k", i)]; n != 1 {
			t.Fatalf("key %d had %d turns, want one", i, n)
		}
	}
	w.work(time.Duration(keys/50+2)*time.Second, time.Second)
	if n := w.Leader.queues[queueName{"default", "default"}].lanes.Memory().Flows; n != 0 {
		t.Errorf("%d keys are in memory after all tasks ended", n)
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
}
