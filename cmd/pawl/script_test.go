package main

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/cmd/internal/bench"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/relay"
)

func TestMain(m *testing.M) {
	commands := map[string]func(){}
	for name := range programs {
		commands[name] = func() { os.Exit(runProgram(name, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
	}
	testscript.Main(m, commands)
}

// programs are this one and those beside it, which are tested and described together.
var programs = map[string]func(*cli.App) *cobra.Command{
	"pawl":        func(a *cli.App) *cobra.Command { return newRoot(&app{a}) },
	"pawl-bench":  bench.New,
	"pawl-outbox": relay.New,
}

// runProgram executes a command line of a program and returns the exit status.
func runProgram(name string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &cli.App{In: stdin, Out: stdout, Err: stderr}
	return a.Execute(programs[name](a), args)
}

// TestScripts runs testdata/*.txt, each with the real binary and, after "serve", a real server on a directory of its own.
//
//	serve [FLAG...]     starts a server. PAWL_SERVER is its address, DATA its directory, and the file ready has the line that it prints
//	drain               ends it with SIGTERM, crash with SIGKILL ("stop" is testscript's, and ends the script)
//	status N CMD...     runs CMD and expects exit status N
//	collector           starts to receive the spans that servers and commands export
//	spans               prints the received spans, one per line: service, kind, name
//	receiver            starts to receive webhook deliveries at $HOOK, into the file notices. It answers a path /STATUS with that status
//	fetch PATH FILE [HOST]  downloads a path from the server to a file, with the token of PAWL_TOKEN_FILE and optionally another Host;
//	                    with ! before it, expects a refusal
//	sqlite DB FILE      runs the statements in a file on an SQLite database
//	keep NAME           puts the last standard output into the environment
//	[roomy] CMD...      runs CMD if the machine's disk has enough free space for a server not to report it as a problem
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("DATA", env.WorkDir+"/data")
			env.Setenv("TMPDIR", env.WorkDir+"/.tmp")
			env.Setenv("GOROOT", goroot())
			env.Setenv("GOGC", "400") // a command ends before it has collected garbage; servers collect it as usual
			env.Values[serverKey{}] = new(serverProcess)
			env.Values[collectorKey{}] = new(collector)
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "roomy" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			var disk syscall.Statfs_t
			err := syscall.Statfs(os.TempDir(), &disk)
			return disk.Bavail > disk.Blocks/8, err // servers report less than a tenth
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"serve":  func(ts *testscript.TestScript, _ bool, args []string) { serverOf(ts).start(ts, args) },
			"drain":  func(ts *testscript.TestScript, _ bool, _ []string) { serverOf(ts).end(ts, syscall.SIGTERM) },
			"crash":  func(ts *testscript.TestScript, _ bool, _ []string) { serverOf(ts).end(ts, syscall.SIGKILL) },
			"status": status,

			"collector": startCollector,
			"spans":     func(ts *testscript.TestScript, _ bool, _ []string) { writeSpans(ts) },
			"receiver":  startReceiver,
			"fetch":     fetch,
			"sqlite": func(ts *testscript.TestScript, _ bool, args []string) {
				db, err := sql.Open("sqlite", "file:"+ts.MkAbs(args[0])+"?_pragma=busy_timeout(10000)")
				ts.Check(err)
				defer db.Close()
				_, err = db.Exec(ts.ReadFile(args[1]))
				ts.Check(err)
			},
			"keep": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
			},
		},
	})
}

// goroot is asked for only by the tests: each command of a script starts this program too.
var goroot = sync.OnceValue(func() string {
	out, _ := exec.Command("go", "env", "GOROOT").Output()
	return strings.TrimSpace(string(out))
})

type serverKey struct{}

// serverProcess is a script's "pawl serve".
type serverProcess struct{ cmd *exec.Cmd }

func serverOf(ts *testscript.TestScript) *serverProcess {
	return ts.Value(serverKey{}).(*serverProcess)
}

func (s *serverProcess) start(ts *testscript.TestScript, args []string) {
	if s.cmd != nil {
		ts.Fatalf("a server is running: drain or crash it first")
	}
	exe, err := exec.LookPath("pawl")
	ts.Check(err)
	s.cmd = exec.Command(exe, append([]string{"serve", "--data", ts.Getenv("DATA"), "--listen", "127.0.0.1:0"}, args...)...)
	s.cmd.Args[0], s.cmd.Dir, s.cmd.Env = "pawl", ts.MkAbs("."), os.Environ()
	// a script's other variables are for commands
	for _, name := range []string{"PAWL_ALLOWED_HOSTS", "PAWL_LOG_FORMAT", "PAWL_DRAIN_TIMEOUT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		if value := ts.Getenv(name); value != "" {
			s.cmd.Env = append(s.cmd.Env, name+"="+value)
		}
	}
	log, err := os.Create(ts.MkAbs("server.log"))
	ts.Check(err)
	s.cmd.Stderr = log
	out, err := s.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(s.cmd.Start())
	ts.Check(log.Close())
	ts.Defer(func() {
		if s.cmd != nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
	})
	line, _ := bufio.NewReader(out).ReadString('\n')
	addr := addressIn.FindStringSubmatch(line)
	if addr == nil {
		ts.Fatalf("the server printed %q and logged: %s", line, ts.ReadFile("server.log"))
	}
	ts.Check(os.WriteFile(ts.MkAbs("ready"), []byte(line), 0o600))
	ts.Setenv("PAWL_SERVER", addr[1])
}

// addressIn finds the address in the line of a server that is ready, in both formats of the log.
var addressIn = regexp.MustCompile(`\baddress(?:=|":")([^" ]+)`)

func (s *serverProcess) end(ts *testscript.TestScript, with syscall.Signal) {
	ts.Check(s.cmd.Process.Signal(with))
	err := s.cmd.Wait()
	s.cmd = nil
	if with == syscall.SIGTERM && err != nil {
		ts.Fatalf("the server ended with %v: %s", err, ts.ReadFile("server.log"))
	}
}

func status(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("%q ended with status %d, want %d", args[1:], got, want)
	}
}

func fetch(ts *testscript.TestScript, refused bool, args []string) {
	r, err := http.NewRequest("GET", "http://"+ts.Getenv("PAWL_SERVER")+args[0], nil)
	ts.Check(err)
	if len(args) > 2 {
		r.Host = args[2]
	}
	if file := ts.Getenv("PAWL_TOKEN_FILE"); file != "" {
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(ts.ReadFile(file)))
	}
	resp, err := http.DefaultClient.Do(r)
	ts.Check(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if refused != (resp.StatusCode != http.StatusOK) {
		ts.Fatalf("the response has status %s: %s", resp.Status, body)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), body, 0o600))
}
