package waiting

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pawlq/pawl/internal/engine"
)

const ns = "default"

// call returns a claim of some queues.
func call(queues ...string) engine.ClaimRequest {
	c := engine.ClaimRequest{Namespace: ns}
	for _, q := range queues {
		c.Queues = append(c.Queues, engine.Share{Queue: q})
	}
	return c
}

// A claim that its caller gave up while its call was on the way is not parked.
func TestGoneClaimIsNotParked(t *testing.T) {
	var c Claims
	gone := New(call("q"))
	if !c.Leave(gone) {
		t.Error("a waiter could not leave")
	}
	if c.Park(gone); c.Some() {
		t.Error("the claim of a caller that left is parked")
	}
	if c.Leave(gone) {
		t.Error("a waiter left twice")
	}
}

// Waiters leave from the middle of their lists, and each list with its last one.
func TestWaitersLeave(t *testing.T) {
	var c Claims
	var all []*Claim
	for i := range 6 {
		w := New(call([]string{"q", "r"}[i%2:]...))
		all = append(all, w)
		c.Park(w)
	}
	at := func(name string) (order []uint64) {
		if l := c.queues[queueKey{ns, name}][""]; l != nil {
			for e := l.Front(); e != nil; e = e.Next() {
				order = append(order, e.Value.(*Claim).arrival)
			}
		}
		return order
	}
	c.Leave(all[2])
	c.Remove(all[1]) // it is served
	if got := fmt.Sprint(at("q"), at("r")); got != "[1 5] [1 4 5 6]" {
		t.Errorf("after the second and the third left, %s wait", got)
	}
	for _, i := range []int{0, 4} {
		c.Leave(all[i])
	}
	if len(c.queues) != 1 || c.waits(queueKey{ns, "q"}, "") || !c.waits(queueKey{ns, "r"}, "") {
		t.Errorf("%d queues have waiters: %v", len(c.queues), at("r"))
	}
	c.RetryAll()
	for i, w := range all {
		if again := len(w.again) > 0; again != slices.Contains([]int{3, 5}, i) || w.places != nil {
			t.Errorf("waiter %d is to claim again: %t", i, again)
		}
	}
	if c.Leave(all[5]); c.Some() {
		t.Error("waiters are left")
	}
}

// A claim is answered once, and not after its caller has left.
func TestDeliver(t *testing.T) {
	var c Claims
	gone, served := New(call("q")), New(call("q"))
	c.Leave(gone)
	if gone.Deliver(Delivery{}) || len(gone.out) > 0 {
		t.Error("a claim was answered after its caller had left")
	}
	if !served.Deliver(Delivery{}) || len(served.out) != 1 || served.Deliver(Delivery{}) || c.Leave(served) {
		t.Error("a claim that was answered once was answered again, or its caller could leave")
	}
}
