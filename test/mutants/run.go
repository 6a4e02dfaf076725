package main

import (
	"bufio"
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

// fate is what became of a mutant.
type fate string

const (
	killed   fate = "killed"
	timedOut fate = "timed out" // killed, too: the tests did not end

	survived   fate = "survived"
	notCovered fate = "not covered" // survived: no test comes there
	refused    fate = "refused"     // by the compiler: no mutant
)

// The tests of a mutant may take so many times the processor time of those without, and some more. Tests that wait forever use none:
// they may take so many times the time by the clock, and some more, as the machine may be busy.
const (
	timeFactor = 5
	timeMore   = 5 * time.Second
	waitFactor = 10
	waitMore   = time.Minute
)

// runner runs test programs.
type runner struct {
	dir   string        // of the package
	limit time.Duration // of processor time; 0: none
	wait  time.Duration // by the clock; 0: none
}

// ran is how a run of the tests went.
type ran struct {
	passed, timedOut bool
	used, took       time.Duration // of processor time, and by the clock
	said             []byte
}

// tests runs the tests with a mutant on; 0: none.
func (r *runner) tests(ctx context.Context, binary string, id int, flags ...string) (ran, error) {
	if r.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.wait)
		defer cancel()
	}
	// The shell sets the limit of processor time, which a loop without end comes to.
	script := `exec "$@"`
	if r.limit > 0 {
		script = fmt.Sprintf("ulimit -c 0; ulimit -t %d; ", int(r.limit/time.Second)+1) + script
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
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return ran{}, err
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	end := ran{passed: err == nil, timedOut: ctx.Err() != nil || status.Signaled(), used: used, took: time.Since(start), said: out.Bytes()}
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) || ctx.Err() != nil {
		return end, nil
	}
	return end, err
}

// run plants the wanted mutants one at a time, and notes the fate of each.
func run(ctx context.Context, p *pkg, mutants []*mutant, atOnce int) error {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &builder{p, dir}
	covered, plain, err := cover(ctx, b)
	if err != nil {
		return err
	}
	binary, out, err := b.planted(ctx)
	if err != nil {
		return err
	}
	r := &runner{dir: p.Dir}
	planted, err := r.tests(ctx, binary, 0)
	if err != nil {
		return err
	}
	if !planted.passed {
		return fmt.Errorf("the tests of %s fail with no mutant on:\n%s", p.Name, planted.said)
	}
	r.limit = timeFactor*max(plain.used, planted.used) + timeMore
	r.wait = waitFactor*max(plain.took, planted.took) + waitMore
	fmt.Printf("%s: its tests take %.1fs of processor time\n", p.Name, planted.used.Seconds())

	var rest []*mutant
	for _, m := range mutants {
		switch {
		case m.skip || m.equivalent:
		case out[m.id]:
			m.fate = refused
		case !m.inConst() && !covered.has(m):
			m.fate = notCovered
		default:
			rest = append(rest, m)
		}
	}
	return plantEach(ctx, b, r, binary, rest, atOnce)
}

// inConst says that a mutant lies outside of functions, of which no profile tells.
func (m *mutant) inConst() bool { return strings.Contains(m.name, " -: ") }

func plantEach(ctx context.Context, b *builder, r *runner, binary string, mutants []*mutant, atOnce int) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	todo := make(chan *mutant)
	var work sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range atOnce {
		work.Go(func() {
			for m := range todo {
				f, err := try(ctx, b, r, binary, m)
				if err != nil {
					stop(err)
				}
				m.fate = f
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

func try(ctx context.Context, b *builder, r *runner, binary string, m *mutant) (fate, error) {
	if m.rebuilt != nil {
		one, compiles, err := b.rebuilt(ctx, m)
		if !compiles || err != nil {
			return refused, err
		}
		defer os.Remove(one)
		binary = one
	}
	end, err := r.tests(ctx, binary, m.id)
	if end.timedOut && end.used < r.limit && err == nil { // they waited: for a busy machine, perhaps
		end, err = r.tests(ctx, binary, m.id)
	}
	switch {
	case end.passed:
		return survived, err
	case end.timedOut:
		return timedOut, err
	}
	return killed, err
}

// coverage has the lines of files that tests come to.
type coverage map[string][][2]int

func (c coverage) has(m *mutant) bool {
	for _, lines := range c[filepath.Base(m.file.path)] {
		if lines[0] <= m.line && m.line <= lines[1] {
			return true
		}
	}
	return false
}

// cover runs the tests of the package as it is.
func cover(ctx context.Context, b *builder) (coverage, ran, error) {
	binary, profile := filepath.Join(b.dir, "cover.test"), filepath.Join(b.dir, "cover.out")
	if said, err := b.compile(ctx, binary, nil, "-cover"); err != nil {
		return nil, ran{}, fmt.Errorf("%w\n%s", err, said)
	}
	r := &runner{dir: b.p.Dir}
	end, err := r.tests(ctx, binary, 0, "-test.coverprofile="+profile)
	if err != nil {
		return nil, ran{}, err
	}
	if !end.passed {
		return nil, ran{}, fmt.Errorf("the tests of %s fail:\n%s", b.p.Name, end.said)
	}
	f, err := os.Open(profile)
	if err != nil {
		return nil, ran{}, err
	}
	defer f.Close()
	c := coverage{}
	// A line is: import/path/file.go:12.34,15.2 3 1
	for s := bufio.NewScanner(f); s.Scan(); {
		at, counts, found := strings.Cut(s.Text(), " ")
		file, span, _ := strings.Cut(filepath.Base(at), ":")
		var lines [2]int
		var column, statements, times int
		if n, _ := fmt.Sscanf(span+" "+counts, "%d.%d,%d.%d %d %d", &lines[0], &column, &lines[1], &column, &statements, &times); found && n == 6 && times > 0 {
			c[file] = append(c[file], lines)
		}
	}
	return c, end, nil
}
