package test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary builds pawl once for all tests of the package.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "pawl-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "pawl")
	out, err := exec.Command("go", "build", "-o", path, "../cmd/pawl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// server is a pawl serve process on a directory and a port that stay the same over its lives.
type server struct {
	t    *testing.T
	dir  string
	addr string
	cmd  *exec.Cmd
	log  *os.File
}

func newServer(t *testing.T) *server {
	t.Helper()
	if _, err := binary(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: t.TempDir(), addr: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if s.log, err = os.Create(filepath.Join(t.TempDir(), "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			b, _ := os.ReadFile(s.log.Name())
			t.Logf("the server's log:\n%s", b[max(0, len(b)-8000):])
		}
	})
	return s
}

// launch starts the process without waiting until it serves.
func (s *server) launch() (ready <-chan string) {
	path, _ := binary()
	s.cmd = exec.Command(path, "serve", "--data", filepath.Join(s.dir, "data"), "--listen", s.addr)
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(out).ReadString('\n')
		line <- text
	}()
	return line
}

// start starts the process, waits until it serves, and says how long that took.
func (s *server) start() time.Duration {
	s.t.Helper()
	began := time.Now()
	select {
	case line := <-s.launch():
		if !strings.Contains(line, "ready") {
			s.t.Fatalf("the server said %q instead of being ready", line)
		}
	case <-time.After(30 * time.Second):
		s.t.Fatal("the server was not ready in 30 s")
	}
	return time.Since(began)
}

// kill ends the process as kill -9 does, at once.
func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGKILL)
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}
