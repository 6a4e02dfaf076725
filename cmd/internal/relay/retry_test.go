package relay

import (
	"os"
	"testing"

	"github.com/pawlq/pawl/outbox"
)

// Each row is retried once, even if it is dead again immediately.
func TestRetryAllEnds(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"box.db": "", "dsn": "sqlite:" + dir + "/box.db"} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db, err := open(dir + "/dsn")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	schema, err := outbox.Schema(outbox.SQLite)
	if err != nil {
		t.Fatal(err)
	}
	// As if a relay were refused each row as soon as it is retried. Sequence numbers run out only if rows are retried repeatedly.
	for _, statement := range []string{schema, `
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 501)
		INSERT INTO pawl_outbox_dead (seq, id, queue, task, created_at, error) SELECT i, i, 'mail', '{}', '', 'unknown type' FROM n;
		INSERT INTO pawl_outbox (seq, id, task) VALUES (501, '', ''); DELETE FROM pawl_outbox;
		CREATE TRIGGER dies_again AFTER INSERT ON pawl_outbox BEGIN
			SELECT RAISE(ABORT, 'rows are put back again and again') WHERE NEW.seq > 4 * 501;
			INSERT INTO pawl_outbox_dead (seq, id, queue, task, created_at, error) VALUES (NEW.seq, NEW.id, NEW.queue, NEW.task, '', 'unknown type');
			DELETE FROM pawl_outbox WHERE seq = NEW.seq;
		END`} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	box, err := outbox.Open(t.Context(), db.DB, db.dialect)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := retryAll(t.Context(), box); err != nil || n != 501 {
		t.Errorf("retryAll = %d, %v, want 501", n, err)
	}
	var first, last, rows int
	if err := db.QueryRowContext(t.Context(), "SELECT min(seq), max(seq), count(*) FROM pawl_outbox_dead").Scan(&first, &last,
		&rows); err != nil {
		t.Fatal(err)
	}
	if first != 502 || last != 1002 || rows != 501 {
		t.Errorf("the %d rows have the sequence numbers %d to %d, want 501 rows retried once: 502 to 1002", rows, first, last)
	}
}
