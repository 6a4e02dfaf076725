package stats

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"
)

const (
	// saveInterval is how often the statistics are written. If the process dies, what was counted since is lost.
	saveInterval = 5 * time.Minute
	// maxFile bounds what is read back: far more than is written.
	maxFile = 256 << 20
)

// File is statistics, and the file that keeps them between runs.
type File struct {
	Recorder *Recorder
	file     string // "": in memory
	logger   *slog.Logger
}

// Open loads what was counted before the last stop; with file "", nothing is kept. A failure is only logged, since nothing is decided by
// the statistics.
func Open(file string, logger *slog.Logger) *File {
	s := &File{Recorder: New(time.Now()), file: file, logger: logger}
	if file == "" {
		return s
	}
	if err := s.load(); err != nil && !errors.Is(err, os.ErrNotExist) {
		logger.Warn("the saved statistics can't be read, starting with empty ones", "file", file, "error", err)
	}
	return s
}

func (s *File) load() error {
	info, err := os.Stat(s.file)
	if err != nil {
		return err
	}
	if info.Size() > maxFile {
		return ErrFormat
	}
	saved, err := os.ReadFile(s.file) // #nosec G304 -- in the data directory
	if err != nil {
		return err
	}
	return s.Recorder.Load(saved, time.Now())
}

// SaveRegularly saves the statistics until ctx ends.
func (s *File) SaveRegularly(ctx context.Context) {
	if s.file == "" {
		return
	}
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.Save()
		}
	}
}

// Save replaces the file. It is not synced: after a power loss an older one, or none, is good enough.
func (s *File) Save() {
	if s.file == "" {
		return
	}
	text, err := s.Recorder.Save(time.Now())
	if err == nil {
		err = os.WriteFile(s.file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(s.file+".new", s.file)
	}
	if err != nil {
		s.logger.Warn("the statistics can't be saved", "file", s.file, "error", err)
	}
}
