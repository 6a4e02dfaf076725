package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/tracing"
	"github.com/pawlq/pawl/internal/apijson"
)

// Exit statuses of a handler program; every other one but 0 is a failure to be retried. They follow sysexits.h and
// qmail's delivery programs where those define one.
const (
	statusPoison  = 65  // EX_DATAERR
	statusRetry   = 75  // EX_TEMPFAIL
	statusDiscard = 99  // qmail: done, stop here
	statusDead    = 100 // qmail: a permanent error
)

const (
	maxResult    = 1 << 20 // the server's limit
	maxErrorTail = 4 << 10
)

// program runs a command for each task.
type program struct {
	command string
	grace   time.Duration
	stderr  io.Writer

	mu     sync.Mutex
	groups map[int]struct{} // running process groups
}

// plainWord matches a word that the shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./+-]*$`)

// check refuses a command that can't be run: it would fail every task, and use up their attempts. It sees only a first word that is plain.
func (p *program) check() (err error) {
	words := strings.Fields(p.command)
	switch {
	case len(words) == 0 || !plainWord.MatchString(words[0]):
		return nil
	case strings.Contains(words[0], "/"):
		_, err = exec.LookPath(words[0])
	default: // it may be a builtin
		err = exec.Command("/bin/sh", "-c", `command -v "$1"`, "sh", words[0]).Run()
	}
	if err != nil {
		return cli.Usage("--exec %q: %q is not a command here", p.command, words[0])
	}
	return nil
}

// run is a pawl.Handler.
func (p *program) run(ctx context.Context, c *pawl.Claim) error {
	out, tail := &limited{limit: maxResult}, &lastBytes{limit: maxErrorTail}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", p.command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.Payload), out, io.MultiWriter(tail, p.stderr)
	cmd.Env = append(tracing.Env(ctx, slices.DeleteFunc(os.Environ(), secret)), taskEnv(c)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its children can be signalled too
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = p.grace
	if err := cmd.Start(); err != nil {
		return err
	}
	p.add(cmd.Process.Pid)
	err := cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) { // it has exited with 0, but a process that it has left keeps its output open
		err = nil
	}
	p.kill(cmd.Process.Pid)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.outcome(c, err, out, tail)
}

// outcome translates the program's exit to the task's outcome.
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
	return problem // statusRetry and all others
}

// secret reports whether a variable gives access to the server or to encrypted payloads. A handler gets none of the worker's rights.
func secret(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{"PAWL_TOKEN", "PAWL_TOKEN_FILE", "PAWL_PAYLOAD_KEYS", "PAWL_CLIENT_CERT",
		"PAWL_CLIENT_KEY", "PAWL_CONTEXT"}, name)
}

// taskEnv returns the environment variables that describe the task.
func taskEnv(c *pawl.Claim) []string {
	return []string{
		"PAWL_TASK_ID=" + c.ID, "PAWL_TASK_TYPE=" + c.Type, "PAWL_QUEUE=" + c.Queue, "PAWL_PRIORITY=" + string(c.Priority),
		"PAWL_ATTEMPT=" + strconv.Itoa(c.Attempt), "PAWL_MAX_ATTEMPTS=" + strconv.Itoa(c.MaxAttempts),
		"PAWL_FENCE=" + strconv.FormatInt(c.Fence, 10), "PAWL_CONTENT_TYPE=" + c.ContentType,
		"PAWL_KEY=" + c.Key, "PAWL_IDEMPOTENCY_KEY=" + c.IdempotencyKey,
	}
}

// contentTypeOf guesses the content type of a program's output.
func contentTypeOf(data []byte) string {
	switch {
	case apijson.CheckJSON(data) == nil: // the server would refuse what it does not take for JSON
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

// kill kills the processes left in a group.
func (p *program) kill(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.groups, pid)
	_ = syscall.Kill(-pid, syscall.SIGKILL) // usually there is none
}

func (p *program) killAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid := range p.groups {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

// limited keeps the first bytes written to it, and discards the rest so that the program can finish.
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

// lastBytes keeps the last bytes written to it.
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

// lockedWriter lets concurrent programs write in whole chunks.
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
