package admin

import (
	"context"
	"iter"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// List iterates over audit entries, newest first.
func (a Audit) List(ctx context.Context, f AuditFilter) iter.Seq2[*AuditEntry, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*AuditEntry], error) {
		return a.ListPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage returns one page of audit entries. A page can be empty although more follow.
func (a Audit) ListPage(ctx context.Context, f AuditFilter, page pawltype.PageRequest) (pawltype.Page[*AuditEntry], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewAuditServiceClient(a.rpc).ListAudit, &pawlv1.ListAuditRequest{
		Filter: f.message(), Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	return pageOf(auditEntryOf, resp, err, "audit")
}
