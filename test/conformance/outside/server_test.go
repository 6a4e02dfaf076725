package outside

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// startServer runs the real binary on a directory of its own until the test ends. PAWL_BINARY names the binary; by default it is built.
func startServer(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped with -short: the test runs a real process")
	}
	program := os.Getenv("PAWL_BINARY")
	if program == "" {
		program = filepath.Join(t.TempDir(), "pawl")
		if out, err := exec.Command("go", "build", "-o", program, "../../../cmd/pawl").CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	var log bytes.Buffer
	cmd := exec.Command(program, "serve", "--data", filepath.Join(t.TempDir(), "data"), "--listen", addr)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil || t.Failed() {
			t.Logf("the server exited: %v\n%s", err, tail(log.String()))
		}
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return addr
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the server did not start: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal(fmt.Errorf("the server did not start in time"))
		}
	}
}

func tail(s string) string { return s[max(0, len(s)-2000):] }

// TestStories tells all stories to the Go SDK and to REST.
func TestStories(t *testing.T) {
	addr := startServer(t)
	t.Run("players", func(t *testing.T) { // returns when all parallel subtests have ended
		t.Run("go", func(t *testing.T) { playStories(t, "go", newGoDriver(t, addr)) })
		t.Run("rest", func(t *testing.T) { playStories(t, "rest", newRESTDriver(t, addr)) })
	})
}
