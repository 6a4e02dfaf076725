package cluster

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// pollWait is how long a poll waits for news. It is the beat of the node's heart, so it is well below aliveFor.
	pollWait = 2 * time.Second
	// OwnPollWait is the same of a node that asks itself, and is alone in its cluster: nobody waits for its heart.
	OwnPollWait = 10 * time.Minute
	// followPause and maxFollowPause bound the wait after a poll that didn't work.
	followPause    = 100 * time.Millisecond
	maxFollowPause = 2 * time.Second
)

// Follow keeps the copy up to date until ctx ends. Fetch asks the leader of the system shard for what came after a
// version, and waits for it up to wait, or longer if nobody waits for a sign of this node's life. Current is told, once an answer has
// been applied, from when it is: the copy is at least as new as that.
func (c *Copy) Follow(ctx context.Context, fetch func(ctx context.Context, after uint64, wait time.Duration) (Delta, error), current func(at time.Time)) {
	pause := followPause
	for ctx.Err() == nil {
		asked := time.Now()
		after := c.Version()
		d, err := fetch(ctx, after, pollWait)
		if err == nil {
			c.Apply(d)
			current(asked.Add(d.Waited))
			if d.Version != after || time.Since(asked) >= pollWait/2 {
				pause = followPause
				continue
			}
			// An answer without news that came at once: a leader that cannot wait must not be asked in a tight loop.
		}
		sleep(ctx, pause/2+rand.N(pause/2))
		pause = min(2*pause, maxFollowPause)
	}
}

// sleep waits unless ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
