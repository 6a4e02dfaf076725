package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// outcome is how the tests of a mutant ended.
type outcome string

const (
	killed   outcome = "killed"
	timedOut outcome = "timed out" // killed, too: the tests did not end

	survived   outcome = "survived"
	notCovered outcome = "not covered" // survived: no test reaches it
	refused    outcome = "refused"     // rejected by the compiler: not a mutant
)

// A mutant's tests may use a multiple of the CPU time of those without it, and some more; also of wall-clock time, as
// the machine may be busy. Tests that wait forever use next to no CPU time: they are ended when they have used less
// than idleShare for idleTime.
const (
	timeFactor = 5
	timeMore   = 5 * time.Second
	waitFactor = 10
	waitMore   = time.Minute
	mostMemory = 6 << 20 // KiB of address space: an infinite loop that allocates must not use up the machine's memory
	idleShare  = 0.02
	idleTime   = 5 * time.Second
)

// runner runs test programs.
type runner struct {
	dir   string        // of the package
	limit time.Duration // of CPU time; 0: none
	wait  time.Duration // of wall-clock time; 0: none
	idle  time.Duration // wall-clock time with next to no CPU time; 0: no limit
}

// ran is the result of a run of the tests.
type ran struct {
	passed, timedOut bool
	used, took       time.Duration // CPU time, and wall-clock time
	output           []byte
}

// tests runs the tests with a mutant switched on; 0: none.
func (r *runner) tests(ctx context.Context, binary string, id int, flags ...string) (ran, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.wait > 0 {
		ctx, cancel = context.WithTimeout(ctx, r.wait)
		defer cancel()
	}
	// The shell sets the limits of CPU time and memory, which an infinite loop runs into.
	script := `exec "$@"`
	if r.limit > 0 {
		script = fmt.Sprintf("ulimit -c 0; ulimit -v %d; ulimit -t %d; ", mostMemory, int(r.limit/time.Second)+1) + script
	}
	args := append([]string{"-c", script, "sh", binary, "-test.short", "-test.failfast"}, flags...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), mutantVar+"="+strconv.Itoa(id))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	start := time.Now()
	err := cmd.Start()
	if errors.Is(err, context.DeadlineExceeded) { // its time was over before it started
		return ran{timedOut: true}, nil
	}
	if err != nil {
		return ran{}, err
	}
	if r.idle > 0 {
		go r.endIdle(ctx, cmd.Process.Pid, cancel)
	}
	err = cmd.Wait()
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	end := ran{passed: err == nil, timedOut: ctx.Err() != nil || status.Signaled(), used: used, took: time.Since(start),
		output: out.Bytes()}
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) || ctx.Err() != nil {
		return end, nil
	}
	return end, err
}

// endIdle calls end when the processes of a group have used next to no CPU time for a while. On systems that don't
// report CPU time, only the wall clock ends them.
func (r *runner) endIdle(ctx context.Context, group int, end func()) {
	for before, known := processorTime(group); known; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.idle):
		}
		var now time.Duration
		now, known = processorTime(group)
		// It decreases when a process has exited that was not waited for.
		if used := now - before; known && used >= 0 && used.Seconds() < idleShare*r.idle.Seconds() {
			end()
			return
		}
		before = now
	}
}

// processorTime returns the CPU time that the processes of a group have used so far, including children that they
// waited for. It is known only on Linux.
func processorTime(group int) (used time.Duration, known bool) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			continue // it has just exited
		}
		// After the name in parentheses, the 3rd field of the rest is the group, and the 12th to 15th are the times in user
		// and system mode of the process and of its children, in hundredths of a second (proc_pid_stat(5)).
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(fields) < 15 || fields[2] != strconv.Itoa(group) {
			continue
		}
		for _, f := range fields[11:15] {
			n, _ := strconv.Atoi(f)
			used += time.Duration(n) * 10 * time.Millisecond
		}
		known = true
	}
	return used, known
}

// run plants the selected mutants one at a time, and records the outcome of each.
func run(ctx context.Context, p *pkg, mutants []*mutant, atOnce int) error {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &builder{p, dir}
	tests, err := measure(ctx, b)
	if err != nil {
		return err
	}
	binary, out, err := b.mutated(ctx)
	if err != nil {
		return err
	}
	r := &runner{dir: p.Tests}
	planted, err := r.tests(ctx, binary, 0, p.skips()...)
	if err != nil {
		return err
	}
	if !planted.passed {
		return fmt.Errorf("the tests of %s fail with no mutant on:\n%s", p.Tests, planted.output)
	}
	// The slowdown by the switches.
	tests.slower = max(planted.used.Seconds()/tests.whole.used.Seconds(), 1)
	fmt.Printf("%s: its tests take %.1fs of processor time\n", p.Name, planted.used.Seconds())

	var rest []*mutant
	for _, m := range mutants {
		switch {
		case m.skip || m.equivalent:
		case out[m.id]:
			m.outcome = refused
		case !m.inConst() && len(tests.of(m)) == 0:
			m.outcome = notCovered
		default:
			rest = append(rest, m)
		}
	}
	return plantEach(ctx, &trial{b, tests, binary}, rest, atOnce)
}

// inConst reports whether a mutant is outside functions, which profiles do not cover.
func (m *mutant) inConst() bool { return strings.Contains(m.name, " -: ") }

func plantEach(ctx context.Context, t *trial, mutants []*mutant, atOnce int) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	todo := make(chan *mutant)
	var work sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range atOnce {
		work.Go(func() {
			for m := range todo {
				f, err := t.try(ctx, m)
				if err != nil {
					stop(err)
				}
				m.outcome = f
				mu.Lock()
				if done++; done%100 == 0 || f == survived {
					fmt.Printf("  %d of %d: %s:%d: %s: %s\n", done, len(mutants), filepath.Base(m.file.path), m.line, f, m.name)
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range mutants {
		if ctx.Err() != nil {
			break
		}
		todo <- m
	}
	close(todo)
	work.Wait()
	return context.Cause(ctx)
}

// trial is what it takes to try a mutant.
type trial struct {
	b      *builder
	tests  *suite
	binary string
}

// try runs the tests that reach a mutant, a few at a time, until one detects it.
func (t *trial) try(ctx context.Context, m *mutant) (outcome, error) {
	binary := t.binary
	if m.rebuilt != nil {
		one, compiles, err := t.b.rebuilt(ctx, m)
		if !compiles || err != nil {
			return refused, err
		}
		defer os.Remove(one)
		binary = one
	}
	for _, some := range t.tests.batches(m) {
		end, err := t.some(ctx, binary, m, some)
		switch {
		case err != nil:
			return "", err
		case end.timedOut:
			return timedOut, nil
		case !end.passed:
			return killed, nil
		}
	}
	return survived, nil
}

// some runs some of the tests with a mutant switched on.
func (t *trial) some(ctx context.Context, binary string, m *mutant, some batch) (ran, error) {
	r := &runner{dir: t.b.p.Tests, idle: idleTime}
	r.limit = time.Duration(timeFactor*t.tests.slower*float64(some.used)) + timeMore
	r.wait = time.Duration(waitFactor*t.tests.slower*float64(some.took)) + waitMore
	end, err := r.tests(ctx, binary, m.id, "-test.run="+some.pattern())
	if end.timedOut && end.used < r.limit && err == nil { // they waited: perhaps for a busy machine
		end, err = r.tests(ctx, binary, m.id, "-test.run="+some.pattern())
	}
	return end, err
}
