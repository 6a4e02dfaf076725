package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/internal/node"
)

// TestFilesArePrivate: only their owner may read the files that a node and the commands write, except certificates, whatever the umask is.
func TestFilesArePrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	t.Setenv("XDG_CONFIG_HOME", at("config"))
	s := startServer(t, node.Config{Dir: at("data")})
	s.dead("q")
	// to the archive
	o, err := admin.New(s.client).Operations().Start(t.Context(), admin.OperationSpec{Action: admin.ActionDiscard,
		Filter: &admin.Filter{Queue: "q"}})
	if err == nil {
		_, err = admin.New(s.client).Operations().Wait(t.Context(), o.ID, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Enqueue(t.Context(), pawl.RawTask{Type: "job"}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"backup FILES/backup", "restore FILES/backup --data FILES/restored", "cert ca --out FILES/certs",
		"cert server s --ca FILES/certs --out FILES/certs --host localhost",
		"cert client c --ca FILES/certs --out FILES/certs --host localhost", "context add local --server " + s.addr, "context use local"} {
		words := strings.Fields(strings.ReplaceAll(line, "FILES", dir))
		if words[0] == "backup" {
			words = append(words, "--server", s.addr)
		}
		if status := run(words, strings.NewReader(""), io.Discard, t.Output()); status != cli.ExitDone {
			t.Errorf("pawl %s: status %d", line, status)
		}
	}
	s.stop()
	if _, err := cli.MakeTokenFile(at("token")); err != nil {
		t.Fatal(err)
	}
	must := map[string]bool{"backup": false, "token": false, "config": false, "ca.key": false, "s.key": false, "c.key": false,
		"node.json": false, "stats": false, "dead-": false}
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		for part := range must {
			must[part] = must[part] || strings.Contains(strings.TrimPrefix(path, dir), part)
		}
		want := fs.FileMode(0o600)
		if strings.HasSuffix(path, ".crt") {
			want = 0o644
		}
		if got := info.Mode().Perm(); got&^want != 0 {
			t.Errorf("%s has mode %04o, want %04o at most", path, got, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for part, found := range must {
		if !found {
			t.Errorf("no file with %q in its path was written", part)
		}
	}
	if _, err := os.Stat(at("restored")); err != nil {
		t.Error(err)
	}
}
