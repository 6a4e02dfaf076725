package datadir

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// A state is refused unless the minimum stays free beside it. That is reported until it is accepted, or no longer sent.
func TestNoRoomForState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := &Space{Node: "n1", Min: 100 << 20, Free: func(string) (int64, error) { return 500 << 20, nil },
			Logger: slog.New(slog.NewTextHandler(&log, nil))}
		if err := r.MustHold(1, 400<<20); err != nil || len(r.NoRoom()) != 0 {
			t.Errorf("what fits exactly is refused: %v", err)
		}
		for range 3 {
			if err := r.MustHold(2, 400<<20+1); err == nil ||
				err.Error() != "the disk of node n1 has 500 MiB free: the state of shard 2 takes 400 MiB, and 100 MiB must stay free "+
					"(--min-free)" {
				t.Errorf("a byte more: %v", err)
			}
		}
		_ = r.MustHold(0, 900<<20)
		if told := strings.Count(log.String(), "no room for the state"); told != 2 {
			t.Errorf("the log says %q", log.String())
		}
		got := r.NoRoom()
		if len(got) != 2 || got[0].Shard != 0 || got[1].Shard != 2 || got[1].Bytes != 400<<20+1 {
			t.Errorf("reported is %+v", got)
		}
		if err := r.MustHold(2, 1); err != nil || len(r.NoRoom()) != 1 {
			t.Errorf("once it fits: %v, %+v", err, r.NoRoom())
		}
		time.Sleep(refusalKept + 1)
		if got := r.NoRoom(); len(got) != 0 {
			t.Errorf("no longer sent: %+v", got)
		}
		var none *Space
		if err := none.MustHold(1, 1<<60); err != nil || none.NoRoom() != nil {
			t.Errorf("in memory: %v", err)
		}
	})
}

// A disk counts as full as soon as less than the bound is free, and as having space again only once a quarter more has been free
// for half a minute: a leader that came back for a few bytes would have to leave again.
func TestFullDiskRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free, failing := int64(1000), error(nil)
		r := &Space{Node: "n1", Min: 1000, Free: func(string) (int64, error) { return free, failing }}
		changes := 0
		is := func(when string, have int64, want bool) {
			t.Helper()
			free = have
			full, changed := r.isFull(time.Now())
			if full != want {
				t.Errorf("%s, with %d Free: full %v, want %v", when, have, full, want)
			}
			if changed {
				changes++
			}
		}
		is("at the bound", 1000, false)
		is("below it", 999, true)
		is("a little room", 1249, true)
		time.Sleep(time.Hour)
		is("a little room for long", 1249, true)
		is("a quarter more", 1250, true)
		time.Sleep(spareFor - 1)
		is("not for long enough", 1250, true)
		is("gone again", 1249, true)
		is("and back", 1250, true)
		time.Sleep(spareFor - 1)
		is("which counts anew", 1250, true)
		time.Sleep(time.Nanosecond)
		failing = errors.New("nobody knows")
		is("nobody knows", 0, true)
		failing = nil
		is("long enough", 1250, false)
		is("less, and above the bound", 1000, false)
		failing = errors.New("nobody knows")
		is("nobody knows", 0, false)
		if changes != 2 {
			t.Errorf("%d changes were told, want 2", changes)
		}
	})
}

// Enqueues are refused below the bound, but not at it; the refusal names the node.
func TestEnqueueAtTheDiskLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := int64(256 << 20)
		r := &Space{Node: "berlin", Min: 256 << 20, Free: func(string) (int64, error) { return free, nil }}
		for _, c := range []struct {
			free int64
			ok   bool
		}{{256 << 20, true}, {256<<20 - 1, false}, {256 << 20, true}} {
			free = c.free
			time.Sleep(spaceCheckInterval)
			err := r.Check()
			if e, refused := task.AsError(err); (err == nil) != c.ok || refused && (e.Code != task.CodeUnavailable || e.RetryAfter == 0 ||
				!strings.Contains(e.Message, "node berlin has less than 256 MiB")) {
				t.Errorf("with %d Free: %v", c.free, err)
			}
		}
	})
}
