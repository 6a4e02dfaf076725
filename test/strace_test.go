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

// fault is what strace does to system calls of a process: it changes their outcome where the kernel would, so that a
// real disk's failures come to the real binary without a broken disk.
type fault struct {
	calls string // "fsync,fdatasync"
	does  string // "error=EIO:when=1"; when counts the calls of each thread apart
	file  string // only calls on this file; "" for all
}

// args are strace's. Its report of the calls, with their times, goes into a file of its own.
func (f fault) args(report string) []string {
	args := []string{"-f", "-ttt", "-y", "-o", report, "-e", "trace=" + f.calls, "-e", "signal=none", "-e", "inject=" + f.calls + ":" + f.does}
	if f.file != "" {
		args = append(args, "-P", f.file)
	}
	return args
}

// needStrace skips the test where strace can't run: it is not installed, or tracing is forbidden.
func needStrace(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("strace", "-o", "/dev/null", "true").CombinedOutput(); err != nil {
		t.Skipf("strace can't run here, which this test needs (apt-get install strace): %v %s", err, out)
	}
}

// injected is a fault that has come upon a running server.
type injected struct {
	t      testing.TB
	report string
	tracer *exec.Cmd
}

// inject brings a fault upon the server that runs, from now on. The tracer ends with the process, or by lift.
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

// lift ends the fault: calls that it holds up go on.
func (i *injected) lift() {
	if i.tracer.ProcessState == nil {
		_ = i.tracer.Process.Kill()
		_ = i.tracer.Wait()
	}
}

// startsUnder makes the server start with a fault. The tracer is a grandchild (-D), so that the server is our child as
// without it, and ends with it.
func (s *server) startsUnder(f fault) *injected {
	i := &injected{t: s.t, report: filepath.Join(s.t.TempDir(), "calls")}
	s.under = append([]string{"strace", "-D"}, f.args(i.report)...)
	return i
}

// The report has a line for each call: "PID TIME CALL(FILE...) = -1 EIO (...) (INJECTED)". That of a call which is
// held up has no end yet.
var (
	failedCall = regexp.MustCompile(`(?m)^\d+ +(\d+)\.(\d{6}) .*\(INJECTED\)$`)
	hungCall   = regexp.MustCompile(`(?m)^\d+ +(\d+)\.(\d{6}) .*(>|<unfinished \.\.\.>)$`)
)

// first tells when the first call was failedCall or hungCall, and which; ok is false if there was none so far.
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
