package admin

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Stats returns statistics for all tasks in a time window: 2 minutes, 5 minutes, 1 hour or 24 hours; 0: 1 hour.
func (a Client) Stats(ctx context.Context, window time.Duration) (*NamespaceStats, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).GetStats,
		&pawlv1.GetStatsRequest{Window: convert.Duration(window)})
	return answer(namespaceStatsOf, resp, err, "stats")
}

// Stats returns statistics for the tasks of a queue in a time window, as Client.Stats.
func (a Queues) Stats(ctx context.Context, queue string, window time.Duration) (*Stats, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).GetQueueStats, &pawlv1.GetQueueStatsRequest{Queue: queue,
		Window: convert.Duration(window)})
	return answer(statsOf, resp.GetStats(), err, "stats of queue %q", queue)
}

// Scale returns how many workers a queue needs now if each runs slots tasks at the same time (1 to 100,000; 0: 10) and the backlog should
// be worked off within target (1 s to 24 h; 0: 1 minute).
func (a Queues) Scale(ctx context.Context, queue string, target time.Duration, slots int) (*QueueScale, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewStatsServiceClient(a.rpc).GetQueueScale,
		&pawlv1.GetQueueScaleRequest{Queue: queue, Target: convert.Duration(target), Slots: convert.Int32(slots)})
	return answer(queueScaleOf, resp, err, "scale of queue %q", queue)
}

// seriesOf returns the counts of each step.
func seriesOf(p *pawlv1.Series) []EventCounts {
	counts := make([]EventCounts, len(p.GetEnqueued()))
	for i := range counts {
		at := func(list []int64) int64 {
			if i < len(list) {
				return list[i]
			}
			return 0
		}
		counts[i] = EventCounts{at(p.GetEnqueued()), at(p.GetClaimed()), at(p.GetSucceeded()), at(p.GetFailed()),
			at(p.GetCrashed()), at(p.GetDead()), at(p.GetPoisoned()), at(p.GetDiscarded()), at(p.GetCancelled()), at(p.GetReplayed())}
	}
	return counts
}
