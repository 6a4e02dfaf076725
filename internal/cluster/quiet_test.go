package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/system/workers"
)

// heard is what a copy has reported about quiet workers.
type heard map[workers.Name]workers.Quiet

func (h heard) listen(_ uint64, all bool, quiet []workers.Quiet, resumed []workers.Name) {
	if all {
		clear(h)
	}
	for _, q := range quiet {
		h[q.WorkerName()] = q
	}
	for _, w := range resumed {
		delete(h, w)
	}
}

func TestQuietWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.open(1)
		c := w.leader.control
		cp, told := NewCopy(nil), heard{}
		cp.OnQuiet(told.listen)
		follow := func() { t.Helper(); cp.Apply(poll(t, c, cp.Version(), 0)) }
		follow()
		a, b := workers.Name{Namespace: "default", ID: "a"}, workers.Name{Namespace: "default", ID: "b"}
		quiet := func(name workers.Name, reason string) workers.Quiet {
			t.Helper()
			by := lena
			by.Reason = reason
			row, err := c.Workers.QuietWorker(bg, by, name, "host/1", workers.QuietFor)
			must(t, err)
			return row
		}
		row := quiet(a, "deploy")
		if row.By != "lena" || row.Until.Sub(row.At) != workers.QuietFor || row.Version == 0 {
			t.Errorf("QuietWorker = %+v, want a row by lena for workers.QuietFor", row)
		}
		quiet(b, "")
		follow()
		if told[a] != row || len(told) != 2 {
			t.Errorf("the copy reported %+v, want a and b", told)
		}
		pass(time.Hour)
		if again := quiet(a, "deploy"); again.At != row.At || again.Until.Sub(row.Until).Round(time.Second) != time.Hour {
			t.Errorf("repeating QuietWorker = %+v, want the same start and a later end", again)
		}
		was, err := c.Workers.ResumeWorker(bg, lena, b)
		must(t, err)
		none, err := c.Workers.ResumeWorker(bg, lena, workers.Name{Namespace: "default", ID: "c"})
		must(t, err)
		if !was || none {
			t.Errorf("ResumeWorker reported that b was quiet: %v, and that one that was not quiet was: %v", was, none)
		}
		follow()
		if len(told) != 1 || told[a].Until.Equal(row.Until) {
			t.Errorf("after a resume the copy reported %+v, want a with its later end", told)
		}
		if got, want := w.leader.noted(), []string{"lena worker.quiet a", "lena worker.quiet b", "lena worker.resume b"}; !slices.Equal(got,
			want) {
			t.Errorf("the audit log has %q, want %q", got, want)
		}
		fresh := heard{}
		other := NewCopy(nil)
		other.OnQuiet(fresh.listen)
		other.Apply(poll(t, c, 0, 0))
		if len(fresh) != 1 || fresh[a] != told[a] {
			t.Errorf("a new copy reported %+v, want only a", fresh)
		}
	})
}
