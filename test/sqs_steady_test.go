package test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSQSSteady runs a Celery application and an sqs-consumer worker at a low rate for PAWL_SQS_MINUTES, while the
// server and the workers are repeatedly killed with -9: every accepted task runs. TestSQSClients does that for seconds,
// so without the variable this test is skipped. 600 minutes are a night.
func TestSQSSteady(t *testing.T) {
	if os.Getenv("PAWL_SQS_MINUTES") == "" {
		t.Skip("set PAWL_SQS_MINUTES=60 to run Celery and sqs-consumer under kills for an hour")
	}
	length := time.Duration(count(t, "PAWL_SQS_MINUTES", 1)) * time.Minute
	wants(t, debianPython, "-c", "import celery, boto3")
	wants(t, "node", "--version")
	w := newSteadyWorld(t, nodeModules(t))

	for end := time.Now().Add(length); time.Now().Before(end); {
		time.Sleep(time.Until(earlier(time.Now().Add(10*time.Second+rand.N(20*time.Second)), end)))
		w.killOne()
	}
	for _, p := range w.producers {
		p.kill()
	}
	// A dead worker's message is visible again after 10 s.
	eventually(t, "every task that was taken has run", 5*time.Minute, func() bool { return len(w.lost()) == 0 })
	w.report(length)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// steadyWorld is a server, two producers and their workers. Accepted tasks are in the file sent, and runs in the file runs.
type steadyWorld struct {
	t                  *testing.T
	s                  *server
	sent, runs         string
	producers, workers []*steady
	kills              map[string]int
}

// steady is a process that is restarted when it was killed.
type steady struct {
	t    *testing.T
	name string
	env  []string
	dir  string
	args func() []string
	cmd  *exec.Cmd
	log  *os.File
}

func newSteadyWorld(t *testing.T, nodeHome string) *steadyWorld {
	home := t.TempDir()
	s, env, broker := newSQSServer(t, home)
	w := &steadyWorld{t: t, s: s, sent: filepath.Join(home, "sent"), runs: filepath.Join(home, "runs"), kills: map[string]int{}}
	for _, dir := range []string{"results", "celery"} {
		if err := os.Mkdir(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env = append(env, "BROKER="+broker, "RESULTS="+filepath.Join(home, "results"), "RUNS="+w.runs, "SENT="+w.sent, "NODE_HOME="+nodeHome,
		"RATE=5", "PYTHONDONTWRITEBYTECODE=1")
	process := func(name, dir string, args func() []string) *steady {
		log, err := os.Create(filepath.Join(home, name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		p := &steady{t: t, name: name, env: env, dir: dir, args: args, log: log}
		p.start()
		t.Cleanup(func() {
			p.kill()
			if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
				t.Logf("output of %s:\n%s", name, said[max(0, len(said)-3000):])
			}
			_ = log.Close()
		})
		return p
	}
	// A producer continues after the last accepted number.
	next := func(kind string) string { return strconv.Itoa(len(lines(w.sent, kind))) }
	const celeryDir = "testdata/sqs/celery"
	w.producers = []*steady{
		process("celery-producer", celeryDir, func() []string { return []string{debianPython, "feed.py", next("slow")} }),
		process("node-producer", "", func() []string { return []string{"node", "testdata/sqs/steady.mjs", "feed", next("node")} }),
	}
	for i := range 2 {
		w.workers = append(w.workers,
			process(fmt.Sprintf("celery-worker-%d", i), celeryDir, func() []string { return celeryWorker(fmt.Sprintf("w%d@%%h", i)) }),
			process(fmt.Sprintf("node-worker-%d", i), "", func() []string { return []string{"node", "testdata/sqs/steady.mjs", "work"} }))
	}
	return w
}

func (p *steady) start() {
	args := p.args()
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = p.dir, p.env, p.log, p.log
	if err := p.cmd.Start(); err != nil {
		p.t.Error(err)
	}
}

func (p *steady) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}

// killOne kills the server, a worker, a child process of a Celery worker, or a producer.
func (w *steadyWorld) killOne() {
	switch n := rand.IntN(10); {
	case n < 3:
		w.kills["server"]++
		w.s.kill()
		w.s.start()
	case n < 5:
		w.kills["child of a Celery worker"]++
		w.killChild()
	case n < 9:
		p := w.workers[rand.IntN(len(w.workers))]
		w.kills[p.name]++
		p.kill()
		p.start()
	default:
		p := w.producers[rand.IntN(len(w.producers))]
		w.kills[p.name]++
		p.kill()
		p.start()
	}
}

// killChild kills a process that runs tasks for a Celery worker, which then starts another.
func (w *steadyWorld) killChild() {
	for _, p := range w.workers {
		if !strings.HasPrefix(p.name, "celery") {
			continue
		}
		pid := p.cmd.Process.Pid
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		for _, child := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(child); err == nil {
				_ = syscall.Kill(n, syscall.SIGKILL) // it may have ended
				return
			}
		}
	}
}

// lines returns the lines of a kind in a file, without those that a kill truncated.
func lines(file, kind string) map[string]int {
	b, _ := os.ReadFile(file) // it may not exist yet
	seen := map[string]int{}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, kind) && strings.HasSuffix(line, "\n") {
			seen[strings.TrimSpace(line)]++
		}
	}
	return seen
}

func (w *steadyWorld) lost() (lost []string) {
	ran := lines(w.runs, "")
	for line := range lines(w.sent, "") {
		if ran[line] == 0 {
			lost = append(lost, line)
		}
	}
	return lost
}

func (w *steadyWorld) report(length time.Duration) {
	for _, kind := range []string{"slow", "node"} {
		sent, ran, again := lines(w.sent, kind), lines(w.runs, kind), 0
		for _, n := range ran {
			again += n - 1
		}
		w.t.Logf("%s, %s: %d tasks were accepted and ran, %d ran again", length, map[string]string{"slow": "Celery",
			"node": "sqs-consumer"}[kind], len(sent), again)
		if rate := length / time.Second; len(sent) < int(rate)/2 {
			w.t.Errorf("%s: only %d tasks were accepted in %s", kind, len(sent), length)
		}
	}
	w.t.Logf("killed: %v", w.kills)
}
