package pawl

import (
	"context"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Task returns a task, or ErrNotFound if there is none.
func (c *Client) Task(ctx context.Context, id string) (*pawltype.Task, error) {
	return c.task(ctx, id, 0)
}

// Wait waits until the task has ended, however long that takes, or until ctx ends. It fails earlier only if the broker is unavailable for
// DialOptions.RetryFor. If the task ended other than by succeeding, Wait returns the task and an *EndedError.
func (c *Client) Wait(ctx context.Context, id string) (*pawltype.Task, error) {
	for try := 0; ; try++ {
		start := time.Now()
		t, err := c.task(ctx, id, rpc.WaitStep)
		if err != nil {
			return nil, err
		}
		if t.State == pawltype.StateSucceeded {
			return t, nil
		}
		if t.State.Ended() {
			return t, &pawltype.EndedError{Task: t}
		}
		if time.Since(start) >= time.Second {
			try = 0
		} else if err := c.core.Pause(ctx, try, rpc.ErrWaitCutShort); err != nil {
			return nil, fmt.Errorf("task %q: %w", id, err)
		}
	}
}

func (c *Client) task(ctx context.Context, id string, wait time.Duration) (*pawltype.Task, error) {
	resp, err := rpc.Call(ctx, c.core.Caller, true, c.producer.GetTask, &pawlv1.GetTaskRequest{TaskId: id, Wait: convert.Duration(wait)})
	if err != nil {
		return nil, fmt.Errorf("task %q: %w", id, err)
	}
	return convert.Task(resp.GetTask()), nil
}
