package engine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// A change of a queue's settings touches only the buckets whose rates change: a queue may have a million.
func TestSettingsTouchChangedRatesOnly(t *testing.T) {
	w := NewWorld(t)
	c := task.QueueConfig{Settings: task.DefaultSettings()}
	rate := func(n int) task.Rate { return task.Rate{Limit: n, Period: time.Hour} }
	c.Settings.Rate, c.Settings.PerKey.Rate = rate(100), rate(5)
	c.Settings.Keys = map[string]task.KeyRules{"own": {Rules: task.Rules{Rate: rate(7)}}, "weighs": {Rules: task.Rules{Rate: rate(5)},
		Weight: 2}}
	w.Configure("default", c)
	keys := []string{"a", "b", "own", "weighs"}
	for _, key := range keys {
		spec := oneJob()
		spec.Key = key
		if _, err := w.Enqueue(spec); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 9}); len(got) != len(keys) {
		t.Fatalf("claimed %d tasks, want one of each key", len(got))
	}
	uses := func() (rows [][]byte) {
		w.Round(func(r *Round) {
			for _, key := range append(keys, "") {
				row, _ := r.Tx().Get(schema.UseKey("default", "default", key))
				rows = append(rows, bytes.Clone(row))
			}
		})
		return rows
	}
	for _, change := range []struct {
		what    string
		set     func()
		touched string
	}{
		{"a pause", func() { c.Paused = true }, ""},
		{"the maximum of a key", func() { c.Settings.PerKey.MaxRunning = 4 }, ""},
		{"the rate of the queue", func() { c.Settings.Rate = rate(99) }, "[]"},
		{"the rate of one key", func() { c.Settings.Keys["own"] = task.KeyRules{Rules: task.Rules{Rate: rate(8)}} }, "[own]"},
		{"a key that gets a rate of its own", func() { c.Settings.Keys["a"] = task.KeyRules{Rules: task.Rules{Rate: rate(4)}} }, "[a]"},
		{"a key that gets the rate of all", func() { delete(c.Settings.Keys, "weighs") }, ""},
		{"a key that loses its rate", func() { delete(c.Settings.Keys, "own") }, "[own]"},
		{"the rate of all keys", func() { c.Settings.PerKey.Rate = rate(6) }, "[b][own][weighs]"},
	} {
		was := uses()
		w.Now = w.Now.Add(time.Second)
		settings := c.Settings
		settings.Keys = map[string]task.KeyRules{}
		for key, rules := range c.Settings.Keys {
			settings.Keys[key] = rules
		}
		c.Settings = settings
		change.set()
		w.Configure("default", c)
		touched := ""
		for i, row := range uses() {
			if !bytes.Equal(row, was[i]) {
				touched += fmt.Sprint(append(keys, "")[i : i+1])
			}
		}
		if touched != change.touched {
			t.Errorf("%s touched the buckets %q, want %q", change.what, touched, change.touched)
		}
		if err := w.Check(); err != nil {
			t.Errorf("%s: %v", change.what, err)
		}
	}
}

// Tokens that a key has taken stay taken after a change of leader, even if the key runs more tasks than its row lists.
func TestTokensOfManyClaimsSurviveElection(t *testing.T) {
	const most = 2 * limit.MaxNamed
	w := NewWorld(t)
	s := task.DefaultSettings()
	s.PerKey.Rate = task.Rate{Limit: most, Period: time.Hour}
	w.PutQueue("default", s, false)
	for range most + 3 {
		spec := oneJob()
		spec.Key = "a"
		if _, err := w.Enqueue(spec); err != nil {
			t.Fatal(err)
		}
	}
	claim := ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 1, Lease: time.Hour}
	for n := range most {
		if len(w.Claim(claim)) != 1 {
			t.Fatalf("no task was claimed although only %d of %d tokens were taken", n, most)
		}
		w.BecomeLeader()
	}
	if got := w.Claim(claim); len(got) != 0 {
		t.Errorf("a task was claimed although its key has no token")
	}
}
