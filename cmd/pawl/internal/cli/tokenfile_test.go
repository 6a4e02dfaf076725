package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/auth"
)

// A file that is there is whole: who waits for it, as programs do that start a server, never reads a part of the token.
func TestTokenFileIsWhole(t *testing.T) {
	for range 200 {
		path := filepath.Join(t.TempDir(), "token")
		read := make(chan string)
		go func() {
			for {
				if b, err := os.ReadFile(path); err == nil {
					read <- string(b)
					return
				}
			}
		}()
		if made, err := MakeTokenFile(path); !made || err != nil {
			t.Fatal(made, err)
		}
		if got := <-read; auth.CheckSecret(strings.TrimSuffix(got, "\n")) != nil || !strings.HasSuffix(got, "\n") {
			t.Fatalf("the file has %q", got)
		}
	}
}

// A file that is there stays as it is, also in a directory that can't be written; a new one is for its owner alone, and nothing else is left.
func TestTokenFileIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	if made, err := MakeTokenFile(path); !made || err != nil {
		t.Fatal(made, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if made, err := MakeTokenFile(path); made || err != nil {
		t.Errorf("again: %t, %v", made, err)
	}
	if again, err := os.ReadFile(path); err != nil || string(again) != string(first) {
		t.Errorf("%q became %q (%v)", first, again, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left are %v (%v)", left, err)
	}
	nowhere := filepath.Join(dir, "none", "token")
	if made, err := MakeTokenFile(nowhere); made || err == nil || !strings.Contains(err.Error(), nowhere) {
		t.Errorf("in a directory that is not there: %t, %v", made, err)
	}
}
