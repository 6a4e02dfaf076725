package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// AuditFilter selects entries of the audit. Fields that are set must all match.
type AuditFilter struct {
	Since      time.Time // not before
	Until      time.Time // before
	Actor      string
	Action     string // such as "queue.pause", or all of a kind: "queue.*"
	TargetKind string // "queue", "task", "schedule", "node", "shard", "cluster"
	Target     string // its name, or the id of a task
	Queue      string // of the target
}

// AuditEntry is something that an operator did.
type AuditEntry struct {
	Shard      uint32 // that keeps it; 0: the system shard
	Seq        uint64 // its place there, from 1
	At         time.Time
	Actor      string // as they called themselves: see Client.WithActor
	Address    string // host from which the call came
	Face       string // "rest", "grpc", "ui"; "node": the node did it of itself
	Reason     string
	Action     string // such as "queue.pause"; docs/audit.md has them all
	TargetKind string
	Target     string          // its name, or the id of a task
	Queue      string          // of the target, if it has one
	Tasks      int64           // that a call on many has changed in the shard
	Before     json.RawMessage // what was changed, as it was: an object by dotted names; nil: there was nothing
	After      json.RawMessage // the same, as it is
	Hash       string          // of the entry: 64 hexadecimal digits
	Previous   string          // hash of the entry before it in the shard
}

// List goes over what operators did, newest first.
func (a Audit) List(ctx context.Context, f AuditFilter) iter.Seq2[*AuditEntry, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*AuditEntry], error) {
		return a.ListPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage gives one page of what operators did. It may be empty while there is more.
func (a Audit) ListPage(ctx context.Context, f AuditFilter, page pawltype.PageRequest) (pawltype.Page[*AuditEntry], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewAuditServiceClient(a.rpc).ListAudit, &pawlv1.ListAuditRequest{
		Filter: &pawlv1.AuditFilter{Since: convert.Timestamp(f.Since), Until: convert.Timestamp(f.Until), Actor: f.Actor, Action: f.Action,
			TargetKind: f.TargetKind, Target: f.Target, Queue: f.Queue},
		Limit: convert.Int32(page.Limit), Cursor: page.Cursor,
	})
	if err != nil {
		return pawltype.Page[*AuditEntry]{}, fmt.Errorf("audit: %w", err)
	}
	return convert.Page(resp, auditEntryOf), nil
}

func auditEntryOf(p *pawlv1.AuditEntry) *AuditEntry {
	e := &AuditEntry{Shard: p.GetShard(), Seq: p.GetSeq(), At: convert.Time(p.GetAt()), Actor: p.GetActor(), Address: p.GetAddress(), Face: p.GetFace(),
		Reason: p.GetReason(), Action: p.GetAction(), TargetKind: p.GetTargetKind(), Target: p.GetTarget(), Queue: p.GetQueue(), Tasks: p.GetTasks(),
		Hash: p.GetHash(), Previous: p.GetPreviousHash()}
	if b := p.GetBefore(); b != "" {
		e.Before = json.RawMessage(b)
	}
	if b := p.GetAfter(); b != "" {
		e.After = json.RawMessage(b)
	}
	return e
}
