package gateway

import (
	"context"

	"github.com/pawlq/pawl/internal/broker"
)

// Audit knows one entry of each shard, which matches every query.
func (f *fake) Audit(_ context.Context, q broker.AuditQuery, behind *broker.AuditPlace, _ int) (list broker.AuditList, at []broker.Stamp, err error) {
	if err := f.begin(f.shards[0]); err != nil {
		return list, nil, err
	}
	defer f.mu.Unlock()
	for _, shard := range f.shards {
		e := broker.AuditRecord{Shard: shard}
		e.Seq, e.At, e.Namespace = 1, 1, q.Namespace
		if behind == nil || e.Place().Behind(*behind) {
			list.Records = append(list.Records, e)
			at = append(at, f.stamp(shard))
		}
	}
	return list, at, nil
}
