package router

import (
	"context"
	"slices"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// AuditLog reads the audit logs of all shards.
type AuditLog struct{ forward *forward.Forwarder }

// maxAuditBytes bounds a page, so that it fits into a message.
const maxAuditBytes = 4 << 20

// Audit returns up to limit entries of all shards after a place, newest first; nil: from the newest. More is where the list continues, nil
// at its end. A page may be empty and yet not be the last. What was done to a task is in the task's own shard, and only that one is asked.
func (l *AuditLog) Audit(ctx context.Context, q broker.AuditQuery, after *broker.AuditPlace,
	limit int) (list verb.Partial[broker.AuditList], at []broker.Stamp, err error) {
	shards := l.shardsOf(q)
	answers, err := verb.AskShards(ctx, shards, func(ctx context.Context, i int) (out AuditRead, err error) {
		if shards[i] == forward.SystemShard {
			out.Page, err = auditlog.Read.Call(ctx, l.forward, auditlog.Reading{Query: q, After: after, Limit: limit})
			return out, err
		}
		return ReadAudit.Call(ctx, l.forward, AuditReading{Shard: shards[i], Query: q, After: after, Limit: limit})
	})
	if err == nil {
		err = answers.CheckAny(len(shards))
	}
	if err != nil {
		return list, nil, err
	}
	pages := make(map[uint32]broker.AuditPage, len(shards))
	for i, a := range answers.Value {
		if !slices.ContainsFunc(answers.Missing, func(m verb.Missing) bool { return m.Shard == shards[i] }) {
			pages[shards[i]], at = a.Page, append(at, a.At)
		}
	}
	list.Value, list.Missing = broker.MergeAudit(pages, limit, maxAuditBytes), answers.Missing
	return list, at, nil
}

// shardsOf returns the shards that may have entries for a query.
func (l *AuditLog) shardsOf(q broker.AuditQuery) []uint32 {
	all := l.forward.Shards()
	if id, err := task.ParseID(q.Target.Name); err == nil && q.Target.Kind == task.OnTask && slices.Contains(all, id.Shard()) {
		return []uint32{id.Shard()}
	}
	return append([]uint32{forward.SystemShard}, all...)
}
