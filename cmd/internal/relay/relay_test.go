package relay

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/outbox"
)

// addresses is a log's handler that sends the addresses of its records.
type addresses struct {
	slog.Handler
	to chan string
}

func (h addresses) Enabled(context.Context, slog.Level) bool { return true }

func (h addresses) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "address" {
			h.to <- a.Value.String()
		}
		return true
	})
	return nil
}

// A relay that starts while its database is down serves its metrics until it is told to stop.
func TestRelayWithoutDatabaseServesMetrics(t *testing.T) {
	db, err := parse("mysql://root@/shop?socket=" + t.TempDir() + "/none")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	to, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- relay(cmd, db, nil, outbox.RelayConfig{Logger: slog.New(addresses{slog.DiscardHandler, to})}, "127.0.0.1:0")
	}()
	select {
	case err := <-done:
		t.Fatalf("the relay ended: %v", err)
	case addr := <-to:
		res, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || !strings.Contains(string(page), "\npawl_outbox_up 0\n") || !strings.Contains(string(page),
			"\npawl_outbox_relay_active 0\n") {
			t.Errorf("the metrics are %v,\n%s", err, page)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("a relay that was told to stop returned %v", err)
	}
}
