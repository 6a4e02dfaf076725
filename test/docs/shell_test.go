package docs

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// run lists the pages whose commands are all run. Other pages need containers, several machines or a database, or name
// tasks that only the reader has: cmd/pawl checks that their commands exist.
var run = []string{"docs/coming-from-sidekiq.md", "docs/fairness.md", "docs/get-started.md", "docs/order.md", "docs/schedules.md",
	"docs/workers-in-any-language.md"}

// binary returns the path of pawl. PAWL_BINARY names it; without, it is built once for all tests of the package.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("PAWL_BINARY"); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "pawl-docs-")
	if err != nil {
		return "", err
	}
	built = dir
	if out, err := exec.Command("go", "build", "-o", dir+"/pawl", root+"/cmd/pawl").CombinedOutput(); err != nil { // #nosec G204 -- ours
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir + "/pawl", nil
})

// built is the directory in which binary has built pawl; "": it has not.
var built string

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(code)
}

// terminal is where a reader tries out a page: a directory with the page's files, and a server.
type terminal struct {
	t      *testing.T
	dir    string
	server string // HOST:PORT
	env    []string

	ports    map[string]string // replacements for the page's ports
	ownGroup bool              // commands may leave processes behind, which are killed at the end of the test
}

// open starts a server for a page.
func open(t *testing.T, flags ...string) *terminal {
	t.Helper()
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, dir: t.TempDir()}
	serve := exec.Command(program, "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0") // #nosec G204 -- ours
	serve.Args = append(serve.Args, flags...)
	out, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serve.Process.Kill(); _ = serve.Wait() })
	line, _ := bufio.NewReader(out).ReadString('\n')
	_, rest, _ := strings.Cut(line, " address=")
	x.server, _, _ = strings.Cut(strings.TrimSpace(rest), " ")
	x.env = append(os.Environ(), "PAWL_SERVER="+x.server, "PAWL_API=http://"+x.server+"/api/v1", "HOME="+x.dir,
		"PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	return x
}

// here replaces the server's address, or the ports, in a page's text.
func (x *terminal) here(text string) string {
	if x.ports != nil {
		return regexp.MustCompile(`\b7[23]\d\d\b`).ReplaceAllStringFunc(text, func(port string) string { return x.ports[port] })
	}
	return strings.NewReplacer("localhost:7295", x.server, "127.0.0.1:7295", x.server).Replace(text)
}

// write writes a page's file to the directory.
func (x *terminal) write(b block) {
	x.t.Helper()
	if err := os.WriteFile(filepath.Join(x.dir, b.name()), []byte(b.text), 0o700); err != nil { // #nosec G306 -- scripts are run
		x.t.Fatal(err)
	}
}

// bash runs commands. Variables that they set are kept for the next call.
func (x *terminal) bash(b block) (output string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	const keep = `[ -f .variables ] && . ./.variables 2>/dev/null
trap 'declare -p 2>/dev/null | grep -E "^declare -(-|x) ([a-z]|PAWL_)" > .variables || true' EXIT
`
	cmd := exec.CommandContext(ctx, "bash", "-e", "-c", keep+x.here(b.text)) // #nosec G204 -- a page of ours
	cmd.Dir, cmd.Env = x.dir, x.env
	if x.ownGroup {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		x.t.Cleanup(func() { killGroup(cmd) })
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		x.t.Errorf("%s: %v: %s", b, err, out)
	}
	return string(out)
}

// background starts a program that runs until it is stopped, and returns a function that stops it with SIGTERM and waits.
func (x *terminal) background(command string) (stop func() error) {
	x.t.Helper()
	cmd := exec.Command("bash", "-c", "exec "+x.here(command)) // #nosec G204 -- a page of ours
	var out bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = x.dir, x.env, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	stop = sync.OnceValue(func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		err := cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has left behind
		if err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, &out)
		}
		return nil
	})
	x.t.Cleanup(func() {
		if err := stop(); err != nil {
			x.t.Log(err)
		}
	})
	return stop
}

// forEver matches the last command of a block that runs in a terminal of its own.
var forEver = regexp.MustCompile(`^(pawl serve|pawl work |sh worker\.sh|python3? worker\.py|node worker\.mjs)`)

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// TestShell: the commands of a page run in order, and print what the text block after them shows.
func TestShell(t *testing.T) {
	for _, page := range run {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			x := open(t)
			output := ""
			for _, b := range blocksOf(t, page) {
				switch last := lastLine(b.text); {
				case b.name() != "":
					x.write(b)
				case b.lang == "sh" && strings.HasPrefix(last, "pawl serve"), b.lang == "sh" && strings.Contains(last, "worker."):
					output = "" // it keeps running; worker_test.go tests the workers
				case b.lang == "sh" && strings.HasPrefix(last, "go install"):
				case b.lang == "sh" && forEver.MatchString(last):
					b.text = strings.TrimSuffix(strings.TrimSpace(b.text), last)
					x.bash(b)
					x.background(last)
				case b.lang == "sh":
					output = x.bash(b)
				case b.lang == "text" && output != "":
					if got, want := shape(output), shape(b.text); !strings.Contains(got, want) {
						t.Errorf("%s: the commands before it print\n%s\nwant\n%s", b, output, b.text)
					}
				}
			}
		})
	}
}

var (
	uuid    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	moment  = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| UTC)?`)
	age     = regexp.MustCompile(`\b\d+(\.\d+)?(ms|µs|s|m|h)( ago)?`)
	spacing = regexp.MustCompile(`[ \t]+`)
)

// shape removes from an output what differs between runs: ids, times, ages and column widths.
func shape(text string) string {
	text = uuid.ReplaceAllString(text, "ID")
	text = moment.ReplaceAllString(text, "TIME")
	text = age.ReplaceAllString(text, "AGE")
	text = spacing.ReplaceAllString(text, " ")
	return strings.TrimSpace(strings.ReplaceAll(text, " \n", "\n"))
}

// TestShape: relevant differences are detected.
func TestShape(t *testing.T) {
	a, b := "mail  1  01a20e67-9bd3-7001-a53e-e7987e9fb3ca 14ms \n", "mail 1 0199f3c2-9bd3-7001-a53e-e7987e9fb3cb 2s\n"
	if shape(a) != shape(b) {
		t.Errorf("%q and %q differ, want them to have the same shape", shape(a), shape(b))
	}
	if shape("mail 1") == shape("mail 2") {
		t.Error("shape drops a number that is not an age")
	}
}
