package relay

import (
	"database/sql"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/outbox"
)

// The page has the values of the status and the relay's own counters. Without the database it says so, and has no values of tables.
func TestMetrics(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	schema, err := outbox.Schema(outbox.SQLite)
	if err != nil {
		t.Fatal(err)
	}
	for _, statements := range []string{schema, `
		INSERT INTO pawl_outbox (id, task) VALUES ('01920000-0000-7000-8000-000000000001', '{}'), ('01920000-0000-7000-8000-000000000002', '{}');
		UPDATE pawl_outbox SET created_at = '2000-01-01T00:00:00.000Z';
		INSERT INTO pawl_outbox_dead (seq, id, queue, task, created_at, error) VALUES (7, '01920000-0000-7000-8000-000000000003', 'q', '{}', '2000-01-01T00:00:00.000Z', 'e')`} {
		if _, err := db.ExecContext(t.Context(), statements); err != nil {
			t.Fatal(err)
		}
	}
	box, err := outbox.Open(t.Context(), db, outbox.SQLite)
	if err != nil {
		t.Fatal(err)
	}
	client, err := pawl.Dial("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	relay, err := outbox.NewRelay(box, client, outbox.RelayConfig{})
	if err != nil {
		t.Fatal(err)
	}
	page := func() string {
		w := httptest.NewRecorder()
		(&figures{box, relay}).handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
	for _, want := range []string{"pawl_outbox_up 1\n", "pawl_outbox_waiting_rows 2\n", "pawl_outbox_dead_rows 1\n",
		"pawl_outbox_relay_active 0\n", "pawl_outbox_oldest_row_seconds 8", `pawl_outbox_rows_total{result="enqueued"} 0`,
		`pawl_outbox_rows_total{result="repeated"} 0`, `pawl_outbox_rows_total{result="dead"} 0`} {
		if !strings.Contains(page(), "\n"+want) {
			t.Errorf("the page lacks %q:\n%s", want, page())
		}
	}
	_ = db.Close()
	if p := page(); !strings.Contains(p, "\npawl_outbox_up 0\n") || strings.Contains(p, "rows 2") ||
		!strings.Contains(p, "pawl_outbox_relay_active 0") {
		t.Errorf("the page without the database is\n%s", p)
	}
}
