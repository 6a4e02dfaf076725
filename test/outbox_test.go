package test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite" // "sqlite"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/testdb"
	"github.com/pawlq/pawl/outbox"
)

type order struct {
	ID  string `json:"id"`
	Key int    `json:"key"`
	Seq int    `json:"seq"` // of its key
}

func (order) TaskType() string { return "order" }

// TestOutboxThroughKills: writers commit orders with their tasks and roll others back, while two relays and the server are killed with -9 at
// random. Then each committed order has one task, in the order of its key, and no other has any. PAWL_OUTBOX_SECONDS says how long.
func TestOutboxThroughKills(t *testing.T) {
	for _, d := range []outbox.Dialect{outbox.Postgres, outbox.MySQL, outbox.SQLite} {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.start()
			shop := newShop(t, d)
			var relays [2]*exec.Cmd
			for i := range relays {
				relays[i] = shop.relay(s.addr)
			}
			stop := make(chan struct{})
			var writers sync.WaitGroup
			for key := range 16 {
				writers.Go(func() { shop.write(key, stop) })
			}
			kills := 0
			for end := time.Now().Add(time.Duration(count(t, "PAWL_OUTBOX_SECONDS", 6)) * time.Second); time.Now().Before(end); kills++ {
				time.Sleep(time.Duration(50+rand.IntN(250)) * time.Millisecond)
				if rand.IntN(4) == 0 {
					s.kill()
					time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
					s.start()
					continue
				}
				i := rand.IntN(len(relays))
				_ = relays[i].Process.Kill()
				_ = relays[i].Wait()
				shop.free()
				relays[i] = shop.relay(s.addr)
			}
			close(stop)
			writers.Wait()
			eventually(t, "all rows are enqueued", 2*time.Minute, func() bool { return shop.count("SELECT count(*) FROM pawl_outbox") == 0 })
			got := shop.check(s.dial())
			t.Logf("%d kills; %d orders, each with one task", kills, got)
			if got < kills || shop.count("SELECT count(*) FROM pawl_outbox_dead") > 0 {
				t.Errorf("%d orders in %d kills, %d rows are dead", got, kills, shop.count("SELECT count(*) FROM pawl_outbox_dead"))
			}
		})
	}
}

// shop is an application with a database.
type shop struct {
	t   *testing.T
	db  *sql.DB
	box *outbox.Outbox
	dsn string // a file, for relays
}

func newShop(t *testing.T, d outbox.Dialect) *shop {
	t.Helper()
	driver, dsn, url := "", "", ""
	switch d {
	case outbox.Postgres:
		var host, name string
		driver, dsn = "pgx", testdb.Postgres(t)
		if _, err := fmt.Sscanf(dsn, "host=%s user=pawl dbname=%s", &host, &name); err != nil {
			t.Fatal(err)
		}
		url = "postgres://pawl@/" + name + "?host=" + host
	case outbox.MySQL:
		driver, dsn = "mysql", testdb.MariaDB(t)
		socket, name, _ := strings.Cut(strings.TrimPrefix(dsn, "root@unix("), ")/")
		url = "mysql://root@/" + name + "?socket=" + socket
		dsn += "?multiStatements=true"
	default:
		file := filepath.Join(t.TempDir(), "shop.db")
		driver, dsn, url = "sqlite", "file:"+file+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(60000)&_txlock=immediate", "sqlite:"+file
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(20)
	s := &shop{t: t, db: db, dsn: filepath.Join(t.TempDir(), "dsn")}
	schema, err := outbox.Schema(d)
	if err != nil {
		t.Fatal(err)
	}
	s.exec(schema)
	s.exec("CREATE TABLE orders (id varchar(40))")
	if s.box, err = outbox.Open(t.Context(), db, d); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.dsn, []byte(url), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shop) exec(query string) {
	s.t.Helper()
	if _, err := s.db.ExecContext(s.t.Context(), query); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

func (s *shop) count(query string) (n int) {
	s.t.Helper()
	if err := s.db.QueryRowContext(s.t.Context(), query).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// relay starts a relay as a process of its own.
func (s *shop) relay(addr string) *exec.Cmd {
	s.t.Helper()
	path, err := binary()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(path, "outbox", "relay", "--dsn-file", s.dsn, "--server", addr, "--lease", "1s")
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// free ends the lease of a relay that is dead, half of the time: the other one then overlaps with what it left behind.
func (s *shop) free() {
	if rand.IntN(2) == 0 {
		s.exec("UPDATE pawl_outbox_relay SET expires_at = '1999-01-01'")
	}
}

// write makes orders of a key one after the other until stop, and rolls every third back.
func (s *shop) write(key int, stop chan struct{}) {
	for seq := 0; ; seq++ {
		select {
		case <-stop:
			return
		default:
		}
		if err := s.writeOne(order{fmt.Sprintf("%d-%d", key, seq), key, seq}, seq%3 != 2); err != nil {
			s.t.Errorf("order %d of key %d: %v", seq, key, err)
			return
		}
		time.Sleep(rand.N(5 * time.Millisecond))
	}
}

func (s *shop) writeOne(o order, commit bool) error {
	ctx := context.WithoutCancel(s.t.Context())
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ('"+o.ID+"')"); err != nil {
		return err
	}
	if _, err := s.box.Enqueue(ctx, tx, o, pawl.Queue("orders"), pawl.Key(fmt.Sprint(o.Key))); err != nil {
		return err
	}
	if !commit {
		return tx.Rollback()
	}
	return tx.Commit()
}

// check compares orders with tasks, one by one, and says how many there are.
func (s *shop) check(client *pawl.Client) int {
	s.t.Helper()
	missing := map[string]bool{}
	rows, err := s.db.QueryContext(s.t.Context(), "SELECT id FROM orders")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			s.t.Fatal(err)
		}
		missing[id] = true
	}
	orders, last := len(missing), map[int]int{}
	for {
		got, err := claims.New(client).Claim(s.t.Context(), claims.Request{Queues: pawl.Strict{"orders"}, Max: 1000, Lease: time.Hour})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, c := range got {
			var o order
			if err := json.Unmarshal(c.Payload, &o); err != nil {
				s.t.Fatal(err)
			}
			if !missing[o.ID] {
				s.t.Errorf("order %s was rolled back, or has two tasks", o.ID)
			}
			delete(missing, o.ID)
			if before, ok := last[o.Key]; ok && before >= o.Seq {
				s.t.Errorf("key %d: order %d comes after %d", o.Key, o.Seq, before)
			}
			last[o.Key] = o.Seq
		}
		if len(got) == 0 {
			break
		}
	}
	if len(missing) > 0 {
		s.t.Errorf("%d orders have no task: %v", len(missing), missing)
	}
	return orders
}
