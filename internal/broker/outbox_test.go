package broker

import (
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/task"
)

// What is remembered of messages that are not taken is bounded, goes with them, and ends with the term.
func TestDeliveries(t *testing.T) {
	var e deliveries
	e.begin()
	messages, out := make([]*OutboxMessage, maxDeliveries+1), make([]Enqueued, maxDeliveries+1)
	kept := make([]int, len(messages))
	for i := range messages {
		messages[i] = &OutboxMessage{Request: task.ID{1, byte(i >> 8), byte(i)}} // #nosec G115 -- cut on purpose
		out[i].Err, kept[i] = errors.New("read tcp: reset"), i
	}
	out[1].Err = task.Unavailable(time.Second, "shard 7 has no leader")
	for range 3 {
		e.done(messages, out, kept)
	}
	for i, want := range map[int]explain.Delivery{0: {Tries: 3, Error: "its shard did not answer"}, 1: {Tries: 3, Error: "shard 7 has no leader"}, maxDeliveries: {}} {
		if got := e.of(messages[i].Request); got != want {
			t.Errorf("message %d: %+v, want %+v", i, got, want)
		}
	}
	e.done(messages[:2], out, []int{1})
	e.done(messages[maxDeliveries:], out, []int{0}) // there is room now
	for i, want := range map[int]int64{0: 0, 1: 4, maxDeliveries: 1} {
		if got := e.of(messages[i].Request).Tries; got != want {
			t.Errorf("then message %d has %d tries, want %d", i, got, want)
		}
	}
	if e.begin(); e.of(messages[1].Request) != (explain.Delivery{}) {
		t.Error("another term knows of tries")
	}
}
