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
	"runtime/debug"
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
	return build("pawl")
})

// previousBinary builds, once, a pawl that knows all feature levels but the newest.
var previousBinary = sync.OnceValues(func() (string, error) {
	return build("pawl-previous", "-tags", "pawl_previous_level,"+tags())
})

// tags are those that this program was built with. What -tags says replaces what GOFLAGS says, and without Pebble's tag all that stands
// on Pebble would be compiled anew.
func tags() string {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-tags" {
			return s.Value
		}
	}
	return ""
}

func build(name string, flags ...string) (string, error) {
	dir, err := binaries()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	args := append(append([]string{"build", "-ldflags", "-s -w"}, flags...), "-o", path, "../cmd/pawl")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
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

// count is how often a test does something: n, unless the environment says otherwise (make soak).
func count(t *testing.T, env string, n int) int {
	t.Helper()
	v := os.Getenv(env)
	if v == "" {
		return n
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a number above 0", env, v)
	}
	return n
}

// budget compares how long something took with what we promise. Timing decides a test only if PAWL_BUDGETS is set: the
// machine may be busy with others' work.
func budget(t testing.TB, what string, took, limit time.Duration) {
	t.Helper()
	t.Logf("%s: %s (budget %s)", what, took.Round(time.Millisecond), limit)
	if took > limit && os.Getenv("PAWL_BUDGETS") != "" {
		t.Errorf("%s took %s, its budget is %s", what, took, limit)
	}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, limit time.Duration, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not in %s: %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// server is a pawl serve process on a directory and a port that stay the same over its lives.
type server struct {
	t       testing.TB
	program func() (string, error) // binary, or previousBinary
	data    string
	addr    string
	flags   []string // beside --data and --listen
	under   []string // a command that runs the server's, as strace does
	log     *os.File
	life    *life
}

// life is one run of the process.
type life struct {
	cmd   *exec.Cmd
	line  chan string   // the first line of its output, "" if it ended without one
	ended chan struct{} // closed when it has ended; then cmd.ProcessState says how
	fault *injected     // nil if there is none
}

// skipIfShort skips tests that run real processes where -short asks for none. Benchmarks take it for shorter runs.
func skipIfShort(t testing.TB) {
	t.Helper()
	if _, isTest := t.(*testing.T); isTest && testing.Short() {
		t.Skip("real processes")
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
			t.Logf("the server's log:\n%s", notable(s.said(0)))
		}
		_ = s.log.Close()
	})
	return s
}

// notable is the end of a log without what a load says of its tasks: a failure's own words must not drown in it.
func notable(log string) string {
	lines := slices.DeleteFunc(strings.Split(log, "\n"), func(l string) bool { return strings.Contains(l, `msg="task `) })
	kept := strings.Join(lines, "\n")
	return kept[max(0, len(kept)-3000):]
}

// givenAddrs are those that freeAddr has returned: who got one may not listen yet.
var givenAddrs sync.Map

// freeAddr is an address on this machine where nobody listens. Its port is none that the system gives to outgoing
// connections: one of those might have it while the server is down.
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
	t.Fatal("no port is free")
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
		_ = l.cmd.Wait() // ProcessState says what it would
		close(l.ended)
	}()
	return l
}

// startLimit is far more than any start takes: it tells a hang from a busy machine.
const startLimit = 60 * time.Second

// start starts the process, waits until it serves, and says how long that took.
func (s *server) start() time.Duration {
	s.t.Helper()
	began := time.Now()
	s.launch()
	s.serves()
	return time.Since(began)
}

// serves waits until the process that was launched serves.
func (s *server) serves() {
	s.t.Helper()
	if line := s.listen(); !strings.Contains(line, "ready") {
		s.t.Fatalf("the server said %q instead of being ready", line)
	}
}

// launchAndListen starts the process and waits for its first line, which is "" if it ended without one.
func (s *server) launchAndListen() string {
	s.t.Helper()
	s.launch()
	return s.listen()
}

// listen waits for the first line of the process that was launched.
func (s *server) listen() string {
	s.t.Helper()
	select {
	case line := <-s.life.line:
		return line
	case <-time.After(startLimit):
		s.t.Fatalf("the server was neither ready nor gone in %s", startLimit)
		return ""
	}
}

// kill ends the process as kill -9 does, at once.
func (s *server) kill() {
	if s.life != nil {
		_ = s.life.cmd.Process.Signal(syscall.SIGKILL)
		if s.life.fault != nil { // strace keeps a thread that it holds up, even from dying
			s.life.fault.lift()
		}
		<-s.life.ended
		s.life = nil
	}
}

// pid names the process that runs.
func (s *server) pid() int { return s.life.cmd.Process.Pid }

// exit waits until the process has ended by itself, and gives its exit status: -1 if a signal ended it.
func (s *server) exit() int {
	s.t.Helper()
	select {
	case <-s.life.ended:
	case <-time.After(startLimit):
		s.t.Fatalf("the server still runs after %s", startLimit)
	}
	status := s.life.cmd.ProcessState.ExitCode()
	s.life = nil
	return status
}

// refuses starts a server that must end by itself with a status that is not 0, and gives what it said.
func (s *server) refuses() string {
	s.t.Helper()
	from := s.mark()
	if line := s.launchAndListen(); line != "" {
		s.t.Fatalf("the server is ready: %q", line)
	}
	if status := s.exit(); status <= 0 {
		s.t.Errorf("the server ended with status %d, want one above 0", status)
	}
	return s.said(from)
}

// mark is a place in the log, for said.
func (s *server) mark() int64 {
	info, err := s.log.Stat()
	if err != nil {
		s.t.Fatal(err)
	}
	return info.Size()
}

// said is what the server has logged since mark.
func (s *server) said(from int64) string {
	b, err := os.ReadFile(s.log.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b[min(from, int64(len(b))):])
}

// dial makes a client that repeats nothing unless told to.
func (s *server) dial(opts ...pawl.DialOptions) *pawl.Client {
	s.t.Helper()
	client, err := pawl.Dial(s.addr, append([]pawl.DialOptions{{RetryFor: -1}}, opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// command is another command of pawl. One that takes longer than any should is killed.
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

// stackTrace is in what a program says that panics.
const stackTrace = "\ngoroutine "

// fails runs a command, unless it has run. It must end by itself with a status that is not 0, and say all this.
func fails(t testing.TB, cmd *exec.Cmd, wants ...string) {
	t.Helper()
	if cmd.Process == nil {
		_ = cmd.Run() // ProcessState says what it would
	}
	said := fmt.Sprint(cmd.Stderr)
	if strings.Contains(said, stackTrace) {
		t.Errorf("%q panics: %s", cmd.Args, said)
	}
	if status := cmd.ProcessState.ExitCode(); status <= 0 {
		t.Errorf("%q ended with status %d, want one above 0: %s", cmd.Args, status, said)
	}
	for _, want := range wants {
		if !strings.Contains(said, want) {
			t.Errorf("%q says %q, which lacks %q", cmd.Args, said, want)
		}
	}
}

// lockedBuffer takes what a process says while the test reads it.
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

// String is what has been written so far.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.b)
}
