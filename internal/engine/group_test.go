package engine

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// counted shows groups in one line: the count, the message, and the non-zero hours of the trend.
func counted(groups []query.DeadGroup) (line string) {
	for _, g := range groups {
		line += fmt.Sprintf("%d %q in %d", g.Count, g.Message, len(g.Queues))
		for i, n := range g.Trend {
			if n > 0 {
				line += fmt.Sprintf(" -%dh:%d", query.TrendHours-1-i, n)
			}
		}
		line += "; "
	}
	return line
}

// TestTrend spreads a group over the hours: a full hour ago is the hour before the last.
func TestTrend(t *testing.T) {
	w := NewWorld(t)
	w.PutQueue("mail", task.DefaultSettings(), false)
	w.PutQueue("shop", task.DefaultSettings(), false)
	w.Die("mail", 1, Deadly)
	w.Pass(23 * time.Hour)
	w.Die("shop", 2, Deadly)
	w.Pass(59 * time.Minute)
	w.Die("mail", 3, Deadly)
	told := func() string {
		groups, partial := query.GroupDead(w.Store, "default", "", task.Scope{}, task.Dead, w.Now)
		return fmt.Sprint(counted(groups), partial)
	}
	for _, step := range []struct {
		pass time.Duration
		want string
	}{
		{0, ` in 2 -23h:1 -0h:5; false`},
		{time.Minute - time.Microsecond, ` in 2 -23h:1 -0h:5; false`},
		{time.Microsecond, ` in 2 -1h:2 -0h:3; false`},
		{48 * time.Hour, ` in 2; false`},
	} {
		w.Pass(step.pass)
		if got, want := told(), `6 "\n  disk * is full\nat line *"`+step.want; got != want {
			t.Errorf("after %v: %s, want %s", step.pass, got, want)
		}
	}
}

// TestGroupsOfOthers counts in two namespaces whose queues have the same names, with poisoned tasks as well as dead letters.
func TestGroupsOfOthers(t *testing.T) {
	w := NewWorld(t)
	w.PutQueue("mail", task.DefaultSettings(), false)
	w.Die("mail", 2, Deadly)
	w.Die("mail", 1, FailRequest{Action: FailPoison, Failure: schema.Failure{Message: "no JSON"}})
	for _, c := range []struct {
		ns, queue string
		within    []string
		state     task.State
		want      string
	}{
		{"default", "", nil, task.Dead, `2 "\n  disk * is full\nat line *" in 1 -0h:2; `},
		{"default", "", nil, task.Poisoned, `1 "no JSON" in 1 -0h:1; `},
		{"default", "mail", nil, task.Poisoned, `1 "no JSON" in 1 -0h:1; `},
		{"default", "", []string{"shop"}, task.Dead, ""},
		{"defaul", "", nil, task.Dead, ""},
		{"other", "", nil, task.Dead, ""},
		{"other", "mail", nil, task.Dead, ""},
	} {
		groups, _ := query.GroupDead(w.Store, c.ns, c.queue, task.Scope{Queues: c.within}, c.state, w.Now)
		if got := counted(groups); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

// TestGroupsShare counts fewer than there are: each queue has an equal share, and those with few tasks leave the rest
// of theirs to the others.
func TestGroupsShare(t *testing.T) {
	w := NewWorld(t)
	for i, n := range []int{1, 9, 2, 0} {
		queue := fmt.Sprintf("q%d", i)
		w.PutQueue(queue, task.DefaultSettings(), false)
		if n > 0 {
			w.Die(queue, n, Deadly)
		}
	}
	defer func(limit int) { query.GroupLimit = limit }(query.GroupLimit)
	for _, c := range []struct {
		limit int
		want  string
	}{{12, "q0:1 q1:9 q2:2 false"}, {11, "q0:1 q1:8 q2:2 true"}, {6, "q0:1 q1:3 q2:2 true"}, {4, "q0:1 q1:2 q2:1 true"}} {
		query.GroupLimit = c.limit
		groups, partial := query.GroupDead(w.Store, "default", "", task.Scope{}, task.Dead, w.Now)
		got := ""
		for _, queue := range slices.Sorted(maps.Keys(groups[0].Queues)) {
			got += fmt.Sprintf("%s:%d ", queue, groups[0].Queues[queue])
		}
		if got += fmt.Sprint(partial); got != c.want {
			t.Errorf("with at most %d: %s, want %s", c.limit, got, c.want)
		}
	}
}

// TestGroupsOfOldRows counts dead letters without a fingerprint in their rows: those that died before leaders stored it.
func TestGroupsOfOldRows(t *testing.T) {
	w := NewWorld(t)
	w.PutQueue("mail", task.DefaultSettings(), false)
	w.Die("mail", 2, Deadly)
	want, _ := query.GroupDead(w.Store, "default", "", task.Scope{}, task.Dead, w.Now)
	w.Round(func(r *Round) {
		lo, hi := schema.TableBounds("default", schema.TableDead)
		r.Tx().Scan(lo, hi, func(k, _ []byte) bool {
			x, err := schema.ReadExec(r.Tx(), "default", schema.IDAt(k))
			if err != nil {
				t.Fatal(err)
			}
			x.Fingerprint = 0
			r.Tx().Set(schema.IDKey("default", schema.TableExec, schema.IDAt(k)), x.Encode())
			r.Tx().Set(bytes.Clone(k), nil)
			return true
		})
	})
	got, _ := query.GroupDead(w.Store, "default", "", task.Scope{}, task.Dead, w.Now)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("GroupDead without stored fingerprints = %v, want %v", got, want)
	}
	if _, found := w.pages(query.Filter{Queue: "mail", Fingerprint: fingerprint.Text(want[0].Fingerprint)}, 10); len(found) != 2 {
		t.Errorf("found %d dead letters by fingerprint, want 2", len(found))
	}
	for _, f := range []query.Filter{{Type: want[0].Type}, {Fingerprint: fingerprint.Text(want[0].Fingerprint)}} {
		f.Queue, f.States = "mail", []task.State{task.Dead}
		if _, found := w.pages(f, 10); len(found) != 2 {
			t.Errorf("%+v: found %d dead letters, want 2", f, len(found))
		}
	}
}
