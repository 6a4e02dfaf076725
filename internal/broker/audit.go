package broker

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
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

// newBulk begins a call on many tasks. All of its rounds together leave one audit entry.
func newBulk(by task.Author, action task.Action, queue string, of any) actions.Bulk {
	return actions.Bulk{By: by, Action: action, Call: rand.Uint64(), Queue: queue, Of: of}
}

// selectionFacts is what the audit log records about a selection.
type selectionFacts struct {
	State  task.State `json:"state"`
	IDs    int        `json:"task_ids"` // how many were named
	Type   string     `json:"type"`
	Tag    string     `json:"tag"`
	Key    string     `json:"key"`
	Worker string     `json:"worker"`
	Error  string     `json:"error"`
	Print  string     `json:"fingerprint"`
	Text   string     `json:"q"`                 // only its length: the text may come from a payload
	Paths  []string   `json:"payload,omitempty"` // without their values
	Max    int64      `json:"max"`
	Rate   float64    `json:"rate"`
}

func (s *Selection) facts() *selectionFacts {
	f := &s.Filter
	out := &selectionFacts{State: s.State, IDs: len(s.IDs), Type: f.Type, Tag: f.Tag, Key: f.Key, Worker: f.Worker, Error: f.Error,
		Print: f.Fingerprint, Max: s.Max, Rate: s.Rate}
	if f.Text != "" {
		out.Text = fmt.Sprintf("%d bytes", len(f.Text))
	}
	out.Paths = f.PayloadPaths()
	return out
}
