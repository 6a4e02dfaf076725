// Command pictures makes the pictures of the README and of docs/ with the product itself: it starts the real binary,
// creates a stuck queue, takes screenshots of its page, records a terminal, and draws the diagrams from their sources.
// It imports no package of Pawl.
//
//	go run ./test/pictures           # all of them: needs chromium and Graphviz
//	go run ./test/pictures drawings  # only the diagrams: needs Graphviz
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	docs, err := filepath.Abs("docs")
	if err != nil {
		return err
	}
	if err := drawAll(ctx, docs); err != nil {
		return err
	}
	if len(args) == 1 && args[0] == "drawings" {
		return nil
	}
	dir, err := os.MkdirTemp("", "pawl-pictures-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "pawl"), "./cmd/pawl").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	if err := withServer(ctx, dir, "recording", func(s *server) error {
		return record(ctx, s, filepath.Join(docs, "terminal.svg"))
	}); err != nil {
		return err
	}
	return withServer(ctx, dir, "page", func(s *server) error {
		if err := s.stick(ctx); err != nil {
			return err
		}
		return photograph(ctx, s, "/queues/mail", filepath.Join(docs, "stuck-queue"))
	})
}

// server is a pawl that serves on a directory of its own.
type server struct {
	dir     string // where commands run
	address string
	env     []string
	stops   []func() // of what runs in the background
}

// withServer calls f with a new server, and stops it afterwards.
func withServer(ctx context.Context, base, name string, f func(*server) error) error {
	s := &server{dir: filepath.Join(base, name)}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, filepath.Join(base, "pawl"), "serve", "--data", filepath.Join(s.dir, "data"), "--listen",
		"127.0.0.1:0") // #nosec G204 -- ours
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		for _, stop := range s.stops {
			stop()
		}
		cancel()
		_ = cmd.Wait()
	}()
	line, _ := bufio.NewReader(out).ReadString('\n')
	_, rest, ok := strings.Cut(line, " address=")
	if !ok {
		return errors.New("the server did not start")
	}
	s.address, _, _ = strings.Cut(rest, " ")
	s.env = append(os.Environ(), "PAWL_SERVER="+s.address, "HOME="+s.dir, "PATH="+base+":"+os.Getenv("PATH"))
	return f(s)
}

// bash runs a command line and returns its output. A failing command is not an error: a terminal would show that, too.
func (s *server) bash(ctx context.Context, line string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-c", line) // #nosec G204 -- a line of ours
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w", line, err)
	}
	return string(out), nil
}

// background starts a command line that runs until the server is about to stop.
func (s *server) background(ctx context.Context, line string) error {
	cmd := exec.CommandContext(ctx, "bash", "-c", "exec "+line) // #nosec G204 -- a line of ours
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.stops = append(s.stops, func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // a worker ends its commands, too
		_ = cmd.Wait()
	})
	return nil
}
