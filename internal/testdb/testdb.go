// Package testdb starts Debian's PostgreSQL and MariaDB for tests, each with its own socket and directory, and creates a database
// for each test. It does not know what is tested.
package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"   // "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // "pgx"
)

// startTime bounds the start of a server, on a machine that does ten things at the same time.
const startTime = 2 * time.Minute

// Tests that kill their server expect broken connections: don't log them.
func init() { _ = mysql.SetLogger(&mysql.NopLogger{}) }

// Main runs the tests of a package and then stops the servers that they started: os.Exit(testdb.Main(m)).
func Main(m *testing.M) int {
	defer postgres.stop()
	defer mariadb.stop()
	return m.Run()
}

// Postgres creates an empty database and returns its DSN, for driver "pgx". It skips the test if the machine has no PostgreSQL.
func Postgres(t testing.TB) (dsn string) { return postgres.database(t) }

// MariaDB creates an empty database and returns its DSN, for driver "mysql". It skips the test if the machine has no MariaDB.
func MariaDB(t testing.TB) (dsn string) { return mariadb.database(t) }

// HasPostgres reports whether the machine has PostgreSQL.
func HasPostgres() bool { return find(postgres.program...) != "" }

var (
	postgres = newPostgres()
	mariadb  = newMariaDB("0")
)

func newPostgres() *server {
	return &server{
		name: "PostgreSQL", driver: "pgx", user: "postgres", admin: "postgres",
		program: []string{"postgres", "/usr/lib/postgresql/*/bin/postgres"},
		prepare: func(program, dir string) []string {
			return []string{filepath.Join(filepath.Dir(program), "initdb"), "-D", dir + "/data", "-U", "pawl", "-A", "trust", "-E", "UTF8",
				"--locale=C", "--no-sync"}
		},
		run: func(program, dir string) []string {
			return []string{program, "-D", dir + "/data", "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c",
				"max_connections=200"}
		},
		dsn: func(dir, database string) string { return fmt.Sprintf("host=%s user=pawl dbname=%s", dir, database) },
	}
}

// newMariaDB returns a server that flushes its log at each commit if flush is "2", and once a second if it is "0".
func newMariaDB(flush string) *server {
	return &server{
		name: "MariaDB", driver: "mysql", user: "mysql", admin: "mysql",
		program: []string{"mariadbd", "/usr/sbin/mariadbd"},
		prepare: func(_, dir string) []string {
			return []string{"mariadb-install-db", "--no-defaults", "--datadir=" + dir + "/data", "--auth-root-authentication-method=normal",
				"--skip-test-db"}
		},
		run: func(program, dir string) []string {
			return []string{program, "--no-defaults", "--datadir=" + dir + "/data", "--socket=" + dir + "/socket",
				"--pid-file=" + dir + "/pid", "--skip-networking", "--innodb-flush-log-at-trx-commit=" + flush, "--max-connections=200"}
		},
		dsn: func(dir, database string) string { return fmt.Sprintf("root@unix(%s/socket)/%s", dir, database) },
	}
}

// server is a database server shared by all tests of a process. The first test that needs it starts it.
type server struct {
	name, driver string
	user         string   // whom to run it as if the tests run as root, which it refuses
	admin        string   // a database that always exists
	program      []string // where it may be
	prepare, run func(program, dir string) []string
	dsn          func(dir, database string) string

	once    sync.Once
	missing bool
	err     error
	dir     string
	process *os.Process
	ended   chan struct{}
	count   atomic.Int64 // of databases
}

func (s *server) database(t testing.TB) string {
	t.Helper()
	s.once.Do(s.start)
	if s.missing {
		t.Skipf("skipped: no %s on this machine (make tools installs Debian's)", s.name)
	}
	if s.err != nil {
		t.Fatalf("%s: %v", s.name, s.err)
	}
	db, err := sql.Open(s.driver, s.dsn(s.dir, s.admin))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	name := fmt.Sprintf("test%d", s.count.Add(1))
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return s.dsn(s.dir, name)
}

func (s *server) start() {
	program := find(s.program...)
	if s.missing = program == ""; s.missing {
		return
	}
	if s.dir, s.err = os.MkdirTemp("", "pawl-"+s.driver+"-"); s.err != nil {
		return
	}
	as, err := s.credential()
	if err != nil {
		s.err = err
		return
	}
	log, err := os.Create(s.dir + "/log")
	if err != nil {
		s.err = err
		return
	}
	prepare := s.command(s.prepare(program, s.dir), as, log)
	prepare.SysProcAttr.Pdeathsig = 0 // it ends by itself, and the thread that starts it may end before it does
	if err := prepare.Run(); err != nil {
		s.err = s.withLog(err)
		return
	}
	s.err = s.launch(program, as, log)
}

// launch starts the server's process and waits until it answers.
func (s *server) launch(program string, as *syscall.Credential, log *os.File) error {
	started := make(chan error)
	ended := make(chan struct{})
	cmd := s.command(s.run(program, s.dir), as, log)
	go func() {
		runtime.LockOSThread() // the server dies with the thread that started it, so that it doesn't outlive a test process that was killed
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	s.process, s.ended = cmd.Process, ended
	return s.await()
}

// await waits until the server answers.
func (s *server) await() error {
	db, err := sql.Open(s.driver, s.dsn(s.dir, s.admin))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return s.withLog(fmt.Errorf("it ended: %w", err))
		case <-ctx.Done():
			return s.withLog(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// withLog adds the tail of the server's log to an error.
func (s *server) withLog(err error) error {
	log, _ := os.ReadFile(s.dir + "/log")
	return fmt.Errorf("%w\n%s", err, log[max(0, len(log)-8000):])
}

// credential returns the user to run the server as, nil: the user who runs the tests. It makes that user the owner of the
// directory.
func (s *server) credential() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(s.user)
	if err != nil { // the package with only the server creates no user
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(s.dir, int(uid), int(gid))
}

func (s *server) command(args []string, as *syscall.Credential, log *os.File) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = append(os.Environ(), "TMPDIR="+s.dir) // a MariaDB that starts removes the temporary tables of all others in /tmp
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (s *server) stop() {
	if s.process != nil {
		_ = s.process.Signal(syscall.SIGQUIT) // immediate, with its children
		select {
		case <-s.ended:
		case <-time.After(10 * time.Second):
			_ = s.process.Kill()
			<-s.ended
		}
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

func find(places ...string) string {
	for _, place := range places {
		if path, err := exec.LookPath(place); err == nil {
			if real, err := filepath.EvalSymlinks(path); err == nil {
				return real
			}
		}
		if found, _ := filepath.Glob(place); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return ""
}
