package test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // "sqlite"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/testdb"
	"github.com/pawlq/pawl/outbox"
)

// TestOutboxThroughKills: two applications commit orders with their tasks, roll others back and book them, while they,
// the relays, the server and the database are killed with -9 at random. In the end each committed order has one task,
// in the order of its key, one booking and one receipt, and no other order has any. PAWL_OUTBOX_SECONDS sets the
// duration.
func TestOutboxThroughKills(t *testing.T) {
	for d, relays := range map[outbox.Dialect]int{outbox.Postgres: 10, outbox.MySQL: 2, outbox.SQLite: 2} {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.start()
			shop := newShop(t, d)
			if shop.server != nil {
				shop.server.Kill() // whoever starts while the database is down waits for it
			}
			var all []*victim
			for range relays {
				all = append(all, shop.relay(s.addr))
			}
			for first := range 2 {
				all = append(all, shop.app(s.addr, first*shopKeys))
			}
			if shop.server != nil {
				time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
				shop.server.Start()
			}
			kills := map[string]int{}
			for end := time.Now().Add(time.Duration(count(t, "PAWL_OUTBOX_SECONDS", 6)) * time.Second); time.Now().Before(end); {
				time.Sleep(time.Duration(50+rand.IntN(250)) * time.Millisecond)
				switch what := rand.IntN(8); {
				case what == 0:
					kills["server"]++
					s.kill()
					time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
					s.start()
				case what == 1 && shop.server != nil:
					kills["database"]++
					shop.server.Kill()
					time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
					shop.server.Start()
				default:
					v := all[rand.IntN(len(all))]
					kills[v.name]++
					v.kill()
					shop.free()
					v.start()
				}
			}
			eventually(t, "20 orders are there, also on a slow machine", startLimit, func() bool {
				return shop.count("SELECT count(*) FROM orders") >= 20
			})
			shop.settle(all[relays:])
			got := shop.check(s.dial())
			t.Logf("kills: %v; %d orders, each with one task, one booking and one receipt", kills, got)
			if dead := shop.count("SELECT count(*) FROM pawl_outbox_dead"); got < 20 || dead > 0 {
				t.Errorf("%d orders were checked, and %d rows are dead", got, dead)
			}
		})
	}
}

// victim is a process that may be killed and restarted.
type victim struct {
	name string
	make func() *exec.Cmd
	t    *testing.T
	cmd  *exec.Cmd
	log  *bytes.Buffer
}

func (v *victim) start() {
	v.t.Helper()
	cmd := v.make()
	v.log = &bytes.Buffer{}
	cmd.Stderr = v.log
	if err := cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	v.cmd = cmd
}

// kill kills the process, which must not have ended by itself.
func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	if _ = v.cmd.Wait(); v.cmd.ProcessState.Exited() {
		log := v.log.Bytes()
		v.t.Errorf("a process (%s) ended by itself: %s\n%s", v.name, v.cmd.ProcessState, log[max(0, len(log)-2000):])
	}
}

// shop is an application's database and its processes.
type shop struct {
	t           *testing.T
	db          *sql.DB
	dialect     outbox.Dialect
	driver, dsn string
	file        string           // with the DSN, for relays
	server      *testdb.Killable // nil: none
}

func newShop(t *testing.T, d outbox.Dialect) *shop {
	t.Helper()
	s := &shop{t: t, dialect: d, file: filepath.Join(t.TempDir(), "dsn")}
	url, more := "", ""
	switch d {
	case outbox.Postgres:
		s.server = testdb.KillablePostgres(t)
		s.driver, s.dsn = "pgx", s.server.DSN
		var host, name string
		if _, err := fmt.Sscanf(s.dsn, "host=%s user=pawl dbname=%s", &host, &name); err != nil {
			t.Fatal(err)
		}
		url = "postgres://pawl@/" + name + "?host=" + host
	case outbox.MySQL:
		s.server = testdb.KillableMariaDB(t)
		s.driver, s.dsn, more = "mysql", s.server.DSN, "?multiStatements=true"
		socket, name, _ := strings.Cut(strings.TrimPrefix(s.dsn, "root@unix("), ")/")
		url = "mysql://root@/" + name + "?socket=" + socket
	default:
		file := filepath.Join(t.TempDir(), "shop.db")
		s.driver, s.dsn, url = "sqlite", "file:"+file+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(60000)&_txlock=immediate",
			"sqlite:"+file
	}
	db, err := sql.Open(s.driver, s.dsn+more)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s.db = db
	schema, err := outbox.Schema(d)
	if err != nil {
		t.Fatal(err)
	}
	s.exec(schema)
	s.exec("CREATE TABLE orders (id varchar(40), k integer, seq integer)")
	s.exec("CREATE TABLE booked (id varchar(40))")
	if err := os.WriteFile(s.file, []byte(url), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// exec runs statements. A connection from before a kill fails once.
func (s *shop) exec(query string) {
	s.t.Helper()
	eventually(s.t, "the database takes "+query, startLimit, func() bool {
		_, err := s.db.ExecContext(s.t.Context(), query)
		return err == nil
	})
}

func (s *shop) count(query string) (n int) {
	s.t.Helper()
	eventually(s.t, "the database answers "+query, startLimit, func() bool {
		return s.db.QueryRowContext(s.t.Context(),
			query).Scan(&n) == nil
	})
	return n
}

// relay starts a relay in a separate process.
func (s *shop) relay(addr string) *victim {
	s.t.Helper()
	path, err := relayBinary()
	if err != nil {
		s.t.Fatal(err)
	}
	return s.run("relay", func() *exec.Cmd {
		return exec.Command(path, "relay", "--dsn-file", s.file, "--server", addr, "--lease", "1s")
	})
}

// app starts an application for the keys from first.
func (s *shop) app(addr string, first int) *victim {
	s.t.Helper()
	return s.run("application", func() *exec.Cmd {
		return process(s.t, "shop", serverEnv+"="+addr, shopDialectEnv+"="+string(s.dialect), shopDriverEnv+"="+s.driver,
			shopDSNEnv+"="+s.dsn, shopFirstEnv+"="+fmt.Sprint(first))
	})
}

func (s *shop) run(name string, make func() *exec.Cmd) *victim {
	s.t.Helper()
	v := &victim{name: name, make: make, t: s.t}
	v.start()
	s.t.Cleanup(v.kill)
	return v
}

// free ends the lease of a dead relay, half of the time: then the other one overlaps with what it left behind.
func (s *shop) free() {
	if rand.IntN(2) == 0 {
		s.exec("UPDATE pawl_outbox_relay SET expires_at = '1999-01-01'")
	}
}

// settle lets the applications book the rest: they are restarted with a table from which they learn that the shop is closed.
func (s *shop) settle(apps []*victim) {
	s.t.Helper()
	s.exec("CREATE TABLE closed (id integer)")
	for _, a := range apps {
		a.kill()
		a.start()
	}
	var rows, orders, booked int
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("at the end %d rows were not enqueued, and %d of %d orders were booked", rows, booked, orders)
		}
	})
	eventually(s.t, "all orders are booked, and all rows enqueued", startLimit, func() bool {
		time.Sleep(20 * time.Millisecond)
		rows, orders, booked = s.count("SELECT count(*) FROM pawl_outbox"), s.count("SELECT count(*) FROM orders"),
			s.count("SELECT count(*) FROM booked")
		return rows == 0 && orders == booked
	})
	for _, a := range apps {
		a.kill()
	}
}

// check compares orders with tasks, bookings and receipts, one by one, and returns their number.
func (s *shop) check(client *pawl.Client) int {
	s.t.Helper()
	orders, booked := s.ids("orders"), s.ids("booked")
	for id, n := range booked {
		if n != 1 || orders[id] != 1 {
			s.t.Errorf("order %s exists %d times, and was booked %d times", id, orders[id], n)
		}
	}
	tasks, receipts, last := map[string]int{}, map[string]int{}, map[int]int{}
	s.drain(client, "orders", func(payload []byte) error {
		var o order
		err := json.Unmarshal(payload, &o)
		tasks[o.ID]++
		if before, ok := last[o.Key]; ok && before >= o.Seq {
			s.t.Errorf("key %d: order %d ran after %d", o.Key, o.Seq, before)
		}
		last[o.Key] = o.Seq
		return err
	})
	s.drain(client, "receipts", func(payload []byte) error {
		var r receiptOf
		err := json.Unmarshal(payload, &r)
		receipts[r.Order]++
		return err
	})
	for id := range orders {
		if tasks[id] != 1 || booked[id] != 1 || receipts[id] != 1 {
			s.t.Errorf("order %s has %d tasks, %d bookings and %d receipts", id, tasks[id], booked[id], receipts[id])
		}
	}
	for id := range tasks {
		if orders[id] == 0 {
			s.t.Errorf("order %s was rolled back, but has a task", id)
		}
	}
	for id := range receipts {
		if orders[id] == 0 {
			s.t.Errorf("order %s was rolled back, but has a receipt", id)
		}
	}
	return len(orders)
}

// ids returns the ids in a table, with the number of rows of each.
func (s *shop) ids(table string) map[string]int {
	s.t.Helper()
	out := map[string]int{}
	rows, err := s.db.QueryContext(s.t.Context(), "SELECT id FROM "+table)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			s.t.Fatal(err)
		}
		out[id]++
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// drain claims all tasks of a queue.
func (s *shop) drain(client *pawl.Client, queue string, fn func(payload []byte) error) {
	s.t.Helper()
	for {
		got, err := claims.New(client).Claim(s.t.Context(), claims.Request{Queues: pawl.Strict{queue}, Max: 1000, Lease: time.Hour})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, c := range got {
			if err := fn(c.Payload); err != nil {
				s.t.Fatal(err)
			}
		}
		if len(got) == 0 {
			return
		}
	}
}
