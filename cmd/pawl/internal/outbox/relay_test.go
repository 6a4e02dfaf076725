package outbox

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/outbox"
)

// A relay that starts while its database is down keeps trying until it is told to stop.
func TestReachWithoutDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := parse("mysql://root@/shop?socket=" + t.TempDir() + "/none")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		ctx, stop := context.WithTimeout(t.Context(), 10*reachEvery+time.Millisecond)
		defer stop()
		var log bytes.Buffer
		if box, err := reach(ctx, db, slog.New(slog.NewTextHandler(&log, nil))); box != nil || err != nil {
			t.Errorf("reach = %v, %v after its context has ended, want neither an outbox nor an error", box, err)
		}
		if n := strings.Count(log.String(), "the database can't be reached"); n != 11 || !strings.Contains(log.String(), "none") {
			t.Errorf("reach logged %d attempts in ten seconds, want 11 with the error:\n%s", n, log.String())
		}
	})
}

// A relay whose tables are missing ends: waiting would not help.
func TestReachWithoutTables(t *testing.T) {
	file := t.TempDir() + "/box.db"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := parse("sqlite:" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if box, err := reach(t.Context(), db, slog.New(slog.DiscardHandler)); box != nil || !errors.Is(err, outbox.ErrSchema) {
		t.Errorf("reach = %v, %v, want ErrSchema", box, err)
	}
}
