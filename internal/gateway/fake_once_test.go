package gateway

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// Once has one key of each kind: "held" is held, "done" has a result, and any other is granted to the caller.
func (f *fake) Once(_ context.Context, c broker.OnceCall) (a broker.OnceAnswer, at broker.Stamp, err error) {
	shard := c.Hold.ID.Shard()
	if err := f.begin(shard); err != nil {
		return a, at, err
	}
	defer f.mu.Unlock()
	t := f.tasks[c.Hold.ID]
	switch {
	case t == nil:
		return a, at, task.NotFound("task", c.Hold.ID.String())
	case c.Verb == broker.OnceFinish && c.Key == "held":
		return a, at, &task.Error{Code: task.CodeStaleClaim, Reason: task.StaleReclaimed, Holder: "w2", Message: "it is held by another"}
	case c.Key == "done":
		a = broker.OnceAnswer{State: broker.OnceDone, Result: []byte(`{"id":7}`), Until: f.now().Add(time.Hour)}
	case c.Verb == broker.OnceFinish:
		a = broker.OnceAnswer{State: broker.OnceDone, Result: c.Result, Until: f.now().Add(c.TTL)}
	case c.Verb == broker.OnceAbandon:
		a.State = broker.OnceFree
	case c.Key == "held":
		a = broker.OnceAnswer{State: broker.OnceHeld, Holder: broker.OnceHolder{ID: c.Hold.ID, Fence: 3, Worker: "w2"},
			RetryAfter: 250 * time.Millisecond}
	default:
		a.State = broker.OnceRun
	}
	return a, f.stamp(shard), nil
}
