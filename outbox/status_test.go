package outbox_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/outbox"
	"github.com/pawlq/pawl/pawltest"
)

// anHourEarlier is an expression for the time an hour before a row was created.
var anHourEarlier = map[outbox.Dialect]string{
	outbox.Postgres: "created_at - INTERVAL '1 hour'",
	outbox.MySQL:    "created_at - INTERVAL 1 HOUR",
	outbox.SQLite:   "strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '-1 hour')",
}

func TestStatus(t *testing.T) {
	everyDialect(t, func(t *testing.T, d outbox.Dialect, db *sql.DB) {
		box := newBox(t, d, db)
		status := func() *outbox.Status {
			t.Helper()
			s, err := box.Status(t.Context(), 2)
			must(t, err)
			return s
		}
		if s := status(); s.Waiting != 0 || s.Oldest != 0 || s.Dead != 0 || s.Newest != nil || s.Active || s.Holder != "" {
			t.Errorf("the status of a new outbox is %+v", s)
		}
		began := time.Now()
		for i := range 4 {
			enqueue(t, box, db, receipt{}, pawl.Timeout(-1), pawl.Queue(fmt.Sprint("q", i)))
			if i == 0 {
				exec(t, db, "UPDATE pawl_outbox SET created_at = "+anHourEarlier[d])
			}
		}
		if s := status(); s.Waiting != 4 || s.Oldest < time.Hour-time.Second || s.Oldest > time.Hour+time.Since(began)+time.Second {
			t.Errorf("4 rows are waiting, the first for %s more than an hour, but the status is %+v", time.Since(began), s)
		}
		r, stop := startRelay(t, box, pawltest.New(t).Client(t), outbox.RelayConfig{Lease: time.Hour})
		eventually(t, "the rows are dead", func() bool { return r.Stats().Dead == 4 })
		s := status()
		if pid := fmt.Sprintf("/%d/", os.Getpid()); !s.Active || !strings.Contains(s.Holder, pid) {
			t.Errorf("the relay's holder is %q, active %v, want one of process %s", s.Holder, s.Active, pid)
		}
		if s.Waiting != 0 || s.Dead != 4 || len(s.Newest) != 2 || s.Newest[0].Queue != "q3" || s.Newest[1].Queue != "q2" ||
			s.Newest[0].Since > time.Since(began)+time.Second || !strings.Contains(s.Newest[0].Error, "timeout") ||
			len(s.Newest[0].ID) != 36 || s.Newest[0].Seq <= s.Newest[1].Seq {
			t.Errorf("the status of the dead rows is %+v", s)
		}
		stop()
		if status().Active {
			t.Error("a relay that has stopped is reported as active")
		}
		for _, n := range []int{-1, 1001} {
			if _, err := box.Status(t.Context(), n); !errors.Is(err, pawl.ErrInvalidArgument) {
				t.Errorf("Status with %d dead rows: %v, want ErrInvalidArgument", n, err)
			}
		}
	})
}
