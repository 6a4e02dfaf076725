package cli

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/pawltype"
)

// ListFlags limit and page a list.
type ListFlags struct {
	Limit  int
	Cursor string
}

// listed names what each command lists, for the message that there is none.
var listed = map[string]string{
	"audit": "entries", "dlq ls": "dead letters", "group ls": "groups", "group members": "members",
	"marker ls": "markers", "ns ls": "namespaces", "operation ls": "operations", "queue ls": "queues", "schedule history": "ticks",
	"schedule ls": "schedules", "task ls": "tasks", "token ls": "tokens", "type ls": "types", "webhook ls": "webhooks",
	"worker ls": "workers",
}

// Add adds --limit and --cursor.
func (l *ListFlags) Add(cmd *cobra.Command) {
	cmd.Flags().IntVarP(&l.Limit, "limit", "n", 100, "show at most this many, 1 to 100000")
	cmd.Flags().StringVar(&l.Cursor, "cursor", "", "continue where an earlier list ended")
}

// maxList is the maximum of --limit: a list is held in memory before it is printed.
const maxList = 100_000

// Check rejects a limit that is out of range.
func (l *ListFlags) Check() error {
	if l.Limit < 1 || l.Limit > maxList {
		return Usage("--limit %d is not between 1 and %d", l.Limit, maxList)
	}
	return nil
}

// PatternArg returns the pattern of a list command; "": all.
func PatternArg(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// Collect reads pages until it has the requested number of items.
func Collect[T any](l ListFlags, read func(pawltype.PageRequest) (pawltype.Page[T], error)) (all pawltype.Page[T], err error) {
	all.NextCursor = l.Cursor
	for {
		page, err := read(pawltype.PageRequest{Limit: min(l.Limit-len(all.Items), 1000), Cursor: all.NextCursor})
		if err != nil {
			return pawltype.Page[T]{}, err
		}
		all.Items = append(all.Items, page.Items...)
		all.Missing = JoinMissing(all.Missing, page.Missing)
		if all.NextCursor = page.NextCursor; all.NextCursor == "" || len(all.Items) >= l.Limit {
			return all, nil
		}
	}
}

// JoinMissing returns what is missing in either of two answers, each shard and node once.
func JoinMissing(a, b []pawltype.Missing) []pawltype.Missing {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(x, y pawltype.Missing) int {
		return cmp.Or(cmp.Compare(x.Node, y.Node), cmp.Compare(x.Shard, y.Shard))
	})
	return slices.CompactFunc(all, func(x, y pawltype.Missing) bool { return x.Node == y.Node && x.Shard == y.Shard })
}
