package test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSQSClients runs Amazon SQS clients as users would, against a server that verifies their signatures. Those that
// are not installed are skipped: make test installs them.
func TestSQSClients(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	home := t.TempDir()
	s, env, broker := newSQSServer(t, home)
	client := func(name string, has []string, args ...string) {
		t.Run(name, func(t *testing.T) {
			wants(t, has...)
			runs(t, env, args...)
		})
	}
	for _, python := range pythons {
		client("boto3 of "+python, []string{python, "-c", "import boto3"}, python, "testdata/sqs/boto3_client.py")
	}
	client("awscli", []string{"aws", "--version"}, "sh", "testdata/sqs/awscli.sh")
	client("perl", []string{"perl", "-MAmazon::SQS::Simple", "-e", "1"}, "perl", "testdata/sqs/simple.pl")
	client("php", []string{"php", "-r", "exit(file_exists('/usr/share/php/AsyncAws/Sqs/autoload.php') && " +
		"file_exists('/usr/share/php/Symfony/Component/HttpClient/autoload.php') ? 0 : 1);"}, "php", "testdata/sqs/async.php")
	t.Run("sqs-consumer", func(t *testing.T) {
		wants(t, "node", "--version")
		runs(t, append(env, "NODE_HOME="+nodeModules(t)), "node", "testdata/sqs/consumer.mjs")
	})
	t.Run("Celery", func(t *testing.T) {
		wants(t, debianPython, "-c", "import celery, boto3")
		celery(t, s, append(env, "BROKER="+broker), home)
	})
}

// TestSQSGoCDK runs the conformance suite of the Go CDK, 14 cases. One of them, TestSendReceiveTwo, needs two
// subscriptions of one topic, which SQS supports only through SNS, and skips itself. The suite is in a separate module.
func TestSQSGoCDK(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	const module = "testdata/sqs/gocdk"
	wants(t, "go", "-C", module, "list", "-deps", "-test", "./...")
	suite := filepath.Join(t.TempDir(), "suite")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-C", module, "-c", "-ldflags", "-s -w",
		"-o", suite, ".").CombinedOutput(); err != nil { // #nosec G204 -- ours
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	_, env, _ := newSQSServer(t, t.TempDir())
	runs(t, env, suite)
}

// newSQSServer starts a server that verifies signatures. It returns the environment for clients, and Celery's broker URL.
func newSQSServer(t *testing.T, home string) (s *server, env []string, broker string) {
	admin := filepath.Join(home, "admin.token")
	s = newServer(t, "--sqs", "--auth", "--admin-token-file", admin)
	s.start()
	key := command(t, "token", "add", "clients", "--role", "admin", "--queue", "*", "--sqs", "--server", s.addr, "--token-file", admin)
	out := &lockedBuffer{}
	key.Stdout = out
	if err := key.Run(); err != nil {
		t.Fatalf("token add: %v: %s", err, key.Stderr)
	}
	env = append(os.Environ(), "HOME="+home, "SQS_URL=http://"+s.addr, "AWS_EC2_METADATA_DISABLED=true", "AWS_REGION=us-east-1",
		"AWS_CA_BUNDLE=")
	var id, secret string
	for line := range strings.Lines(out.String()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch env = append(env, strings.TrimSpace(line)); name {
		case "AWS_ACCESS_KEY_ID":
			id = value
		case "AWS_SECRET_ACCESS_KEY":
			secret = value
		}
	}
	if id == "" || secret == "" {
		t.Fatalf("the token has no access key: %q", out.String())
	}
	return s, env, fmt.Sprintf("sqs://%s:%s@%s", id, secret, s.addr)
}

// debianPython has Debian's packages. Another python3 may come first in the path, with a newer boto3.
const debianPython = "/usr/bin/python3"

var pythons = []string{debianPython, "python3"}

// clientLimit ends a client that takes longer than any should, so that a failure doesn't hang.
const clientLimit = startLimit

// wants skips a test if a command fails: something that the test needs is not installed.
func wants(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Skipf("%s: %v %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
}

func runs(t *testing.T, env []string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// nodeModules installs the Node clients, once for all runs on this machine.
func nodeModules(t *testing.T) string {
	t.Helper()
	home, err := npmPackages(t, "sqs-node", "@aws-sdk/client-sqs@3.1169.0", "sqs-consumer@14.2.8", "sqs-producer@8.0.4")
	if err != nil {
		t.Skip(err)
	}
	return home
}

// npmPackages installs npm packages, once for all runs on this machine, and returns their directory.
func npmPackages(t *testing.T, name string, packages ...string) (home string, err error) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	home = filepath.Join(cache, "pawl-test", name)
	last := packages[len(packages)-1]
	if _, err := os.Stat(filepath.Join(home, "node_modules", last[:strings.LastIndex(last, "@")])); err == nil {
		return home, nil
	}
	if os.Getenv("TOOLS") == "no" {
		return "", fmt.Errorf("TOOLS=no: these packages of npm are not installed: %s", packages)
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"install", "--prefix", home, "--no-audit", "--no-fund", "--loglevel=error"}, packages...)
	if out, err := exec.CommandContext(t.Context(), "npm", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w %s", err, bytes.TrimSpace(out))
	}
	return home, nil
}

// celeryWorker returns the command of a worker.
func celeryWorker(name string) []string {
	return []string{debianPython, "-m", "celery", "-A", "jobs", "worker", "-n", name, "--concurrency", "2", "--without-gossip",
		"--without-mingle", "--without-heartbeat", "-l", "WARNING"}
}

// celery runs a Celery application while its workers, and once the server, are killed: nothing is lost.
func celery(t *testing.T, s *server, env []string, home string) {
	for _, dir := range []string{"results", "celery"} {
		if err := os.Mkdir(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env = append(env, "RESULTS="+filepath.Join(home, "results"), "RUNS="+filepath.Join(home, "runs"), "SLOW=200",
		"PYTHONDONTWRITEBYTECODE=1")
	worker := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), debianPython, celeryWorker("worker@%h")[1:]...)
		cmd.Dir, cmd.Env = "testdata/sqs/celery", env
		startLogged(t, "a worker", cmd)
		return cmd
	}
	first := worker()
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	driver := exec.CommandContext(ctx, debianPython, "drive.py")
	driver.Dir, driver.Env = "testdata/sqs/celery", env
	said := &lockedBuffer{}
	driver.Stdout, driver.Stderr = said, said
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	ran := func(atLeast int) func() bool {
		return func() bool {
			b, _ := os.ReadFile(filepath.Join(home, "runs"))
			return bytes.Count(b, []byte("slow ")) >= atLeast
		}
	}
	eventually(t, "20 slow tasks have run", startLimit, ran(20))
	if err := first.Process.Kill(); err != nil { // with what it has claimed; its children end with their pipes
		t.Fatal(err)
	}
	worker()
	eventually(t, "60 slow tasks have run", startLimit, ran(60))
	s.kill()
	s.start()
	if err := driver.Wait(); err != nil {
		t.Fatalf("the driver: %v\n%s", err, said)
	}
}

// startLogged starts a program that is killed at the end of the test. Its output is logged if the test fails.
func startLogged(t *testing.T, name string, cmd *exec.Cmd) *lockedBuffer {
	t.Helper()
	log := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, log)
		}
	})
	return log
}
