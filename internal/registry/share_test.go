package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Claimers with made-up names in one namespace hide no worker of another, and a namespace that is alone may use all places.
func TestNamespacesLeaveRoomForWorkers(t *testing.T) {
	r := New()
	come := func(ns, name string) *Worker {
		w := r.Begin(Hello{Namespace: ns, Name: name, Queues: []Share{{Queue: "q"}}})
		w.Done()
		return w
	}
	count := func(ns string) int { return len(r.List(Query{Namespace: ns, Limit: 2 * maxClaimers}).Workers) }
	for n := range maxClaimers + 10 {
		come("greedy", fmt.Sprint("w", n))
	}
	if n := count("greedy"); n != maxClaimers {
		t.Fatalf("%d workers are listed, want %d", n, maxClaimers)
	}
	for n := range 3 {
		come("modest", fmt.Sprint("w", n))
	}
	come("greedy", "another")
	if g, m := count("greedy"), count("modest"); g != maxClaimers-3 || m != 3 {
		t.Errorf("%d and %d workers are listed, want %d and 3", g, m, maxClaimers-3)
	}
	for n := range maxClaimers {
		come("second", fmt.Sprint("w", n))
	}
	g, s := count("greedy"), count("second")
	if m := count("modest"); m != 3 || g+s != maxClaimers-3 || max(g, s)-min(g, s) > 1 {
		t.Errorf("%d, %d and %d workers are listed, want two halves and 3", g, s, m)
	}
}

// The claims of one namespace leave room for those of another, and are dropped with claimers that are no longer listed.
func TestNamespacesLeaveRoomForClaims(t *testing.T) {
	r := New()
	last := 0
	take := func(ns, name string, tasks int) {
		w := r.Begin(Hello{Namespace: ns, Name: name})
		defer w.Done()
		for range tasks {
			last++
			w.Took([]Run{{Task: task.ID{byte(last >> 16), byte(last >> 8), byte(last)}, LeaseUntil: w.since.Add(time.Hour)}}, w.since)
		}
	}
	known := func(what string, want int) {
		t.Helper()
		if n := len(r.heldBy); n != want {
			t.Errorf("%s: %d claims are known, want %d", what, n, want)
		}
	}
	take("greedy", "w", maxHeld)
	known("of one namespace", maxHeldOf)
	take("modest", "w", 1)
	known("of two", maxHeldOf+1)
	take("modest", "w", maxHeldOf-1)
	take("third", "w", 1)
	known("of three", maxHeld)

	r, last = New(), 0
	for n := range maxClaimers + 10 {
		take("greedy", fmt.Sprint("w", n), 1)
	}
	known("of all who have a place", maxClaimers)
	for n := range 3 {
		take("modest", fmt.Sprint("w", n), 0)
	}
	known("of all but those who lost theirs", maxClaimers-3)
	if n := r.heldOf["greedy"]; n != maxClaimers-3 {
		t.Errorf("%d claims are counted for the namespace", n)
	}
}
