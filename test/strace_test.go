package test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fault is what strace does to a process's system calls: it changes their results as the kernel would, so that the real
// binary sees a real disk's failures without a broken disk.
type fault struct {
	calls string // "fsync,fdatasync"
	does  string // "error=EIO:when=1"; when counts each thread's calls separately
	file  string // only calls on this file; "" for all
}

// args returns strace's arguments. Its report of the calls, with their times, goes to a file.
func (f fault) args(report string) []string {
	args := []string{"-f", "-ttt", "-y", "-o", report, "-e", "trace=" + f.calls, "-e", "signal=none", "-e",
		"inject=" + f.calls + ":" + f.does}
	if f.file != "" {
		args = append(args, "-P", f.file)
	}
	return args
}

// needStrace skips the test if strace is not installed or tracing is forbidden.
func needStrace(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("strace", "-o", "/dev/null", "true").CombinedOutput(); err != nil {
		t.Skipf("this test needs strace (apt-get install strace): %v %s", err, out)
	}
}

// injected is a fault in a running server.
type injected struct {
	t      testing.TB
	report string
	tracer *exec.Cmd
}

// inject injects a fault into the running server. The tracer ends with the process, or when the fault is lifted.
func (s *server) inject(f fault) *injected {
	s.t.Helper()
	i := &injected{t: s.t, report: filepath.Join(s.t.TempDir(), "calls")}
	i.tracer = exec.Command("strace", append(f.args(i.report), "-p", strconv.Itoa(s.pid()))...)
	var said lockedBuffer
	i.tracer.Stderr = &said
	if err := i.tracer.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(i.lift)
	s.life.fault = i
	eventually(s.t, "strace attaches", startLimit, func() bool { return strings.Contains(said.String(), "attached") })
	return i
}

// lift ends the fault: delayed calls continue.
func (i *injected) lift() {
	if i.tracer.ProcessState == nil {
		_ = i.tracer.Process.Kill()
		_ = i.tracer.Wait()
	}
}

// startsUnder makes the server start with a fault. The tracer is a grandchild (-D), so that the server is still our
// child, and ends with it. For an error, only the traced calls stop the server. Then strace would send no signal.
func (s *server) startsUnder(f fault) *injected {
	i := &injected{t: s.t, report: filepath.Join(s.t.TempDir(), "calls")}
	s.under = []string{"strace", "-D"}
	if strings.HasPrefix(f.does, "error=") {
		s.under = append(s.under, "--seccomp-bpf")
	}
	s.under = append(s.under, f.args(i.report)...)
	return i
}

// The report has a line for each call: "PID TIME CALL(FILE...) = -1 EIO (...) (INJECTED)". The line of a delayed call has no end yet.
var (
	failedCall = regexp.MustCompile(`(?m)^\d+ +(\d+)\.(\d{6}) .*\(INJECTED\)$`)
	hungCall   = regexp.MustCompile(`(?m)^\d+ +(\d+)\.(\d{6}) .*(>|<unfinished \.\.\.>)$`)
)

// first returns when the first failedCall or hungCall occurred, and which call it was; ok is false if there was none so far.
func (i *injected) first(kind *regexp.Regexp) (at time.Time, what string, ok bool) {
	i.t.Helper()
	b, err := os.ReadFile(i.report)
	if err != nil {
		i.t.Fatal(err)
	}
	m := kind.FindSubmatch(b)
	if m == nil {
		return time.Time{}, "", false
	}
	s, _ := strconv.ParseInt(string(m[1]), 10, 64)
	us, _ := strconv.ParseInt(string(m[2]), 10, 64)
	return time.UnixMicro(s*1e6 + us), string(bytes.TrimSpace(m[0])), true
}
