package evidence

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/node/members"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
)

const (
	// exportEvery is how often a node looks whether the shards that it leads have entries to export, and maxBatch how
	// many it sends together.
	exportEvery = 5 * time.Second
	maxBatch    = 500
	// shardTime bounds a read or a write of a shard.
	shardTime = 10 * time.Second
	// After a failure the next attempt follows after retryFirst, then after twice that, up to retryMax.
	retryFirst, retryMax = 5 * time.Second, time.Minute
)

// ExportEntries sends the entries of the audit log to the collector of the node's trail, until ctx ends: those of each
// shard that the node leads, in their order. Each shard remembers what was sent, so after a crash or under another
// leader some entries are sent again, and none is left out.
func (r Recorder) ExportEntries(ctx context.Context) {
	if !r.Trail.Exports() {
		return
	}
	var passes sync.WaitGroup
	defer passes.Wait()
	var busy sync.Map // shards whose entries are being sent: one that hangs holds up no other
	tick := time.NewTicker(exportEvery)
	defer tick.Stop()
	for {
		for _, s := range r.Replicas() {
			if _, sending := busy.LoadOrStore(s.ID, true); !sending {
				passes.Go(func() {
					defer busy.Delete(s.ID)
					r.exportShard(ctx, s)
				})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// exportShard sends the entries of a shard that wait, as long as the node leads it.
func (r Recorder) exportShard(ctx context.Context, s members.Replica) {
	for wait := retryFirst; ctx.Err() == nil && s.Shard.Leads(); {
		n, err := r.exportBatch(ctx, s)
		if err == nil && n == 0 {
			return
		}
		if err == nil {
			wait = retryFirst
			continue
		}
		retry := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-retry.C:
		}
		retry.Stop()
		wait = min(2*wait, retryMax)
	}
}

// exportBatch sends the next entries of a shard, and returns how many.
func (r Recorder) exportBatch(ctx context.Context, s members.Replica) (n int, err error) {
	reading, cancel := context.WithTimeout(ctx, shardTime)
	defer cancel()
	batch, _, err := shard.View(reading, s.Shard, func(from store.Reader) (audit.Batch, error) { return audit.Unexported(from, maxBatch) })
	if err != nil || batch.IsEmpty() {
		return 0, err
	}
	records := make([]slog.Record, len(batch.Entries))
	for i := range batch.Entries {
		records[i] = recordOf(s.ID, &batch.Entries[i])
	}
	if err := r.Trail.Export(ctx, records); err != nil {
		return 0, err
	}
	writing, cancel := context.WithTimeout(ctx, shardTime)
	defer cancel()
	_, _, err = shard.Update(writing, s.Shard, func(tx *store.Tx) (struct{}, error) {
		log, err := audit.Open(tx, 0)
		if err == nil {
			log.Exported(batch)
		}
		return struct{}{}, err
	})
	return len(records), err
}

// recordOf returns the form in which an entry is sent. The shard and the number identify it.
func recordOf(shard uint32, e *audit.Entry) slog.Record {
	r := slog.NewRecord(e.At.Time(), slog.LevelInfo, "an operator made a change", 0)
	r.AddAttrs(slog.String("event", "changes"), slog.Int64("shard", int64(shard)),
		slog.Int64("seq", int64(e.Seq)), // #nosec G115 -- counted from 1
		slog.String("action", string(e.Action)))
	for _, a := range []struct{ name, value string }{
		{"actor", e.By.Name}, {"reason", e.By.Reason}, {"namespace", e.Namespace}, {"interface", string(e.By.Interface)},
		{"address", e.By.Address}, {"target_kind", string(e.Target.Kind)}, {"target", e.Target.Name}, {"queue", e.Queue},
		{"before", string(e.Before)}, {"after", string(e.After)},
	} {
		if a.value != "" {
			r.AddAttrs(slog.String(a.name, a.value))
		}
	}
	if e.Tasks > 0 {
		r.AddAttrs(slog.Int64("tasks", e.Tasks))
	}
	r.AddAttrs(slog.String("prev", e.Prev.String()), slog.String("hash", e.Hash.String()))
	return r
}
