package certs

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// lookPause is how long a look at files is good for.
	lookPause = time.Second
	// sayPause lies between two lines of the log about files that stay broken.
	sayPause = time.Minute
	// maxPEM bounds a file that is read.
	maxPEM = 1 << 20
)

// Files is what some files hold, as they were when they were last whole. They are read again when they change. Its methods
// may be called from any goroutine.
type Files[T any] struct {
	paths []string
	read  func() (value T, until time.Time, err error)
	log   *slog.Logger

	mu     sync.Mutex
	looked time.Time
	said   time.Time // when broken files were last logged
	stamps []stamp   // of the files that value was read from
	value  T
}

// stamp tells a file's versions apart.
type stamp struct {
	changed time.Time
	size    int64
}

// OpenFiles reads files for the first time. Read reads all of them, says until when they are good, and refuses what must not
// be used; it is never called twice at once.
func OpenFiles[T any](log *slog.Logger, read func() (value T, until time.Time, err error), paths ...string) (*Files[T], error) {
	f := &Files[T]{paths: paths, read: read, log: log, looked: time.Now()}
	var err error
	if f.stamps, err = f.look(); err != nil {
		return nil, err
	}
	if f.value, _, err = read(); err != nil {
		return nil, err
	}
	return f, nil
}

// Now is what the files hold. A changed file that is broken, or doesn't fit the others, changes nothing: the next look may
// find the rest of them changed too.
func (f *Files[T]) Now() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.looked) < lookPause {
		return f.value
	}
	f.looked = now
	stamps, err := f.look()
	if err == nil && f.same(stamps) {
		return f.value
	}
	var value T
	var until time.Time
	if err == nil {
		value, until, err = f.read()
	}
	if err != nil {
		if now.Sub(f.said) >= sayPause {
			f.said = now
			f.log.Error("changed certificate files are not used, those from before stay in use", "error", err)
		}
		return f.value
	}
	f.value, f.stamps = value, stamps
	f.log.Info("certificate files were read again", "cert", f.paths[0], "until", until)
	return f.value
}

func (f *Files[T]) same(stamps []stamp) bool {
	for i, s := range stamps {
		if s != f.stamps[i] {
			return false
		}
	}
	return true
}

func (f *Files[T]) look() ([]stamp, error) {
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
