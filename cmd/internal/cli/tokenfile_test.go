package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/auth/bearer"
)

// A token file is complete as soon as it exists. A program that starts a server and waits for the file never reads part of a token.
func TestTokenFileIsWrittenAtomically(t *testing.T) {
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
		if got := <-read; bearer.Check(strings.TrimSuffix(got, "\n")) != nil || !strings.HasSuffix(got, "\n") {
			t.Fatalf("the token file has %q, want a whole token", got)
		}
	}
}

// An existing file is left unchanged, also in a read-only directory. A new file is readable only by its owner, and no
// temporary file remains.
func TestTokenFileIsCreatedOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	if made, err := MakeTokenFile(path); !made || err != nil {
		t.Fatal(made, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token file is %v, %v, want mode 0600", info, err)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if made, err := MakeTokenFile(path); made || err != nil {
		t.Errorf("with an existing file, MakeTokenFile = %t, %v, want false", made, err)
	}
	if again, err := os.ReadFile(path); err != nil || string(again) != string(first) {
		t.Errorf("the token changed from %q to %q (%v)", first, again, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v (%v), want only the token file", left, err)
	}
	nowhere := filepath.Join(dir, "none", "token")
	if made, err := MakeTokenFile(nowhere); made || err == nil || !strings.Contains(err.Error(), nowhere) {
		t.Errorf("in a directory that does not exist, MakeTokenFile = %t, %v", made, err)
	}
}
