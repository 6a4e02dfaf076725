// Package checktest implements engine.Checker over rows in memory, for tests of policies' checks. It knows none of the policies.
package checktest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// NS is the namespace of all rows.
const NS = "ns"

// Rows is an engine.Checker: it holds the rows to check and records what the check reports.
type Rows struct {
	Stored map[string][]byte
	Known  map[task.ID]*schema.Exec
	wanted []string // keys of index rows
	found  []string
}

// New returns an empty Rows.
func New() *Rows { return &Rows{Stored: map[string][]byte{}, Known: map[task.ID]*schema.Exec{}} }

// Set stores a row.
func (r *Rows) Set(key, value []byte) { r.Stored[string(key)] = value }

// Namespace returns NS.
func (r *Rows) Namespace() string { return NS }

// Tasks returns the known tasks.
func (r *Rows) Tasks() map[task.ID]*schema.Exec { return r.Known }

// Scan calls fn for the rows of a table, in order.
func (r *Rows) Scan(tab byte, fn func(k, v []byte)) {
	for _, k := range slices.Sorted(maps.Keys(r.Stored)) {
		if strings.HasPrefix(k, string(schema.Table(NS, tab))) {
			fn([]byte(k), r.Stored[k])
		}
	}
}

// ExpectRow records that an index row must exist.
func (r *Rows) ExpectRow(key, _ []byte) { r.wanted = append(r.wanted, string(key)) }

// Find records a disagreement.
func (r *Rows) Find(format string, args ...any) {
	r.found = append(r.found, fmt.Sprintf(format, args...))
}

// Expect fails the test unless the check reported exactly one disagreement that contains want (none if want is ""), and
// expected that many index rows.
func (r *Rows) Expect(t *testing.T, want string, rows int) {
	t.Helper()
	if want == "" && len(r.found) > 0 || want != "" && (len(r.found) != 1 || !strings.Contains(r.found[0], want)) {
		t.Errorf("found %q, want %q", r.found, want)
	}
	if len(r.wanted) != rows {
		t.Errorf("the check expects %d index rows, want %d: %q", len(r.wanted), rows, r.wanted)
	}
}
