package query

import (
	"context"
	"slices"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

type auditArgs struct {
	Shard  uint32
	Query  broker.AuditQuery
	Behind *broker.AuditPlace
	Limit  int
}

type auditAnswer struct {
	Page broker.AuditPage
	At   broker.Stamp
}

// AuditBroker has the audit logs of the shards that this node leads.
type AuditBroker interface {
	Audit(ctx context.Context, shard uint32, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (broker.AuditPage, broker.Stamp, error)
}

// AuditControl has the audit log of the system shard, where that is led.
type AuditControl interface {
	// Audit returns a page of what operators did to queues and to the cluster.
	Audit(ctx context.Context, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (broker.AuditPage, error)
}

// AuditLog reads the audit logs of all shards.
type AuditLog struct {
	forward       *forward.Forwarder
	shard, system forward.Caller[auditArgs, auditAnswer]
}

// NewAuditLog returns a reader of the audit logs.
func NewAuditLog(f *forward.Forwarder, b AuditBroker, c AuditControl) *AuditLog {
	return &AuditLog{forward: f,
		shard: forward.RegisterIdempotent(f, "audit", func(ctx context.Context, a auditArgs) (out auditAnswer, err error) {
			out.Page, out.At, err = b.Audit(ctx, a.Shard, a.Query, a.Behind, a.Limit)
			return out, err
		}),
		system: forward.RegisterSystem(f, "audit-system", true, func(ctx context.Context, a auditArgs) (auditAnswer, error) {
			page, err := c.Audit(ctx, a.Query, a.Behind, a.Limit)
			return auditAnswer{Page: page}, err
		}),
	}
}

// maxAuditBytes bounds a page, so that it fits into a message.
const maxAuditBytes = 4 << 20

// Audit returns up to limit entries of all shards after a place, newest first; nil: from the newest. More is where the list continues, nil
// at its end. A page may be empty and yet not be the last. What was done to a task is in the task's own shard, and only that one is asked.
func (l *AuditLog) Audit(ctx context.Context, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (list verb.Partial[broker.AuditList], at []broker.Stamp, err error) {
	shards := l.shardsOf(q)
	answers, err := verb.AskShards(ctx, shards, func(ctx context.Context, i int) (auditAnswer, error) {
		m := l.shard
		if shards[i] == forward.SystemShard {
			m = l.system
		}
		return m.Call(ctx, shards[i], auditArgs{Shard: shards[i], Query: q, Behind: behind, Limit: limit})
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
