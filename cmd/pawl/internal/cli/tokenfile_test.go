package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/auth"
)

// A token file is complete as soon as it exists: a program that starts a server and waits for the file never reads part of a token.
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

// An existing file is left alone, also in a read-only directory; a new one is readable by its owner only, and no temporary file remains.
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
