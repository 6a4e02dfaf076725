package gateway

import (
	"context"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Audit returns one entry for each shard, which matches every query.
func (f *fake) Audit(_ context.Context, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (out verb.Partial[broker.AuditList],
	at []broker.Stamp, err error) {
	list := &out.Value
	if err := f.begin(f.shards[0]); err != nil {
		return out, nil, err
	}
	defer f.mu.Unlock()
	for _, shard := range f.shards {
		e := broker.AuditRecord{Shard: shard}
		e.Seq, e.At, e.Namespace = 1, 1, q.Namespace
		e.By, e.Action, e.Queue, e.Tasks = task.Author{Name: "lena", Address: "10.0.0.1", Interface: task.InterfaceREST, Reason: "a test"},
			task.QueuePut, "mail", 7
		e.Target = task.Target{Kind: "queue", Name: "mail"}
		if behind == nil || e.Place().After(*behind) {
			if len(list.Records) == limit {
				last := list.Records[limit-1].Place()
				list.More = &last
				break
			}
			list.Records = append(list.Records, e)
			at = append(at, f.stamp(shard))
		}
	}
	return out, at, nil
}
