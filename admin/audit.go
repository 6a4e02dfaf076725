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

// AuditFilter selects audit entries. All fields that are set must match.
type AuditFilter struct {
	Since  time.Time // inclusive
	Until  time.Time // exclusive
	Actor  string
	Action string // such as "queue.pause", or a whole group: "queue.*"
	// "queue", "task", "group", "operation", "schedule", "worker", "node", "shard", "cluster", "token", "namespace",
	// "webhook", "marker"
	TargetKind string
	Target     string // a name, or the id of a task
	Queue      string // the target's
}

// AuditEntry records one action of an operator.
type AuditEntry struct {
	Shard      uint32 // where it is stored; 0: the system shard
	Seq        uint64 // position in the shard's audit log, from 1
	At         time.Time
	Actor      string // as given by the caller: see Client.WithActor
	Address    string // the caller's host
	Interface  string // "rest", "grpc", "ui", "sqs"; "node": the node acted on its own
	Reason     string
	Action     string // such as "queue.pause"; docs/audit.md lists them all
	TargetKind string
	Target     string          // a name, or the id of a task
	Queue      string          // the target's, if it has one
	Tasks      int64           // changed in this shard by a call on many tasks
	Before     json.RawMessage // old values of what changed: an object with dotted names; nil: it did not exist
	After      json.RawMessage // new values, likewise
	Hash       string          // of this entry: 64 hexadecimal digits
	Previous   string          // hash of the shard's previous entry
}

// List iterates over audit entries, newest first.
func (a Audit) List(ctx context.Context, f AuditFilter) iter.Seq2[*AuditEntry, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*AuditEntry], error) {
		return a.ListPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage returns one page of audit entries. A page can be empty although more follow.
func (a Audit) ListPage(ctx context.Context, f AuditFilter, page pawltype.PageRequest) (pawltype.Page[*AuditEntry], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewAuditServiceClient(a.rpc).ListAudit, &pawlv1.ListAuditRequest{
		Filter: &pawlv1.AuditFilter{Since: convert.Timestamp(f.Since), Until: convert.Timestamp(f.Until), Actor: convert.Text(f.Actor),
			Action: convert.Text(f.Action), TargetKind: convert.Text(f.TargetKind), Target: convert.Text(f.Target), Queue: convert.Text(f.Queue)},
		Limit: convert.Int32(page.Limit), Cursor: page.Cursor,
	})
	if err != nil {
		return pawltype.Page[*AuditEntry]{}, fmt.Errorf("audit: %w", err)
	}
	return convert.Page(resp, auditEntryOf), nil
}

func auditEntryOf(p *pawlv1.AuditEntry) *AuditEntry {
	e := &AuditEntry{Shard: p.GetShard(), Seq: p.GetSeq(), At: convert.Time(p.GetAt()), Actor: p.GetActor(), Address: p.GetAddress(),
		Interface: p.GetInterface(), Reason: p.GetReason(), Action: p.GetAction(), TargetKind: p.GetTargetKind(), Target: p.GetTarget(),
		Queue: p.GetQueue(), Tasks: p.GetTasks(), Hash: p.GetHash(), Previous: p.GetPreviousHash()}
	if b := p.GetBefore(); b != "" {
		e.Before = json.RawMessage(b)
	}
	if b := p.GetAfter(); b != "" {
		e.After = json.RawMessage(b)
	}
	return e
}
