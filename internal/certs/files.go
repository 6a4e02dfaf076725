package certs

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// checkInterval is the shortest time between two checks of the files.
	checkInterval = time.Second
	// logInterval is the time between two log lines about files that remain broken.
	logInterval = time.Minute
	// maxPEM bounds the size of a file.
	maxPEM = 1 << 20
)

// Files is a value read from files. It is reloaded when they change; if they are broken, the last good value stays. Its methods may
// be called from any goroutine.
type Files[T any] struct {
	paths []string
	read  func() (value T, until time.Time, err error)
	log   *slog.Logger

	mu      sync.Mutex
	checked time.Time
	logged  time.Time // when broken files were last logged
	stamps  []stamp   // of the files that value was read from
	value   T
	until   time.Time
}

// stamp identifies a version of a file.
type stamp struct {
	changed time.Time
	size    int64
}

// OpenFiles reads files for the first time. Read reads all of them, returns the value and until when it is valid, and rejects what
// must not be used. It is never called concurrently.
func OpenFiles[T any](log *slog.Logger, read func() (value T, until time.Time, err error), paths ...string) (*Files[T], error) {
	f := &Files[T]{paths: paths, read: read, log: log, checked: time.Now()}
	var err error
	if f.stamps, err = f.stat(); err != nil {
		return nil, err
	}
	if f.value, f.until, err = read(); err != nil {
		return nil, err
	}
	return f, nil
}

// Now returns the current value. If a changed file is broken, or doesn't match the others, the value stays as it is: the others may
// be about to change too.
func (f *Files[T]) Now() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.checked) < checkInterval {
		return f.value
	}
	f.checked = now
	stamps, err := f.stat()
	if err == nil && f.same(stamps) {
		return f.value
	}
	var value T
	var until time.Time
	if err == nil {
		value, until, err = f.read()
	}
	if err != nil {
		if now.Sub(f.logged) >= logInterval {
			f.logged = now
			f.log.Error("changed certificate files can't be used, the previous ones stay in use", "error", err)
		}
		return f.value
	}
	f.value, f.stamps, f.until = value, stamps, until
	f.log.Info("certificate files reloaded", "cert", f.paths[0], "until", until)
	return f.value
}

// Until returns until when the current value is valid.
func (f *Files[T]) Until() time.Time {
	f.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until
}

func (f *Files[T]) same(stamps []stamp) bool {
	for i, s := range stamps {
		if s != f.stamps[i] {
			return false
		}
	}
	return true
}

func (f *Files[T]) stat() ([]stamp, error) {
	stamps := make([]stamp, len(f.paths))
	for i, path := range f.paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("certificate files: %w", err)
		}
		if info.Size() > maxPEM {
			return nil, fmt.Errorf("certificate file %q: %d bytes, at most %d", path, info.Size(), maxPEM)
		}
		stamps[i] = stamp{changed: info.ModTime(), size: info.Size()}
	}
	return stamps, nil
}
