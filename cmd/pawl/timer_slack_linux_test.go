package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// All threads of a server have the timer slack, including Go's monitor thread, which starts before any of our code. The
// process keeps its id.
func TestServerTimerSlack(t *testing.T) {
	exe, err := exec.LookPath("pawl")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0")
	cmd.Args[0] = "pawl"
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "ready") {
		t.Fatalf("the server printed %q, %v, want that it is ready", line, err)
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", cmd.Process.Pid))
	if err != nil || len(tasks) < 3 {
		t.Fatalf("the server's threads are %q, %v", tasks, err)
	}
	for _, task := range tasks {
		slack, err := os.ReadFile("/proc/" + filepath.Base(task) + "/timerslack_ns")
		if errors.Is(err, fs.ErrPermission) {
			t.Skip("only root may read another process's timer slack")
		}
		if err != nil {
			continue // the thread has exited
		}
		if got := strings.TrimSpace(string(slack)); got != "1000000" {
			t.Errorf("thread %s has a timer slack of %s ns, want 1000000", filepath.Base(task), got)
		}
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid))
	if err != nil || !strings.Contains(string(environ), "PAWL_TIMER_SLACK_SET") {
		t.Errorf("the server did not mark that it had restarted itself: %v", err)
	}
}
