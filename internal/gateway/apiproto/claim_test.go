package apiproto

import (
	"testing"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// The size of a claim in a message includes its headers, its tags and the result that it follows, and claims that don't
// fit wait for the next message.
func TestClaimsFitIntoMessages(t *testing.T) {
	c := broker.Claimed{Envelope: &schema.Envelope{Payload: make([]byte, 100), IdempotencyKey: "123",
		Headers: map[string]string{"ab": "cde"}, Tags: []string{"ab", "c"}, Parent: &task.Parent{Result: make([]byte, 70)}},
		Checkpoint: make([]byte, 50)}
	if got := sizeOf(&c); got != 1024+100+50+3+13+6+5+70 {
		t.Errorf("sizeOf = %d bytes", got)
	}
	of := func(sizes ...int) (list []broker.Claimed) {
		for _, n := range sizes {
			list = append(list, broker.Claimed{Envelope: &schema.Envelope{Payload: make([]byte, n-1024)}})
		}
		return list
	}
	for _, x := range []struct {
		claims []broker.Claimed
		want   int
	}{{nil, 0}, {of(maxFrame + 1), 1}, {of(maxFrame-2000, 2000), 2}, {of(maxFrame-2000, 2001), 1}, {of(maxFrame+1, 2000), 1},
		{of(2000, 2000, maxFrame), 2}} {
		if got, _ := Fitting(x.claims); got != x.want {
			t.Errorf("%d of %d claims fit, want %d", got, len(x.claims), x.want)
		}
	}
}
