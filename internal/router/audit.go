package router

import (
	"context"
	"errors"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// auditAuthor returns the author to record for an operator's call: none while a shard may be led by a node that would not know how to expire the
// entries. The copy of the map may be out of date, but levels only rise.
func (r *Router) auditAuthor(by task.Author) (task.Author, error) {
	if by.IsZero() {
		return by, nil
	}
	switch level := r.cfg.Map.Level(); {
	case level == 0:
		return by, task.Unavailable(noLeaderRetry, "this node does not know the cluster's feature level yet")
	case level < cluster.PoliciesLevel:
		return task.Author{}, nil
	}
	return by, nil
}

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

var (
	auditShard = serve(&method[auditArgs, auditAnswer]{Rule: verb.Rule{Name: "audit", Idempotent: true}, run: func(ctx context.Context, r *Router, a auditArgs) (out auditAnswer, err error) {
		out.Page, out.At, err = r.cfg.Broker.Audit(ctx, a.Shard, a.Query, a.Behind, a.Limit)
		return out, err
	}})
	auditSystem = onSystem("audit-system", true, func(ctx context.Context, c Control, a auditArgs) (auditAnswer, error) {
		page, err := c.Audit(ctx, a.Query, a.Behind, a.Limit)
		return auditAnswer{Page: page}, err
	})
)

// maxAuditBytes bounds a page, so that it fits into a message.
const maxAuditBytes = 4 << 20

// Audit returns up to limit entries of all shards after a place, newest first; nil: from the newest. More is where the list continues, nil
// at its end. A page may be empty and yet not be the last.
func (r *Router) Audit(ctx context.Context, q broker.AuditQuery, behind *broker.AuditPlace, limit int) (list broker.AuditList, at []broker.Stamp, err error) {
	shards := append([]uint32{systemShard}, r.cfg.Map.Shards()...)
	answers := make([]auditAnswer, len(shards))
	errs := r.eachShard(shards, func(i int, shard uint32) (err error) {
		m := auditShard
		if shard == systemShard {
			m = auditSystem
		}
		answers[i], err = call(ctx, r, m, shard, auditArgs{Shard: shard, Query: q, Behind: behind, Limit: limit})
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return list, nil, firstRefusal(errs, err)
	}
	pages := make(map[uint32]broker.AuditPage, len(shards))
	for i, a := range answers {
		pages[shards[i]] = a.Page
		at = append(at, a.At)
	}
	return broker.MergeAudit(pages, limit, maxAuditBytes), at, nil
}
