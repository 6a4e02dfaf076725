package node

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/verb"
)

// watches are the data shards, as webhooks need them.
type watches struct {
	shards func() []uint32
	verbs  verb.Runner
}

// depths adds up the shards' counts for queues.
func (w watches) depths(ctx context.Context, ns string, patterns []string, since bool) (all []webhooks.Depth, missing bool) {
	shards := w.shards()
	meters := make([][]broker.Meter, len(shards))
	errs := forward.EachShard(shards, func(i int, shard uint32) (err error) {
		meters[i], err = router.ReadMeters.Call(ctx, w.verbs, router.MeterReading{OnShard: broker.OnShard{Shard: shard, Namespace: ns},
			Patterns: patterns, Since: since})
		return err
	})
	at := map[string]int{}
	now := store.TimeOf(time.Now())
	for i, ofShard := range meters {
		if errs[i] != nil {
			missing = true
			continue
		}
		for _, m := range ofShard {
			i, known := at[m.Queue]
			if !known {
				i = len(all)
				at[m.Queue], all = i, append(all, webhooks.Depth{Queue: m.Queue})
			}
			all[i].Ready += m.Ready
			if m.Since != 0 {
				all[i].Wait = max(all[i].Wait, now.Sub(m.Since))
			}
		}
	}
	return all, missing
}
