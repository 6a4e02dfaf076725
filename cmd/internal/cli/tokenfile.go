package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/auth/bearer"
)

const (
	// tokenLook is how long a file is taken to be unchanged after a check.
	tokenLook = time.Second
	// maxTokenFile is the maximum size of a token file.
	maxTokenFile = 4 << 10
)

// TokenFile is a file with a token. It is read again when it changes. Its methods are safe for concurrent use.
type TokenFile struct {
	path string
	log  *slog.Logger // nil: Now returns errors instead of logging them

	mu      sync.Mutex
	looked  time.Time
	changed time.Time // modification time of the file as read
	size    int64
	token   string
	err     error
}

// OpenTokenFile reads a file for the first time.
func OpenTokenFile(path string, log *slog.Logger) (*TokenFile, error) {
	f := &TokenFile{path: path}
	_, err := f.Now()
	f.log = log
	return f, err
}

// Now returns the token in the file. If the file is gone or invalid there is no token.
func (f *TokenFile) Now() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.looked) < tokenLook && !f.looked.IsZero() {
		return f.token, f.err
	}
	f.looked = now
	info, err := os.Stat(f.path)
	if err == nil && f.err == nil && info.ModTime().Equal(f.changed) && info.Size() == f.size {
		return f.token, nil
	}
	before, failed := f.token, f.err != nil
	f.token = ""
	if err == nil {
		f.changed, f.size = info.ModTime(), info.Size()
		f.token, err = readToken(f.path)
	}
	f.err = err
	switch {
	case f.log == nil:
	case err != nil && !failed:
		f.log.Error("the token file can't be used: its token is no longer valid", "file", f.path, "error", err)
	case err == nil && f.token != before:
		f.log.Info("the token file was reread", "file", f.path)
	}
	return f.token, err
}

// readToken reads a token from a file that only its owner may be able to read.
func readToken(path string) (string, error) {
	text, err := ReadSecret(path, maxTokenFile)
	if err != nil {
		return "", fmt.Errorf("token file %q: %w", path, err)
	}
	token := strings.TrimSpace(text)
	if err := bearer.Check(token); err != nil {
		return "", fmt.Errorf("token file %q: its content is not a token: %w", path, err)
	}
	return token, nil
}

// MakeTokenFile writes a new token to a file unless it exists. The file gets its name only once it is written, so
// whoever waits for it finds the token in it.
func MakeTokenFile(path string) (made bool, err error) {
	if _, err := os.Lstat(path); err == nil { // the directory may not be writable
		return false, nil
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".token-*") // readable by its owner only
	if err != nil {
		return false, fmt.Errorf("%q can't be created: %w", path, err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.WriteString(bearer.New() + "\n")
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return false, err
	}
	if err := os.Link(file.Name(), path); errors.Is(err, fs.ErrExist) { // another server was faster
		return false, nil
	} else if err == nil {
		return true, nil
	}
	return true, os.Rename(file.Name(), path) // the file system has no links
}
