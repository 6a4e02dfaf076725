package broker

import (
	"context"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/store"
)

// Types of package audit, for callers that don't import it.
type (
	AuditEntry  = audit.Entry
	AuditList   = audit.List
	AuditPage   = audit.Page
	AuditPlace  = audit.Place
	AuditQuery  = audit.Query
	AuditRecord = audit.Record
)

// Audit reads a page of a shard's audit log, newest first, after a place; nil starts at the newest.
func (b *Broker) Audit(ctx context.Context, shardID uint32, q AuditQuery, behind *AuditPlace, limit int) (AuditPage, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return AuditPage{}, Stamp{}, err
	}
	return read(ctx, r, func(from store.Reader) (AuditPage, error) { return audit.Read(from, shardID, q, behind, limit) })
}

// MergeAudit merges the pages of several shards; see audit.Merge.
func MergeAudit(pages map[uint32]AuditPage, limit, bytes int) AuditList {
	return audit.Merge(pages, limit, bytes)
}
