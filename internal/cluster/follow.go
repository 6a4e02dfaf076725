package cluster

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pawlq/pawl/internal/system"
)

const (
	// pollWait is how long a poll waits for changes. Polls are the node's heartbeat, so it is well below aliveFor.
	pollWait = 2 * time.Second
	// OwnPollWait is pollWait for a node that asks itself and is alone in its cluster: nobody needs its heartbeat.
	OwnPollWait = 10 * time.Minute
	// followPause and maxFollowPause bound the wait after a failed poll.
	followPause    = 100 * time.Millisecond
	maxFollowPause = 2 * time.Second
)

// Follow keeps the copy up to date until ctx is done. fetch asks the leader of the system shard for what is newer than a version, waiting
// up to wait, or longer if nobody needs this node's heartbeat. current is called once an answer has been applied, with a time: the copy is
// at least as recent as that.
func (c *Copy) Follow(ctx context.Context, fetch func(ctx context.Context, after uint64, wait time.Duration) (Delta, error),
	current func(at time.Time)) {
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
			// An answer without changes came immediately: a leader that cannot wait must not be asked in a tight loop.
		}
		system.Sleep(ctx, pause/2+rand.N(pause/2))
		pause = min(2*pause, maxFollowPause)
	}
}
