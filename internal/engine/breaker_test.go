package engine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// sameBreakers checks that memory and rows have the same breakers, that they hold the same types, and that the lanes by type are complete.
func sameBreakers(q, again *Queue, now store.Time) error {
	if (q.breakers == nil) != (again.breakers == nil) {
		return fmt.Errorf("queue %q: memory has breakers %v, rows %v", q.name, q.breakers, again.breakers)
	}
	if err := q.lanes.VerifyTypes(again.lanes, q.breakers != nil); err != nil {
		return err
	}
	if q.breakers == nil {
		return nil
	}
	if types := q.breakers.Types(); !slices.Equal(types, again.breakers.Types()) {
		return fmt.Errorf("queue %q: memory has breakers of %v, rows of %v", q.name, types, again.breakers.Types())
	}
	if left, right := openTypes(q), openTypes(again); !maps.Equal(left, right) {
		return fmt.Errorf("queue %q: memory has open breakers %v, rows %v", q.name, left, right)
	}
	for _, typ := range q.breakers.Types() {
		rule, b, c := q.config.Settings.BreakerOf(typ), q.breakers.Of(typ), again.breakers.Of(typ)
		if c == nil {
			return fmt.Errorf("queue %q: the breaker of type %q has no row", q.name, typ)
		}
		left, right := *b, *c
		if left.Seen.Sum(now, rule.Window) != right.Seen.Sum(now, rule.Window) {
			return fmt.Errorf("breaker of type %q: memory has seen %+v, rows %+v", typ, b.Seen, c.Seen)
		}
		left.Seen, right.Seen = breaker.Window{}, breaker.Window{}
		if _, open := openTypes(q)[typ]; left != right || open != (b.State != breaker.Closed) {
			return fmt.Errorf("breaker of type %q: memory has %+v, rows %+v", typ, left, right)
		}
	}
	return nil
}

// openTypes returns the types whose breakers are reported as not closed. The test has no more of them than are reported.
func openTypes(q *Queue) map[string]breaker.Info {
	infos, _ := q.breakers.NotClosed(&q.config.Settings)
	open := map[string]breaker.Info{}
	for _, i := range infos {
		open[i.Type] = i
	}
	return open
}

// dumpBreakers returns all that a leader has in memory of a queue's breakers.
func dumpBreakers(s *breaker.Set) (out []string) {
	for _, typ := range s.Types() {
		out = append(out, fmt.Sprintf("%+v", *s.Of(typ)))
	}
	return out
}

// A queue with very many types has at most breaker.MaxTypes breakers, open or not, and none after all have been idle.
func TestBreakersAreBounded(t *testing.T) {
	w := NewWorld(t)
	s := task.DefaultSettings()
	s.Breaker = task.DefaultBreaker
	s.Breaker.MinAttempts, s.Breaker.FailureRate = 1, 100
	w.PutQueue("default", s, false)
	const types = breaker.MaxTypes + 500
	enqueueBroken(w, types, func(i int) (string, string) { return "job-" + strconv.Itoa(i), "" })
	got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: types, MaxBytes: 1 << 30, Lease: time.Hour})
	w.Round(func(r *Round) {
		for i, c := range got {
			h, err := Hold{Namespace: "default", ID: c.ID, Token: c.Token}, error(nil)
			if i%2 == 0 {
				_, err = Fail(r, h, FailRequest{Action: FailDead})
			} else {
				_, err = Ack(r, h, schema.Result{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	rows := func() (n int) {
		lo, hi := schema.TableBounds("default", schema.TableBreaker)
		w.Store.Scan(lo, hi, func(_, _ []byte) bool { n++; return true })
		return n
	}
	if len(got) != types || rows() != breaker.MaxTypes {
		t.Fatalf("%d of %d types have a breaker", rows(), len(got))
	}
	info, _ := Run(w, func(r *Round) (QueueInfo, error) { return DescribeQueue(r, "default", "default") })
	if info.BreakersOpen != breaker.MaxTypes/2 || len(info.Breakers) != breaker.MaxListed {
		t.Errorf("%d breakers are open, and %d are listed", info.BreakersOpen, len(info.Breakers))
	}
	w.Pass(3 * time.Minute)
	if rows() != breaker.MaxTypes/2 {
		t.Errorf("after the closed breakers were idle, %d breakers are left, want the %d open ones", rows(), breaker.MaxTypes/2)
	}
	if w.Pass(25 * time.Hour); rows() != 0 {
		t.Errorf("after a day %d breakers are left", rows())
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
}
