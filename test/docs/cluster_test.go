package docs

import (
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestCluster runs the commands of "Three nodes on one machine" in docs/cluster.md in order, with other ports.
func TestCluster(t *testing.T) {
	t.Parallel()
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, "docs/cluster.md")
	_, section, _ := strings.Cut(page, "\n## Three nodes on one machine\n")
	section, _, _ = strings.Cut(section, "\n## ")
	ports := otherPorts(t, section)
	x := &terminal{t: t, dir: t.TempDir(), ports: ports, ownGroup: true}
	x.env = append(os.Environ(), "HOME="+x.dir, "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))

	output, blocks := "", 0
	for _, b := range blocksOf(t, "docs/cluster.md") {
		if !strings.Contains(section, b.text) {
			continue
		}
		blocks++
		switch b.lang {
		case "sh":
			output = x.bash(b)
		case "text":
			if got, want := firstWords(fullDisks.ReplaceAllString(output, "no problems\n")), firstWords(b.text); !slices.Equal(got, want) {
				t.Errorf("%s: the first words of the commands' lines are %q, want %q:\n%s", b, got, want, output)
			}
		}
		if t.Failed() {
			break
		}
	}
	if blocks != 9 && !t.Failed() {
		t.Errorf("%d blocks ran, want 9", blocks)
	}
	if t.Failed() {
		logs, _ := filepath.Glob(filepath.Join(x.dir, "*.log"))
		for _, log := range logs {
			text, _ := os.ReadFile(log) // #nosec G304 -- of the test's directory
			t.Logf("%s:\n%s", filepath.Base(log), text)
		}
	}
}

// fullDisks matches the output of a cluster whose only problem is that the disk of the test's machine is nearly full.
var fullDisks = regexp.MustCompile(`problems:\n(  the disk of node \w+ has \S+ of \S+ free\n)+$`)

// otherPorts returns a free port for every loopback port in a text.
func otherPorts(t *testing.T, text string) map[string]string {
	t.Helper()
	ports := map[string]string{}
	for _, port := range regexp.MustCompile(`\b7[23]\d\d\b`).FindAllString(text, -1) {
		if ports[port] != "" {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // only when all are found, so that none is found twice
		ports[port] = fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	}
	if len(ports) != 6 {
		t.Fatalf("the page uses the ports %v, want six", slices.Sorted(maps.Keys(ports)))
	}
	return ports
}

// firstWords returns the first word of each line of an output: the stable part of a table of nodes.
func firstWords(text string) (out []string) {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			out = append(out, words[0])
		}
	}
	return out
}

// killGroup kills the processes that a page's commands have left in their group.
func killGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}
