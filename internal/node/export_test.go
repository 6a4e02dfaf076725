package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/audit/trail"
)

// collected is a collector of log records.
type collected struct {
	mu      sync.Mutex
	down    bool
	changes []string // "SHARD SEQ ACTOR ACTION"
}

func (c *collected) export(_ context.Context, records []slog.Record) (rejected int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return 0, errors.New("no collector")
	}
	for _, r := range records {
		of := map[string]string{}
		r.Attrs(func(a slog.Attr) bool { of[a.Key] = a.Value.String(); return true })
		if of["event"] == "changes" && strings.HasPrefix(of["actor"], "lena") && len(of["hash"]) == 64 {
			c.changes = append(c.changes, fmt.Sprintf("%s %s %s %s", of["shard"], of["seq"], of["actor"], of["action"]))
		}
	}
	return 0, nil
}

func (c *collected) setDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

func (c *collected) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.changes)
}

// distinct returns the changes without repetitions, and reports those of a shard that are new and out of order.
func (c *collected) distinct(t *testing.T) map[string]bool {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, last := map[string]bool{}, map[string]int{}
	for _, one := range c.changes {
		var shard string
		var seq int
		_, _ = fmt.Sscan(one, &shard, &seq)
		if !seen[one] && seq < last[shard] {
			t.Errorf("%q came after %d", one, last[shard])
		}
		seen[one], last[shard] = true, max(last[shard], seq)
	}
	return seen
}

// All entries of the audit log are exported, those of each shard in their order, whichever node leads it, and when the collector was down.
func TestEntriesAreExported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		c := &collected{}
		w.export = c.export
		w.form()
		want := 0
		act := func(n int) {
			t.Helper()
			for range n {
				for name, s := range w.nodes {
					operator := admin.New(s.client()).WithActor("lena")
					w.until("a task by way of "+name, func() error {
						id, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("mail"))
						if err == nil {
							_, err = operator.Tasks().Discard(t.Context(), id.ID)
						}
						return err
					})
					w.until("a pause by way of "+name, func() error {
						_, err := operator.Queues().Pause(t.Context(),
							"mail")
						return err
					})
					w.until("its end", func() error { _, err := operator.Queues().Resume(t.Context(), "mail"); return err })
				}
			}
		}
		check := func(when string) {
			t.Helper()
			want = 0
			for _, s := range w.nodes {
				for _, e := range auditOf(t, s, admin.AuditFilter{}) {
					if e.Actor == "lena" {
						want++
					}
				}
				break
			}
			w.within(5*time.Minute, time.Second, when, func() error {
				if got := len(c.distinct(t)); got != want || want == 0 {
					return fmt.Errorf("%d of %d entries were exported", got, want)
				}
				return nil
			})
		}
		act(2)
		check("at first")
		c.setDown(true)
		act(2)
		pass(3 * time.Minute)
		w.crash(w.leaderOf(1))
		act(1)
		c.setDown(false)
		check("after an outage of the collector, with another leader")
		n := c.count()
		pass(5 * time.Minute) // five times the longest pause between attempts
		if again := c.count() - n; again != 0 {
			t.Errorf("%d entries were exported again", again)
		}
	})
}

// Without a collector nothing looks for entries.
func TestNothingIsExportedWithoutACollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{InMemory: true, Trail: trail.New(trail.Config{Log: slog.New(slog.DiscardHandler)})})
		s.evidence.ExportEntries(t.Context()) // returns
	})
}
