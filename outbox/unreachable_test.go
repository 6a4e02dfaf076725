package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/outbox"
)

// database is a database/sql driver whose only content is the version of the tables, and which can be down.
type database struct {
	mu      sync.Mutex
	down    bool
	version int  // 0: the tables are missing
	refuses int  // the next connections, as a database does that is starting
	breaks  int  // the connections that break in the next queries, as those from before a restart do
	denied  bool // no row can be read
}

func (d *database) set(down bool, version int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down, d.version = down, version
}

// restart makes the database refuse and break that many connections.
func (d *database) restart(refuses, breaks int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuses, d.breaks = refuses, breaks
}

func (d *database) Connect(context.Context) (driver.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down || d.refuses > 0 {
		d.refuses--
		return nil, errors.New("connection refused")
	}
	return &connection{d: d}, nil
}

func (d *database) Driver() driver.Driver { return nil }

type connection struct {
	driver.Conn
	d      *database
	broken bool
}

func (c *connection) usable() error {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	switch {
	case c.broken:
		return driver.ErrBadConn
	case c.d.down || c.d.breaks > 0:
		c.broken = true
		c.d.breaks--
		return errors.New("connection reset by peer")
	}
	return nil
}

func (c *connection) Close() error               { return nil }
func (c *connection) IsValid() bool              { return !c.broken }
func (c *connection) Ping(context.Context) error { return c.usable() }

func (c *connection) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), c.usable()
}

func (c *connection) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	switch {
	case query == "SELECT 1":
		return &answer{left: []int{1}}, nil
	case !strings.Contains(query, "pawl_outbox_schema"):
		c.d.mu.Lock()
		defer c.d.mu.Unlock()
		if c.d.denied {
			return nil, errors.New("permission denied")
		}
		return &answer{}, nil
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if c.d.version == 0 {
		return nil, errors.New("no such table")
	}
	return &answer{left: []int{c.d.version}}, nil
}

type answer struct{ left []int }

func (a *answer) Columns() []string { return []string{"version"} }
func (a *answer) Close() error      { return nil }

func (a *answer) Next(into []driver.Value) error {
	if len(a.left) == 0 {
		return io.EOF
	}
	into[0], a.left = int64(a.left[0]), a.left[1:]
	return nil
}

// Open returns ErrSchema only if the database answers.
func TestOpenWithoutDatabase(t *testing.T) {
	d := &database{version: outbox.SchemaVersion}
	db := sql.OpenDB(d)
	defer db.Close()
	_, err := outbox.Open(t.Context(), db, outbox.SQLite)
	must(t, err)
	d.restart(0, 1)
	if _, err := outbox.Open(t.Context(), db, outbox.SQLite); err != nil {
		t.Errorf("after a restart of the database, Open returned %v", err)
	}
	for _, c := range []struct {
		name            string
		refuses, breaks int
		want            string
	}{
		{"restarts twice", 0, 2, "connection reset"},
		{"is starting", 1, 1, "connection refused"},
	} {
		d.restart(c.refuses, c.breaks)
		if _, err := outbox.Open(t.Context(), db, outbox.SQLite); err == nil || errors.Is(err, outbox.ErrSchema) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("while the database %s, Open returned %v, want %q", c.name, err, c.want)
		}
		if _, err := outbox.Open(t.Context(), db, outbox.SQLite); err != nil {
			t.Errorf("after the database %s, Open returned %v", c.name, err)
		}
	}
	d.set(true, outbox.SchemaVersion)
	if _, err := outbox.Open(t.Context(), db, outbox.SQLite); err == nil || errors.Is(err, outbox.ErrSchema) ||
		!strings.Contains(err.Error(), "connection re") {
		t.Errorf("while the database is down, Open returned %v, want the error of the connection", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if box, err := outbox.Open(ended, db, outbox.SQLite); box != nil || !errors.Is(err, context.Canceled) ||
		errors.Is(err, outbox.ErrSchema) {
		t.Errorf("with a context that has ended, Open returned %v, %v, want its error", box, err)
	}
	d.set(false, 0)
	if _, err := outbox.Open(t.Context(), db, outbox.SQLite); !errors.Is(err, outbox.ErrSchema) ||
		!strings.Contains(err.Error(), "no such table") {
		t.Errorf("without tables, Open returned %v, want ErrSchema", err)
	}
}

// A relay that starts while the database is down waits for it and then works; if the tables don't fit, it ends. It logs
// each outage when it begins and then once a minute.
func TestRelayWaitsForDatabase(t *testing.T) {
	for _, c := range []struct {
		name    string
		version int
		end     error
	}{{"the tables fit", outbox.SchemaVersion, nil}, {"the tables are missing", 0, outbox.ErrSchema}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &database{down: true}
				db := sql.OpenDB(d)
				defer db.Close()
				box, err := outbox.New(db, outbox.SQLite)
				must(t, err)
				log := &warnings{Handler: slog.DiscardHandler}
				relay, err := outbox.NewRelay(box, nil, outbox.RelayConfig{Logger: slog.New(log)})
				must(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- relay.Run(ctx) }()
				pass := func(d time.Duration) {
					time.Sleep(d)
					synctest.Wait()
				}
				pass(10*time.Minute - time.Second)
				if relay.Stats().Active || len(done) > 0 {
					t.Fatal("the relay is active, or has ended, while the database is down")
				}
				if n := log.take("can't reach the database"); n < 9 || n > 10 {
					t.Errorf("%d warnings in ten minutes without a database, want one a minute", n)
				}
				d.set(false, c.version)
				pass(time.Minute)
				if active := relay.Stats().Active; active != (c.end == nil) {
					t.Errorf("a minute after the database is back, the relay is active: %v", active)
				}
				for outage := 1; outage <= 2 && c.end == nil; outage++ {
					d.set(true, c.version)
					pass(20 * time.Second)
					if n := log.take("can't request its lease"); n != 1 || relay.Stats().Active {
						t.Errorf("outage %d: %d warnings in 20 seconds, want one; the relay is active: %v", outage, n, relay.Stats().Active)
					}
					d.set(false, c.version)
					pass(10 * time.Second)
					if !relay.Stats().Active {
						t.Errorf("outage %d: the relay is not active again", outage)
					}
				}
				cancel()
				if err := <-done; !errors.Is(err, c.end) {
					t.Errorf("the relay ended with %v, want %v", err, c.end)
				}
			})
		})
	}
}

// While no notifications arrive, a relay polls and says so once a minute.
func TestRelayWithoutNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{version: outbox.SchemaVersion}
		db := sql.OpenDB(d)
		defer db.Close()
		box, err := outbox.New(db, outbox.SQLite)
		must(t, err)
		log := &warnings{Handler: slog.DiscardHandler}
		var heard atomic.Bool
		relay, err := outbox.NewRelay(box, nil, outbox.RelayConfig{Logger: slog.New(log), Listen: func(ctx context.Context,
			wake func()) error {
			if heard.Load() {
				wake()
			}
			return errors.New("the connection is broken")
		}})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- relay.Run(ctx) }()
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		if n := log.take("gets no notifications"); n < 9 || n > 10 {
			t.Errorf("%d warnings in ten minutes without notifications, want one a minute", n)
		}
		heard.Store(true) // now the connection breaks each time after it has begun to listen
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if n := log.take("gets no notifications"); n < 2 || n > 4 {
			t.Errorf("%d warnings in three minutes of short connections, want one a minute", n)
		}
		cancel()
		must(t, <-done)
	})
}

// While an active relay can't read its rows, it says so once a minute.
func TestRelayWithoutRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(&database{version: outbox.SchemaVersion, denied: true})
		defer db.Close()
		box, err := outbox.New(db, outbox.SQLite)
		must(t, err)
		log := &warnings{Handler: slog.DiscardHandler}
		relay, err := outbox.NewRelay(box, nil, outbox.RelayConfig{Logger: slog.New(log)})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute-time.Second)
		defer cancel()
		must(t, relay.Run(ctx))
		if n := log.take("no row can be enqueued"); n < 9 || n > 10 {
			t.Errorf("%d warnings in ten minutes without rights, want one a minute", n)
		}
	})
}

// A dialect that does not exist is refused before the database is asked.
func TestNewChecksDialect(t *testing.T) {
	if box, err := outbox.New(nil, "oracle"); box != nil || err == nil || !strings.Contains(err.Error(), "oracle") {
		t.Errorf("New = %v, %v, want an error that names the dialect", box, err)
	}
}

// warnings is a log's handler that keeps the messages of warnings.
type warnings struct {
	slog.Handler
	mu   sync.Mutex
	kept []string
}

func (w *warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, r.Message)
	return nil
}

// take counts the warnings that contain a text and forgets all warnings.
func (w *warnings) take(text string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.kept {
		if strings.Contains(m, text) {
			n++
		}
	}
	w.kept = nil
	return n
}

// Listen may call wake on a goroutine of its own, also while it fails.
func TestListenWakesConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(&database{version: outbox.SchemaVersion})
		defer db.Close()
		box, err := outbox.New(db, outbox.SQLite)
		must(t, err)
		var woken sync.WaitGroup
		relay, err := outbox.NewRelay(box, nil, outbox.RelayConfig{Logger: slog.New(slog.DiscardHandler), Listen: func(ctx context.Context,
			wake func()) error {
			woken.Go(wake)
			return errors.New("the connection is broken")
		}})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, relay.Run(ctx))
		woken.Wait()
	})
}
