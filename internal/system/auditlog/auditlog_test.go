package auditlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/systemtest"
	"github.com/pawlq/pawl/internal/task"
)

var (
	bg   = context.Background()
	lena = task.Author{Name: "lena"}
)

// world is a system shard, and its audit log.
type world struct {
	*systemtest.World
	*Log
}

// inBubble runs a test in fake time.
func inBubble(t *testing.T, fn func(t *testing.T, w world)) {
	synctest.Test(t, func(t *testing.T) {
		s := systemtest.NewWorld(t)
		fn(t, world{s, New(s.Open(1))})
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type facts struct {
	Max int `json:"max"`
}

// head is the key of the row that has what is true of the whole log.
var head = []byte{'A', 0, 'h'}

// record records a change in a round. Nothing is written along with it.
func (w world) record(by task.Author, before, after any) error {
	_, err := system.Update(bg, w.shard, func(tx *store.Tx) (int, error) {
		return 0, OnCluster(tx, by, task.ReplicationSet, before, after)
	})
	return err
}

// A change is recorded if it has an author and changed something.
func TestRecord(t *testing.T) {
	for _, c := range []struct {
		what          string
		by            task.Author
		before, after any
		want          string
	}{
		{"a change", lena, &facts{1}, &facts{2}, `lena cluster.replication cluster : {"max":1} → {"max":2}`},
		{"something new", lena, nil, &facts{2}, `lena cluster.replication cluster :  → {"max":2}`},
		{"something removed", lena, &facts{1}, nil, `lena cluster.replication cluster : {"max":1} →`},
		{"no change", lena, &facts{1}, &facts{1}, ""},
		{"by nobody", task.Author{}, &facts{1}, &facts{2}, ""},
	} {
		inBubble(t, func(t *testing.T, w world) {
			must(t, w.record(c.by, c.before, c.after))
			if got := strings.Join(w.World.Audited("default"), "; "); got != c.want {
				t.Errorf("%s: audited %q, want %q", c.what, got, c.want)
			}
		})
	}
	inBubble(t, func(t *testing.T, w world) {
		w.Round(func(tx *store.Tx) {
			must(t, RecordOn(tx, lena, task.QuotasSet, "team", task.Target{Kind: task.OnNamespace, Name: "team"}, &facts{1}, &facts{2}))
		})
		if got, other := w.World.Audited("team"), w.World.Audited("default"); len(got) != 1 || len(other) != 0 {
			t.Errorf("an entry of a namespace: it has %q, another has %q", got, other)
		}
	})
}

func TestMoment(t *testing.T) {
	at := store.TimeOf(time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC))
	if got := Moment(at); got == nil || !got.Equal(at.Time()) {
		t.Errorf("the moment of %v is %v", at, got)
	}
	if got := Moment(0); got != nil {
		t.Errorf("the moment of no time is %v", got)
	}
}

// Entries are removed once they have been kept long enough, but not within an hour of an election: the leader's clock may be wrong.
func TestExpire(t *testing.T) {
	inBubble(t, func(t *testing.T, w world) {
		must(t, w.record(lena, &facts{1}, &facts{2}))
		expire := func(want int, what string) {
			t.Helper()
			must(t, w.Expire(bg))
			if got := w.World.Audited("default"); len(got) != want {
				t.Errorf("%s there is %q", what, got)
			}
		}
		w.Sleep(audit.DefaultKeep + time.Hour)
		time.Sleep(AuditGrace - time.Second)
		expire(1, "a second before the leader is trusted")
		time.Sleep(time.Second)
		expire(0, "once the leader is trusted")
		must(t, w.record(lena, &facts{1}, &facts{2}))
		w.Sleep(time.Hour) // it is not due yet, nor is the next look
		before := w.State.Applied().Index
		expire(1, "early")
		if w.State.Applied().Index != before {
			t.Error("a log of which nothing is due was written")
		}
		w.shard.Dropped()
		w.Sleep(audit.DefaultKeep)
		expire(1, "at a node that doesn't lead")
	})
}

// A log without entries is not written, and one that is due is looked at again within a day.
func TestExpireLooksOnlyWhenItIsDue(t *testing.T) {
	inBubble(t, func(t *testing.T, w world) {
		time.Sleep(AuditGrace + time.Minute)
		before := w.State.Applied().Index
		if must(t, w.Expire(bg)); w.State.Applied().Index != before {
			t.Error("an empty log was written")
		}
		must(t, w.record(lena, &facts{1}, &facts{2}))
		snap := w.State.Snapshot()
		due, err := audit.Due(snap)
		snap.Close()
		must(t, err)
		w.Put(system.SettingsKey, system.EncodeRow(system.Settings{Level: 1, AuditRetention: audit.MinKeep}))
		w.Sleep(time.Until(due.Time()))
		if must(t, w.Expire(bg)); len(w.World.Audited("default")) != 0 {
			t.Error("what is due at this moment stays")
		}
	})
}

// What can't be read is an error, not an empty log, and nothing is written.
func TestDamage(t *testing.T) {
	calls := map[string]func(w world) error{
		"record": func(w world) error { return w.record(lena, &facts{1}, &facts{2}) },
		"expire": func(w world) error { return w.Expire(bg) },
		"list":   func(w world) error { _, err := w.Audit(bg, audit.Query{Namespace: "default"}, nil, 10); return err },
	}
	for _, c := range []struct {
		key         []byte
		calls, want string
	}{
		{system.SettingsKey, "record, expire", `row "ms" of the system shard`},
		{head, "record, expire", "audit"},
		{[]byte{'A', 0, 'c'}, "record, list", "audit"},
	} {
		for _, name := range strings.Split(c.calls, ", ") {
			inBubble(t, func(t *testing.T, w world) {
				must(t, w.record(lena, &facts{1}, &facts{2}))
				time.Sleep(AuditGrace)
				w.Sleep(audit.DefaultKeep)
				w.Damage(c.key)
				before := w.State.Applied().Index
				if err := calls[name](w); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s with row %q damaged: %v", name, c.key, err)
				}
				if w.State.Applied().Index != before {
					t.Errorf("%s with row %q damaged has written", name, c.key)
				}
			})
		}
	}
	inBubble(t, func(t *testing.T, w world) {
		must(t, w.record(lena, &facts{1}, &facts{2}))
		if problems, err := w.Check(bg); err != nil || len(problems) > 0 {
			t.Errorf("a sound log: %q, %v", problems, err)
		}
		w.Damage(head)
		if problems, err := w.Check(bg); err != nil || len(problems) == 0 {
			t.Errorf("a damaged log: %q, %v", problems, err)
		}
	})
}

// Pages come from this shard, which is number 0, and continue after a place.
func TestAudit(t *testing.T) {
	inBubble(t, func(t *testing.T, w world) {
		for n := range 3 {
			must(t, w.record(lena, &facts{n}, &facts{n + 1}))
		}
		var got []string
		var after *audit.Place
		for range 2 {
			page, err := w.Audit(bg, audit.Query{Namespace: "default"}, after, 2)
			must(t, err)
			for _, e := range page.Entries {
				got = append(got, string(e.After))
			}
			if page.Read.Shard != 0 {
				t.Errorf("the page is of shard %d", page.Read.Shard)
			}
			after = &page.Read
		}
		if want := []string{`{"max":3}`, `{"max":2}`, `{"max":1}`}; !slices.Equal(got, want) {
			t.Errorf("page by page: %s, want %s", fmt.Sprint(got), want)
		}
	})
}
