package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/cmd/pawl/internal/tracing"
)

// The exit statuses of a program that is a handler; every other one but 0 is a failure that is retried. They are those of
// sysexits.h and of qmail's delivery programs where these have one.
const (
	statusPoison  = 65  // EX_DATAERR
	statusRetry   = 75  // EX_TEMPFAIL
	statusDiscard = 99  // qmail: done, and no further
	statusDead    = 100 // qmail: a permanent error
)

const (
	maxResult    = 1 << 20 // the server's limit
	maxErrorTail = 4 << 10
)

// program is a command that is run for each task.
type program struct {
	command string
	grace   time.Duration
	stderr  io.Writer

	mu     sync.Mutex
	groups map[int]struct{} // process groups that run
}

// run is a pawl.Handler.
func (p *program) run(ctx context.Context, c *pawl.Claim) error {
	out, tail := &limited{limit: maxResult}, &lastBytes{limit: maxErrorTail}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", p.command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.Payload), out, io.MultiWriter(tail, p.stderr)
	cmd.Env = append(tracing.Env(ctx, os.Environ()), taskEnv(c)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what it starts ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = p.grace
	if err := cmd.Start(); err != nil {
		return err
	}
	p.add(cmd.Process.Pid)
	err := cmd.Wait()
	p.kill(cmd.Process.Pid)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.outcome(c, err, out, tail)
}

// outcome turns how the program ended into how the task does.
func (p *program) outcome(c *pawl.Claim, err error, out *limited, tail *lastBytes) error {
	var exit *exec.ExitError
	switch {
	case err == nil && out.over:
		return pawl.DeadLetter(fmt.Errorf("the command wrote more than %d bytes of result", maxResult))
	case err == nil:
		if len(out.data) > 0 {
			c.SetRawResult(contentTypeOf(out.data), out.data)
		}
		return nil
	case !errors.As(err, &exit):
		return err
	}
	problem := errors.New(exit.String())
	if text := tail.text(); text != "" {
		problem = fmt.Errorf("%s: %s", exit, text)
	}
	switch exit.ExitCode() {
	case statusPoison:
		return pawl.Poison(problem)
	case statusDead:
		return pawl.DeadLetter(problem)
	case statusDiscard:
		return pawl.Discard(problem)
	}
	return problem // statusRetry, and all others
}

// taskEnv tells the program about its task.
func taskEnv(c *pawl.Claim) []string {
	return []string{
		"PAWL_TASK_ID=" + c.ID, "PAWL_TASK_TYPE=" + c.Type, "PAWL_QUEUE=" + c.Queue, "PAWL_PRIORITY=" + string(c.Priority),
		"PAWL_ATTEMPT=" + strconv.Itoa(c.Attempt), "PAWL_MAX_ATTEMPTS=" + strconv.Itoa(c.MaxAttempts),
		"PAWL_FENCE=" + strconv.FormatInt(c.Fence, 10), "PAWL_CONTENT_TYPE=" + c.ContentType,
		"PAWL_KEY=" + c.Key, "PAWL_IDEMPOTENCY_KEY=" + c.IdempotencyKey,
	}
}

// contentTypeOf guesses what a program wrote.
func contentTypeOf(data []byte) string {
	switch {
	case json.Valid(data):
		return "application/json"
	case utf8.Valid(data):
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

func (p *program) add(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.groups == nil {
		p.groups = map[int]struct{}{}
	}
	p.groups[pid] = struct{}{}
}

// kill ends what is left of a process group.
func (p *program) kill(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.groups, pid)
	_ = syscall.Kill(-pid, syscall.SIGKILL) // usually there is none left
}

func (p *program) killAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid := range p.groups {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

// limited keeps the first bytes that are written to it, and takes the rest so that the program can end.
type limited struct {
	data  []byte
	limit int
	over  bool
}

// Write implements io.Writer.
func (l *limited) Write(b []byte) (int, error) {
	room := l.limit - len(l.data)
	l.over = l.over || len(b) > room
	l.data = append(l.data, b[:min(len(b), room)]...)
	return len(b), nil
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	data  []byte
	limit int
}

// Write implements io.Writer.
func (t *lastBytes) Write(b []byte) (int, error) {
	t.data = append(t.data, b...)
	if len(t.data) > 2*t.limit {
		t.data = append(t.data[:0], t.data[len(t.data)-t.limit:]...)
	}
	return len(b), nil
}

func (t *lastBytes) text() string {
	data := t.data[max(0, len(t.data)-t.limit):]
	return strings.TrimSpace(strings.ToValidUTF8(string(data), ""))
}

// lockedWriter lets many programs write whole chunks at once.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
