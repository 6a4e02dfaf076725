package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/internal/certs"
)

// cert runs "pawl cert ARGS...".
func cert(t *testing.T, args ...string) (out string, status int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := &app{&cli.App{Out: &stdout, Err: &stderr, Format: "table"}}
	root := &cobra.Command{Use: "pawl", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().StringVarP(&a.Format, "output", "o", "table", "")
	root.AddCommand(newCert(a))
	root.SetArgs(append([]string{"cert"}, args...))
	cmd, err := root.ExecuteC()
	if err != nil {
		status = a.Fail(cmd, err)
		return stderr.String(), status
	}
	return stdout.String(), cli.ExitDone
}

func TestCert(t *testing.T) {
	dir := t.TempDir()
	ca, out := filepath.Join(dir, "ca"), filepath.Join(dir, "nodes")
	if text, status := cert(t, "ca", "--out", ca); status != cli.ExitDone || !strings.Contains(text, "ca.crt") {
		t.Fatalf("pawl cert ca: status %d, %s", status, text)
	}
	if text, status := cert(t, "node", "n1", "--ca", ca, "--out", out, "--host", "n1.example.com,10.0.0.1", "--host",
		"::1"); status != cli.ExitDone {
		t.Fatalf("pawl cert node: status %d, %s", status, text)
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(out, "n1.crt"), filepath.Join(out, "n1.key")); err != nil {
		t.Error(err)
	}
	for _, key := range []string{filepath.Join(ca, "ca.key"), filepath.Join(out, "n1.key")} {
		if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v, want 0600", key, info.Mode(), err)
		}
	}
	text, status := cert(t, "show", filepath.Join(out, "n1.crt"))
	for _, w := range []string{"node n1", "pawl://node/n1", "n1.example.com, 10.0.0.1, ::1", "(in 825d)", "pawl cluster authority"} {
		if status != cli.ExitDone || !strings.Contains(text, w) {
			t.Errorf("pawl cert show: status %d, want %q in\n%s", status, w, text)
		}
	}
	if text, status := cert(t, "server", "s1", "--ca", ca, "--out", out, "--host", "pawl.example.com,10.0.0.1"); status != cli.ExitDone {
		t.Fatalf("pawl cert server: status %d, %s", status, text)
	}
	text, status = cert(t, "show", filepath.Join(out, "s1.crt"))
	for _, w := range []string{"whose    server", "pawl.example.com, 10.0.0.1", "(in 825d)"} {
		if status != cli.ExitDone || !strings.Contains(text, w) {
			t.Errorf("pawl cert show: status %d, want %q in\n%s", status, w, text)
		}
	}
	if text, _ := cert(t, "show", filepath.Join(ca, "ca.crt"), "-o", "json"); !strings.Contains(text, `"authority": true`) {
		t.Errorf("pawl cert show -o json of the authority:\n%s", text)
	}
}

// TestCertKeeps: nothing is overwritten, not even half of a pair.
func TestCertKeeps(t *testing.T) {
	for _, there := range []string{"ca.crt", "ca.key"} {
		dir := t.TempDir()
		path := filepath.Join(dir, there)
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		text, status := cert(t, "ca", "--out", dir)
		if status != cli.ExitRefused || !strings.Contains(text, "--out") || !strings.Contains(text, there+" already exists") {
			t.Errorf("pawl cert ca with an existing %s: status %d, %s", there, status, text)
		}
		if files, _ := os.ReadDir(dir); len(files) != 1 {
			t.Errorf("with an existing %s there are %d files afterwards, want 1", there, len(files))
		}
		if b, _ := os.ReadFile(path); string(b) != "mine" {
			t.Errorf("%s was overwritten", there)
		}
	}
}

func TestCertRefusals(t *testing.T) {
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca")
	if text, status := cert(t, "ca", "--out", ca, "--days", "100"); status != cli.ExitDone {
		t.Fatal(text)
	}
	note := filepath.Join(dir, "note")
	if err := os.WriteFile(note, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"ca", cli.ExitUsage, "--out is required"},
		{"ca --out x --days 0", cli.ExitUsage, "--days 0: want 1 to 36500"},
		{"ca --out x --days 99999", cli.ExitUsage, "--days 99999: want 1 to 36500"},
		{"ca --out x extra", cli.ExitUsage, ""},
		{"ca --out " + note, cli.ExitRefused, "--out"},
		{"node --ca x --out x", cli.ExitUsage, ""},
		{"node n1 --out x", cli.ExitUsage, "--ca is required"},
		{"node n1 --ca x", cli.ExitUsage, "--out is required"},
		{"node N1 --ca x --out x", cli.ExitUsage, `NAME: name "N1": want 1 to 63 of a-z, 0-9 and -`},
		{"node n1 --ca x --out x --host a:1", cli.ExitUsage, `--host: host "a:1"`},
		{"node n1 --ca " + dir + " --out x --days 9", cli.ExitRefused, "--ca"},
		{"node n1 --ca " + ca + " --out x", cli.ExitRefused, "--days 825: certificate of \"n1\""},
		{"server s1 --ca " + ca + " --out x", cli.ExitUsage, "--host is required"},
		{"server S1 --ca x --out x --host a", cli.ExitUsage, `NAME: name "S1": want`},
		{"server s1 --ca x --out x --host a/b", cli.ExitUsage, `--host: host "a/b"`},
		{"server s1 --ca " + ca + " --out x --host a", cli.ExitRefused, "--days 825: certificate of \"s1\""},
		{"show", cli.ExitUsage, ""},
		{"show nowhere.crt", cli.ExitRefused, "nowhere.crt"},
		{"show " + note, cli.ExitRefused, "no certificate found"},
		{"nonsense", cli.ExitUsage, `unknown command "nonsense" for "pawl cert"`},
	} {
		if text, status := cert(t, strings.Fields(c.args)...); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("pawl cert %s: status %d, %q, want %d with %q", c.args, status, text, c.status, c.want)
		}
	}
	if _, err := os.Stat("x"); err == nil {
		t.Error("a refused command created a directory")
	}
}

// Revocations at the same time lose none of each other.
func TestCertRevokeAtTheSameTime(t *testing.T) {
	const nodes = 8
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca")
	if text, status := cert(t, "ca", "--out", ca); status != cli.ExitDone {
		t.Fatalf("pawl cert ca: status %d, %s", status, text)
	}
	for i := range nodes {
		if text, status := cert(t, "node", fmt.Sprint("n", i), "--ca", ca, "--out", dir, "--host", "localhost"); status != cli.ExitDone {
			t.Fatalf("pawl cert node: status %d, %s", status, text)
		}
	}
	var revocations sync.WaitGroup
	for i := range nodes {
		revocations.Go(func() {
			if text, status := cert(t, "revoke", filepath.Join(dir, fmt.Sprint("n", i, ".crt")), "--ca", ca); status != cli.ExitDone {
				t.Errorf("pawl cert revoke: status %d, %s", status, text)
			}
		})
	}
	revocations.Wait()
	file, err := os.ReadFile(filepath.Join(ca, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if trust, err := certs.ParseTrust(file); err != nil || trust.Revoked() != nodes {
		t.Errorf("%d certificates are revoked, %v, want %d", trust.Revoked(), err, nodes)
	}
}

// filesOf lists the files below a directory, with their sizes.
func filesOf(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info fs.FileInfo, err error) error {
		files = append(files, fmt.Sprintf("%s %d", path, info.Size()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A refused command leaves all files as they were, and no others.
func TestRefusedCertsLeaveNoFiles(t *testing.T) {
	dir := t.TempDir()
	ca, other, empty, out := filepath.Join(dir, "ca"), filepath.Join(dir, "other"), filepath.Join(dir, "empty"), filepath.Join(dir, "out")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"ca --out " + ca, "ca --out " + other, "node n1 --out " + out + " --ca " + ca,
		"server s1 --host h --out " +
			out + " --ca " + ca} {
		if text, status := cert(t, strings.Fields(args)...); status != cli.ExitDone {
			t.Fatalf("pawl cert %s: status %d, %s", args, status, text)
		}
	}
	before := filesOf(t, dir)
	n1 := filepath.Join(out, "n1.crt")
	for _, args := range []string{
		"revoke " + n1 + " --ca " + empty,
		"revoke " + n1 + " --ca " + other,
		"revoke " + n1 + " --ca " + filepath.Join(dir, "missing"),
		"revoke " + filepath.Join(dir, "missing.crt") + " --ca " + ca,
		"revoke " + n1 + " " + filepath.Join(out, "s1.crt") + " --ca " + ca,
		"revoke " + filepath.Join(out, "n1.key") + " --ca " + ca,
		"node n1 --out " + out + " --ca " + ca,
		"node n2 --out " + out + " --ca " + empty,
		"ca --out " + ca,
	} {
		if text, status := cert(t, strings.Fields(args)...); status != cli.ExitRefused {
			t.Errorf("pawl cert %s: status %d, %s, want it refused", args, status, text)
		}
		if after := filesOf(t, dir); !slices.Equal(after, before) {
			t.Fatalf("pawl cert %s left the files %q, before there were %q", args, after, before)
		}
	}
	if text, status := cert(t, "revoke", n1, "--ca", ca); status != cli.ExitDone {
		t.Errorf("pawl cert revoke: status %d, %s", status, text)
	}
	if files := filesOf(t, dir); len(files) != len(before) {
		t.Errorf("a revocation left the files %q, before there were %q", files, before)
	}
}

// Of authorities that are made in the same directory at the same time, also by a server for itself, one is kept, with its own key.
func TestCertCAAtTheSameTime(t *testing.T) {
	for range 20 {
		dir := filepath.Join(t.TempDir(), "ca")
		var made atomic.Int64
		var runs sync.WaitGroup
		for range 4 {
			runs.Go(func() {
				switch text, status := cert(t, "ca", "--out", dir); {
				case status == cli.ExitDone:
					made.Add(1)
				case status != cli.ExitRefused || !strings.Contains(text, "already exists"):
					t.Errorf("pawl cert ca: status %d, %s", status, text)
				}
			})
		}
		runs.Go(func() {
			if _, _, err := certs.KeepServer(dir, time.Now(), []string{"localhost"}); err != nil {
				t.Errorf("KeepServer: %v", err)
			}
		})
		runs.Wait()
		if made.Load() > 1 {
			t.Errorf("%d authorities were made, want at most one", made.Load())
		}
		if _, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")); err != nil {
			t.Fatalf("the authority does not fit its key: %v", err)
		}
	}
}
