package quotas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A division gives shards their shares, and its row says what each may use. Dividing again changes nothing, sends
// nothing and writes nothing.
func TestDivide(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, w *world) {
		w.setQuotas("team", task.Quotas{Backlog: 100})
		w.setQuotas("other", task.Quotas{Backlog: 7})
		w.hold("team", 40, 0)
		must(t, w.divider.Divide(bg, "team"))
		if got := fmt.Sprint(w.backlogs("team", 3)); got != "[85 15 0]" {
			t.Errorf("shares are %s", got)
		}
		row := w.row("team")
		for i, p := range row {
			s := w.share(p.Shard, "team")
			want := divisionPart{Shard: uint32(i) + 1, Version: s.Version, Most: s.Amounts} // #nosec G115 -- a few
			if p != want || p.Version == 0 || s.Bytes != unlimited || s.Running != unlimited {
				t.Errorf("the row has %+v, and the shard the share %+v", p, s)
			}
		}
		if len(row) != 3 || w.row("other") != nil || w.share(1, "other").Version != 0 {
			t.Errorf("the rows are %+v and, of another namespace, %+v", row, w.row("other"))
		}

		before := w.Updates
		w.traffic()
		must(t, w.divider.Divide(bg, "team"))
		if asked, put := w.traffic(); asked != 3 || len(put) > 0 || w.Updates != before {
			t.Errorf("dividing again asked %d shards, sent shares to %v and wrote %d times, want 3, none and none", asked,
				put, w.Updates-before)
		}
		// What is in use in a shard without queues is nobody else's until it ends.
		w.use(2, "team", func(s *task.Space) { s.Queues, s.Use.Backlog = 0, 10 })
		must(t, w.divider.Divide(bg, "team"))
		if got := w.row("team"); got[1].Most.Backlog != 10 || got[0].Most.Backlog != 90 || fmt.Sprint(w.backlogs("team", 3)) != "[90 0 0]" {
			t.Errorf("with a backlog of 10 in a shard without queues, the shares are %v, and the row is %+v", w.backlogs("team", 3), got)
		}
		w.use(2, "team", func(s *task.Space) { s.Use.Backlog = 9 })
		w.traffic()
		must(t, w.divider.Divide(bg, "team"))
		if _, put := w.traffic(); fmt.Sprint(put) != "[1]" || w.row("team")[1].Most.Backlog != 9 || w.share(1, "team").Backlog != 91 {
			t.Errorf("when one task has ended, shares went to %v: %v, and the row is %+v", put, w.backlogs("team", 3), w.row("team"))
		}

		w.Round(func(tx *store.Tx) { Forget(tx, "team") })
		if w.row("team") != nil {
			t.Errorf("a namespace that was forgotten has the row %+v", w.row("team"))
		}
	})
}

// The row is written although no share changes: a shard uses more than its share.
func TestUseBeyondTheShareIsWritten(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.setQuotas("team", task.Quotas{Backlog: 10})
		w.hold("team", 10)
		must(t, w.divider.Divide(bg, "team"))
		w.use(1, "team", func(s *task.Space) { s.Use.Backlog = 12 })
		w.traffic()
		must(t, w.divider.Divide(bg, "team"))
		if _, put := w.traffic(); len(put) > 0 || w.row("team")[0].Most.Backlog != 12 || w.share(1, "team").Backlog != 10 {
			t.Errorf("with 12 in use of a share of 10, shares went to %v, and the row is %+v", put, w.row("team"))
		}
	})
}

// No shard is asked about a namespace that does not exist, or has had no quotas so far. If it had some, all shards are
// told that there is no limit.
func TestNothingToDivide(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.setQuotas("free", task.Quotas{Queues: 5})
		w.remove("leaving", task.Quotas{Backlog: 5})
		for _, ns := range []string{"nobody", "free", "leaving", "default"} {
			must(t, w.divider.Divide(bg, ns))
			if asked, put := w.traffic(); asked+len(put) != 0 || w.row(ns) != nil {
				t.Errorf("namespace %q: %d shards were asked, %v got shares, and the row is %+v", ns, asked, put, w.row(ns))
			}
		}
		w.setQuotas("team", task.Quotas{Backlog: 10})
		w.hold("team", 0, 0)
		must(t, w.divider.Divide(bg, "team"))
		w.setQuotas("team", task.Quotas{})
		must(t, w.divider.Divide(bg, "team"))
		if a, b := w.share(1, "team"), w.share(2, "team"); a.Amounts != task.Unlimited || b.Amounts != task.Unlimited {
			t.Errorf("when the quota was lifted, shares are %+v and %+v", a, b)
		}
		w.setShards(3) // the new shard confirms that it knows of no limit
		must(t, w.divider.Divide(bg, "team"))
		if row := w.row("team"); len(row) != 3 || row[2].Version == 0 || row[2].Version != w.share(3, "team").Version {
			t.Errorf("with another shard, the row is %+v, and its share %+v", row, w.share(3, "team"))
		}
	})
}

// A shard without a queue of the namespace gets nothing, whichever it is.
func TestShardWithoutQueues(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, w *world) {
		w.setQuotas("team", task.Quotas{Backlog: 10})
		for shard, want := range []string{"[10 0 0]", "[0 10 0]", "[0 0 10]"} {
			for other := range uint32(3) {
				w.use(other+1, "team", func(s *task.Space) { s.Queues = 0 })
			}
			w.use(uint32(shard)+1, "team", func(s *task.Space) { s.Queues = 1 }) // #nosec G115 -- a few
			must(t, w.divider.Divide(bg, "team"))
			if got := fmt.Sprint(w.backlogs("team", 3)); got != want {
				t.Errorf("with the only queue in shard %d, shares are %s", shard+1, got)
			}
		}
	})
}

// A new shard has nothing to divide until it gets a queue. Then others give up some of theirs.
func TestShardIsAdded(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		w.setQuotas("team", task.Quotas{Backlog: 10})
		w.hold("team", 0)
		must(t, w.divider.Divide(bg, "team"))
		w.setShards(2)
		must(t, w.divider.Divide(bg, "team"))
		if got := fmt.Sprint(w.backlogs("team", 2)); got != "[10 0]" {
			t.Errorf("before the new shard has a queue, shares are %s", got)
		}
		must(t, w.divider.EnsureShare(bg, "team", 2))
		if got := w.backlogs("team", 2); got[0]+got[1] != 10 || got[1] < 5 {
			t.Errorf("before the new shard gets its queue, shares are %v", got)
		}
		must(t, w.divider.Divide(bg, "team")) // it did not get one after all
		if got := fmt.Sprint(w.backlogs("team", 2)); got != "[10 0]" {
			t.Errorf("when the new shard did not get its queue, shares are %s", got)
		}
	})
}

// A shard that does not answer keeps what it may use, nothing is sent to it, and the others get no more than it leaves.
// The error says which namespace and why.
func TestSilentShardKeepsItsShare(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, w *world) {
		w.setQuotas("team", task.Quotas{Backlog: 90})
		w.hold("team", 0, 0, 0)
		must(t, w.divider.Divide(bg, "team"))
		was := w.row("team")
		w.fail(w.silent, 3, errCut)
		w.hold("team", 30, 0, 0)
		w.setQuotas("team", task.Quotas{Backlog: 60})
		w.traffic()
		is(t, w.divider.Divide(bg, "team"), task.ErrUnavailable, `namespace "team"`, "not all shards have confirmed", errCut.Error())
		if _, put := w.traffic(); slices.Contains(put, 3) {
			t.Errorf("shares were sent to shards %v", put)
		}
		if got := fmt.Sprint(w.backlogs("team", 3)); got != "[30 0 30]" {
			t.Errorf("shares of 60 are %s", got)
		}
		if row := w.row("team"); row[2] != was[2] {
			t.Errorf("the silent shard has %+v in the row, want %+v", row[2], was[2])
		}

		w.fail(w.silent, 3, nil)
		w.setOnAsk(func(ctx context.Context, shard uint32) error { // it takes the call, and never answers
			if shard == 3 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		began := time.Now()
		is(t, w.divider.Divide(bg, "team"), task.ErrUnavailable, context.DeadlineExceeded.Error())
		if took := time.Since(began); took != askTimeout {
			t.Errorf("waiting for a shard took %v, want %v", took, askTimeout)
		}
		w.setOnAsk(nil)
		must(t, w.divider.Divide(bg, "team"))
		if got := w.backlogs("team", 3); got[0]+got[1]+got[2] != 60 || got[2] == 30 {
			t.Errorf("when all answer, shares are %v", got)
		}
	})
}

// While a lowered share may not have arrived, the shard's earlier one counts. It is sent once in a division, and again in the next.
func TestShareIsLost(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.setQuotas("team", task.Quotas{Backlog: 50})
		w.hold("team", 0)
		must(t, w.divider.Divide(bg, "team"))
		w.hold("team", 0, 0)
		w.fail(w.refuses, 1, errCut)
		w.traffic()
		is(t, w.divider.Divide(bg, "team"), task.ErrUnavailable, errCut.Error())
		if _, put := w.traffic(); fmt.Sprint(put) != "[1]" {
			t.Errorf("shares were sent to %v, want only the lower one", put)
		}
		row := w.row("team")
		if row[0].Most.Backlog != 50 || row[0].Version <= w.share(1, "team").Version || row[1].Most.Backlog != 0 ||
			w.share(2, "team").Backlog != 0 {
			t.Errorf("while a lower share may be lost, the row is %+v and shares are %v", row, w.backlogs("team", 2))
		}
		// A leader that knows nothing but the row comes to the same.
		w.divider = New(w.shard, w, w.divider.log)
		w.fail(w.refuses, 1, nil)
		w.fail(w.loses, 1, errCut) // the share arrives, and the answer is lost
		is(t, w.divider.Divide(bg, "team"), task.ErrUnavailable)
		if row := w.row("team"); row[0].Most.Backlog != 50 || w.share(1, "team").Backlog != 25 || w.share(2, "team").Backlog != 0 {
			t.Errorf("while a lower share is not confirmed, the row is %+v and shares are %v", row, w.backlogs("team", 2))
		}
		w.fail(w.loses, 1, nil)
		must(t, w.divider.Divide(bg, "team"))
		if got := fmt.Sprint(w.backlogs("team", 2)); got != "[25 25]" {
			t.Errorf("when all is confirmed, shares are %s", got)
		}
	})
}

// A raised share that was lost is sent again, although no share has to be lowered.
func TestRaisedShareIsLost(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.setQuotas("team", task.Quotas{Backlog: 10})
		w.hold("team", 0)
		must(t, w.divider.Divide(bg, "team"))
		w.setQuotas("team", task.Quotas{Backlog: 30})
		w.fail(w.refuses, 1, errCut)
		is(t, w.divider.Divide(bg, "team"), task.ErrUnavailable, errCut.Error())
		if row := w.row("team"); row[0].Most.Backlog != 30 || row[0].Sent.Backlog != 30 || w.share(1, "team").Backlog != 10 {
			t.Errorf("while the share is on its way, the row is %+v, and the share %+v", row, w.share(1, "team"))
		}
		w.traffic()
		is(t, w.divider.Divide(bg, "team"), task.ErrUnavailable, errCut.Error())
		if _, put := w.traffic(); fmt.Sprint(put) != "[1]" {
			t.Errorf("a division sent a share that was lost to %v, want once", put)
		}
		w.fail(w.refuses, 1, nil)
		must(t, w.divider.Divide(bg, "team"))
		_, put := w.traffic()
		if row := w.row("team"); fmt.Sprint(put) != "[1]" || row[0].Version != w.share(1, "team").Version ||
			w.share(1, "team").Backlog != 30 || row[0].Sent != (task.Amounts{}) {
			t.Errorf("the next division sent shares to %v, the row is %+v, and the share %+v", put, row, w.share(1, "team"))
		}
	})
}

// Nothing is sent before what it allows is written: not if the write fails, nor if the namespace was removed in the meantime.
func TestSharesAreWrittenBeforeTheyAreSent(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.setQuotas("team", task.Quotas{Backlog: 50})
		w.hold("team", 10, 10)
		r := w.replica
		for failing := 1; failing <= 2; failing++ { // the round before lower shares, and the one before raised ones
			if r.rounds, r.failRound = 0, failing; !errors.Is(w.divider.Divide(bg, "team"), errCut) || r.rounds != failing {
				t.Errorf("round %d failed, and the division ran %d rounds, or without an error", failing, r.rounds)
			}
			if _, put := w.traffic(); failing == 1 && len(put) > 0 {
				t.Errorf("shares were sent to %v unwritten", put)
			}
			w.setQuotas("team", task.Quotas{Backlog: 50 + int64(failing)})
			w.hold("team", 20, 10)
		}
		was := w.row("team")
		w.setOnAsk(func(_ context.Context, shard uint32) error {
			if shard == 1 {
				w.remove("team", task.Quotas{Backlog: 90})
			}
			return nil
		})
		w.traffic()
		is(t, w.divider.Divide(bg, "team"), task.ErrNotFound, `"team"`)
		if _, put := w.traffic(); len(put) > 0 || !slices.Equal(w.row("team"), was) {
			t.Errorf("a namespace that is gone got shares in %v, and the row %+v, want %+v", put, w.row("team"), was)
		}
	})
}

// A row that can't be read is an error, and no reason to divide as if it were not there.
func TestDamagedRows(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.setQuotas("team", task.Quotas{Backlog: 50})
		w.hold("team", 10, 10)
		must(t, w.divider.Divide(bg, "team"))
		w.traffic()
		settings := []byte("ms")
		for _, key := range [][]byte{namespaceKey("team"), settings, rowOf("team")} {
			was := w.Get(key)
			w.Damage(key)
			if err := w.divider.Divide(bg, "team"); err == nil || !strings.Contains(err.Error(), "unknown form") {
				t.Errorf("row %q is damaged: Divide returns %v", key, err)
			}
			if all, err := w.divider.divisions(bg); err == nil || len(all) > 0 {
				t.Errorf("row %q is damaged: there are %d divisions, %v", key, len(all), err)
			}
			w.Put(key, was)
		}
		w.Damage(rowOf("team"))
		if err := w.divider.EnsureShare(bg, "team", 1); err == nil || !strings.Contains(err.Error(), "unknown form") {
			t.Errorf("the division's row is damaged: EnsureShare returns %v", err)
		}
		w.remove("team", task.Quotas{Backlog: 50}) // creating the queue will say so
		must(t, w.divider.EnsureShare(bg, "team", 1))
		w.Damage(namespaceKey("team"))
		must(t, w.divider.EnsureShare(bg, "team", 1))
		if asked, put := w.traffic(); asked+len(put) > 0 {
			t.Errorf("damaged rows had %d shards asked, and %v got shares", asked, put)
		}
	})
}

// One division runs at a time. A caller that waits for another gives up when its context ends.
func TestDivisionsTakeTurns(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		w.setQuotas("team", task.Quotas{Backlog: 50})
		w.hold("team", 10)
		release, asking := make(chan struct{}), 0
		w.setOnAsk(func(context.Context, uint32) error { asking++; <-release; return nil })
		results := make(chan error, 2)
		go func() { results <- w.divider.Divide(bg, "team") }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(bg)
		go func() { results <- w.divider.Divide(ctx, "team") }()
		synctest.Wait()
		cancel()
		if err := <-results; !errors.Is(err, context.Canceled) || asking != 1 {
			t.Errorf("the second of two divisions returned %v, and the shard was asked %d times", err, asking)
		}
		close(release)
		must(t, <-results)
		must(t, w.divider.Divide(bg, "team")) // the first has made room
	})
}

// A shard knows its share before it gets a queue. If it does already, nobody is asked.
func TestEnsureShare(t *testing.T) {
	const all = 10
	part := func(shard uint32, most int64) divisionPart {
		return divisionPart{Shard: shard, Version: 4, Most: task.Amounts{Backlog: most, Bytes: unlimited, Running: unlimited}}
	}
	for name, c := range map[string]struct {
		quotas task.Quotas
		row    []divisionPart // of the namespace
		shard  uint32
		divide bool
	}{
		"not divided yet":               {task.Quotas{Backlog: all}, nil, 1, true},
		"a new shard":                   {task.Quotas{Backlog: all}, []divisionPart{part(1, 10)}, 2, true},
		"it has nothing":                {task.Quotas{Backlog: all}, []divisionPart{part(1, 10), part(2, 0)}, 2, true},
		"it may have more than all":     {task.Quotas{Backlog: all}, []divisionPart{part(1, 11), part(2, 5)}, 1, true},
		"it has all":                    {task.Quotas{Backlog: all}, []divisionPart{part(1, 10), part(2, 0)}, 1, false},
		"it has a share":                {task.Quotas{Backlog: all}, []divisionPart{part(1, 9), part(2, 1)}, 2, false},
		"the quota was lifted":          {task.Quotas{}, []divisionPart{part(1, 0), part(2, 0)}, 1, false},
		"there are no quotas":           {task.Quotas{Queues: 3}, nil, 1, false},
		"the other one is not asked of": {task.Quotas{Backlog: all}, []divisionPart{part(1, 0), part(2, 5)}, 2, false},
	} {
		inBubble(t, 2, func(t *testing.T, w *world) {
			w.setQuotas("team", c.quotas)
			if c.row != nil {
				w.setRow("team", c.row...)
			}
			must(t, w.divider.EnsureShare(bg, "team", c.shard))
			if asked, _ := w.traffic(); asked > 0 != c.divide {
				t.Errorf("%s: %d shards were asked", name, asked)
			}
			other := 3 - c.shard
			if got := w.share(c.shard, "team").Backlog; c.divide && (got != all || w.share(other, "team").Backlog != 0) {
				t.Errorf("%s: the shard that gets the only queue has a share of %d, and the other one of %d", name, got,
					w.share(other, "team").Backlog)
			}
		})
	}
	inBubble(t, 3, func(t *testing.T, w *world) { // a shard that is away does not keep another from its first share
		w.setQuotas("team", task.Quotas{Backlog: all})
		must(t, w.divider.Divide(bg, "team"))
		w.fail(w.silent, 3, errCut)
		must(t, w.divider.EnsureShare(bg, "team", 1))
		if got := w.share(1, "team").Backlog; got == 0 {
			t.Error("the shard has no share")
		}
		w.fail(w.silent, 2, errCut)
		is(t, w.divider.EnsureShare(bg, "team", 2), task.ErrUnavailable, errCut.Error())
	})
	inBubble(t, 2, func(t *testing.T, w *world) {
		must(t, w.divider.EnsureShare(bg, "nobody", 1))
		w.setQuotas("team", task.Quotas{Backlog: all})
		w.fail(w.silent, 2, errCut)
		is(t, w.divider.EnsureShare(bg, "team", 1), task.ErrUnavailable, errCut.Error())
		w.replica.failViews(errCut)
		if err := w.divider.EnsureShare(bg, "team", 1); !errors.Is(err, errCut) {
			t.Errorf("a view failed, and EnsureShare returns %v", err)
		}
	})
}

// A namespace is removed, and made again, while the quotas of the first one are divided: the second has no row then.
func TestDivisionOfAnEarlierNamespace(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.setQuotas("team", task.Quotas{Backlog: 50})
		w.setRow("team", divisionPart{Shard: 1, Version: 7, Most: task.Amounts{Backlog: 50}}, divisionPart{Shard: 2, Version: 7})
		w.setOnAsk(func(context.Context, uint32) error {
			w.setOnAsk(nil)
			w.change(func(tx *store.Tx) error { Forget(tx, "team"); return nil })
			return nil
		})
		if err := w.divider.Divide(bg, "team"); !errors.Is(err, task.ErrUnavailable) || w.row("team") != nil {
			t.Errorf("a division of an earlier namespace ended with %v, and left the row %+v", err, w.row("team"))
		}
	})
}
