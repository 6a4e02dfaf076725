package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/pawlq/pawl/internal/stats"
)

const (
	// statsEvery is how often they are written. If the process dies, what was counted since is lost.
	statsEvery = 5 * time.Minute
	// maxStatsFile bounds what is read back: far more than is written.
	maxStatsFile = 256 << 20
)

// savedStats are this node's statistics, and the file that keeps them while it is down.
type savedStats struct {
	recorder *stats.Recorder
	file     string // "": in memory
	logger   *slog.Logger
}

// openStats loads what was counted before the last stop. A failure is only logged, since nothing is decided by the statistics.
func openStats(file string, logger *slog.Logger) *savedStats {
	s := &savedStats{recorder: stats.New(time.Now()), file: file, logger: logger}
	if file == "" {
		return s
	}
	if err := s.load(); err != nil && !errors.Is(err, os.ErrNotExist) {
		logger.Warn("the saved statistics can't be read, starting with empty ones", "file", file, "error", err)
	}
	return s
}

func (s *savedStats) load() error {
	info, err := os.Stat(s.file)
	if err != nil {
		return err
	}
	if info.Size() > maxStatsFile {
		return stats.ErrFormat
	}
	saved, err := os.ReadFile(s.file) // #nosec G304 -- in the data directory
	if err != nil {
		return err
	}
	return s.recorder.Load(saved, time.Now())
}

// saveRegularly saves them until ctx ends.
func (s *savedStats) saveRegularly(ctx context.Context) {
	if s.file == "" {
		return
	}
	tick := time.NewTicker(statsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.save()
		}
	}
}

// save replaces the file. It is not synced: after a power loss an older one, or none, is good enough.
func (s *savedStats) save() {
	if s.file == "" {
		return
	}
	text, err := s.recorder.Save(time.Now())
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
