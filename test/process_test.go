package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/testdb"
)

// binaries is where the tests of the package build pawl.
var binaries = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "pawl-test-") })

// binary returns the path of pawl. PAWL_BINARY names it; without, it is built once for all tests of the package.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("PAWL_BINARY"); path != "" {
		return path, nil
	}
	return build("pawl", "pawl", "")
})

// relayBinary returns the path of pawl-outbox, beside that of pawl, or built likewise.
var relayBinary = sync.OnceValues(func() (string, error) {
	beside := filepath.Join(filepath.Dir(os.Getenv("PAWL_BINARY")), "pawl-outbox")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	return build("pawl-outbox", "pawl-outbox", "")
})

// nextBinary builds, once, a pawl that supports one more feature level, as the next release may. Only the linker makes
// the difference, so that nothing is compiled again.
var nextBinary = sync.OnceValues(func() (string, error) {
	return build("pawl-next", "pawl", " -X github.com/pawlq/pawl/internal/node.nextRelease=1")
})

// build builds a program of cmd/ under another name.
func build(name, program, link string) (string, error) {
	dir, err := binaries()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w"+link, "-o", path, "../cmd/"+program).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

func TestMain(m *testing.M) {
	playIf(os.Getenv(playEnv))
	code := testdb.Main(m)
	if dir, err := binaries(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// count returns how often a test does something: n, unless the environment overrides it (make soak).
func count(t *testing.T, env string, n int) int {
	t.Helper()
	v := os.Getenv(env)
	if v == "" {
		return n
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q must be a number above 0", env, v)
	}
	return n
}

// long reports whether this is a run in full (make soak): otherwise some tests try a sample.
func long() bool { return os.Getenv("PAWL_LONG") != "" }

// budget compares a duration with what we promise. Timing fails a test only if PAWL_BUDGETS is set: the machine may be busy otherwise.
func budget(t testing.TB, what string, took, limit time.Duration) {
	t.Helper()
	t.Logf("%s: %s (budget %s)", what, took.Round(time.Millisecond), limit)
	if took > limit && os.Getenv("PAWL_BUDGETS") != "" {
		t.Errorf("%s took %s, more than its budget of %s", what, took, limit)
	}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, limit time.Duration, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// server is a pawl serve process on a directory and a port that stay the same over its restarts.
type server struct {
	t       testing.TB
	program func() (string, error) // binary, or nextBinary
	data    string
	addr    string
	flags   []string // in addition to --data and --listen
	under   []string // a command that runs the server, such as strace
	log     *os.File
	life    *life
}

// life is one run of the process.
type life struct {
	cmd   *exec.Cmd
	line  chan string   // the first line of its output, "" if it exited without one
	ended chan struct{} // closed when it has exited; then cmd.ProcessState says how
	fault *injected     // nil: none
}

// skipIfShort skips tests that run real processes with -short. Benchmarks run shorter instead.
func skipIfShort(t testing.TB) {
	t.Helper()
	if _, isTest := t.(*testing.T); isTest && testing.Short() {
		t.Skip("skipped with -short: the test runs real processes")
	}
}

func newServer(t testing.TB, flags ...string) *server {
	t.Helper()
	skipIfShort(t)
	return newServerIn(t, filepath.Join(t.TempDir(), "data"), flags...)
}

func newServerIn(t testing.TB, data string, flags ...string) *server {
	t.Helper()
	if _, err := binary(); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, program: binary, data: data, addr: freeAddr(t), flags: flags}
	var err error
	if s.log, err = os.Create(filepath.Join(t.TempDir(), "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("server log:\n%s", notable(s.logSince(0)))
		}
		_ = s.log.Close()
	})
	return s
}

// notable returns the end of a log without a load's lines about tasks, in which a failure's message would be lost.
func notable(log string) string {
	lines := slices.DeleteFunc(strings.Split(log, "\n"), func(l string) bool { return strings.Contains(l, `msg="task `) })
	kept := strings.Join(lines, "\n")
	return kept[max(0, len(kept)-3000):]
}

// givenAddrs are the results of freeAddr: the caller may not listen yet.
var givenAddrs sync.Map

// freeAddr returns an unused address on this machine. The port is outside the range for outgoing connections, one of
// which might otherwise take it while the server is down.
func freeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 15_000+rand.IntN(15_000))
		if _, taken := givenAddrs.LoadOrStore(addr, true); taken {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return l.Addr().String()
	}
	t.Fatal("no free port was found")
	return ""
}

// launch starts the process without waiting until it serves.
func (s *server) launch() *life {
	s.t.Helper()
	path, err := s.program()
	if err != nil {
		s.t.Fatal(err)
	}
	args := append(append([]string{}, s.under...), path, "serve", "--data", s.data, "--listen", s.addr)
	args = append(args, s.flags...)
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	l := &life{cmd: exec.Command(args[0], args[1:]...), line: make(chan string, 1), ended: make(chan struct{})}
	l.cmd.Stdout, l.cmd.Stderr = w, s.log
	if err := errors.Join(l.cmd.Start(), w.Close()); err != nil {
		s.t.Fatal(err)
	}
	s.life = l
	go func() {
		text, _ := bufio.NewReader(r).ReadString('\n')
		l.line <- text
		_ = r.Close()
	}()
	go func() {
		_ = l.cmd.Wait() // ProcessState has the result
		close(l.ended)
	}()
	return l
}

// startLimit is far more than any start takes: it distinguishes a hang from a busy machine.
const startLimit = 5 * time.Minute

// start starts the process, waits until it serves, and returns how long that took.
func (s *server) start() time.Duration {
	s.t.Helper()
	began := time.Now()
	s.launch()
	s.serves()
	return time.Since(began)
}

// serves waits until the launched process serves.
func (s *server) serves() {
	s.t.Helper()
	if line := s.listen(); !strings.Contains(line, "ready") {
		s.t.Fatalf("the server printed %q instead of being ready", line)
	}
}

// launchAndListen starts the process and waits for its first line, which is "" if it exited without one.
func (s *server) launchAndListen() string {
	s.t.Helper()
	s.launch()
	return s.listen()
}

// listen waits for the first line of the launched process.
func (s *server) listen() string {
	s.t.Helper()
	select {
	case line := <-s.life.line:
		return line
	case <-time.After(startLimit):
		s.t.Fatalf("the server was neither ready nor exited within %s", startLimit)
		return ""
	}
}

// kill kills the process with SIGKILL.
func (s *server) kill() {
	if s.life != nil {
		_ = s.life.cmd.Process.Signal(syscall.SIGKILL)
		if s.life.fault != nil { // strace keeps a thread that it delays even from dying
			s.life.fault.lift()
		}
		<-s.life.ended
		s.life = nil
	}
}

// pid is the id of the running process.
func (s *server) pid() int { return s.life.cmd.Process.Pid }

// exit waits until the process has exited by itself, and returns its exit status: -1 if a signal ended it.
func (s *server) exit() int {
	s.t.Helper()
	select {
	case <-s.life.ended:
	case <-time.After(startLimit):
		s.t.Fatalf("the server is still running after %s", startLimit)
	}
	status := s.life.cmd.ProcessState.ExitCode()
	s.life = nil
	return status
}

// refuses starts a server that must exit by itself with a non-zero status, and returns its output.
func (s *server) refuses() string {
	s.t.Helper()
	from := s.mark()
	if line := s.launchAndListen(); line != "" {
		s.t.Fatalf("the server became ready: %q", line)
	}
	if status := s.exit(); status <= 0 {
		s.t.Errorf("the server exited with status %d, want one above 0", status)
	}
	return s.logSince(from)
}

// mark returns a position in the log, for said.
func (s *server) mark() int64 {
	info, err := s.log.Stat()
	if err != nil {
		s.t.Fatal(err)
	}
	return info.Size()
}

// logSince returns what the server has logged since mark.
func (s *server) logSince(from int64) string {
	b, err := os.ReadFile(s.log.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b[min(from, int64(len(b))):])
}

// dial returns a client that repeats nothing unless told to.
func (s *server) dial(opts ...pawl.DialOptions) *pawl.Client {
	s.t.Helper()
	client, err := pawl.Dial(s.addr, append([]pawl.DialOptions{{RetryFor: -1}}, opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// command returns another pawl command. It is killed if it takes longer than any should.
func command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout = new(lockedBuffer)
	cmd.Stderr = cmd.Stdout
	return cmd
}

// does runs a command that must succeed.
func does(t testing.TB, args ...string) {
	t.Helper()
	cmd := command(t, args...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("pawl %q: %v: %s", args, err, cmd.Stderr)
	}
}

// stackTrace is part of the output of a panicking program.
const stackTrace = "\ngoroutine "

// fails runs a command, unless it has run. It must exit by itself with a non-zero status, and its output must contain all the given texts.
func fails(t testing.TB, cmd *exec.Cmd, wants ...string) {
	t.Helper()
	if cmd.Process == nil {
		_ = cmd.Run() // ProcessState has the result
	}
	said := fmt.Sprint(cmd.Stderr)
	if strings.Contains(said, stackTrace) {
		t.Errorf("%q panicked: %s", cmd.Args, said)
	}
	if status := cmd.ProcessState.ExitCode(); status <= 0 {
		t.Errorf("%q exited with status %d, want one above 0: %s", cmd.Args, status, said)
	}
	for _, want := range wants {
		if !strings.Contains(said, want) {
			t.Errorf("%q printed %q, which lacks %q", cmd.Args, said, want)
		}
	}
}

// lockedBuffer collects a process's output while the test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  []byte
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, b...)
	return len(b), nil
}

// String returns what has been written so far.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.b)
}
