package auditlog

import (
	"context"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on the audit log of the system shard.
var Verbs verb.Table[*Log]

var (
	// Read returns a page of what operators did to queues and to the cluster.
	Read = verb.New(&Verbs, verb.SystemRule("audit-system"),
		func(l *Log, ctx context.Context, q Reading) (audit.Page, error) {
			return l.Audit(ctx, q.Query, q.After, q.Limit)
		})
	// Check lists what is wrong with it.
	Check = verb.New(&Verbs, verb.SystemRule("check-system"),
		func(l *Log, ctx context.Context, _ verb.Nothing) ([]string, error) { return l.Check(ctx) })
)

// Reading asks for entries after a place; nil: from the newest.
type Reading struct {
	Query audit.Query
	After *audit.Place
	Limit int
}
