package node

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/pawlq/pawl/internal/stats"
)

const (
	// statsFile is the name of the statistics in the data directory.
	statsFile = "stats"
	// statsEvery is how often they are written. If the process dies, what was counted since is lost.
	statsEvery = 5 * time.Minute
	// maxStatsFile bounds what is read back: far more than is written.
	maxStatsFile = 256 << 20
)

// openStats loads what was counted before the last stop. A failure is only logged, since nothing is decided by the statistics. They
// are written at the end, when nothing is counted any more.
func (n *Node) openStats() error {
	n.stats = stats.New(time.Now())
	if n.cfg.InMemory {
		return nil
	}
	if err := n.loadStats(); err != nil && !errors.Is(err, os.ErrNotExist) {
		n.cfg.Logger.Warn("the saved statistics can't be read, starting with empty ones", "file", n.path(statsFile), "error", err)
	}
	n.closers = append(n.closers, func() error { n.writeStats(); return nil })
	return nil
}

func (n *Node) loadStats() error {
	path := n.path(statsFile)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() > maxStatsFile {
		return stats.ErrFormat
	}
	file, err := os.ReadFile(path) // #nosec G304 -- in the data directory
	if err != nil {
		return err
	}
	return n.stats.Load(file, time.Now())
}

// saveStats writes the statistics periodically.
func (n *Node) saveStats(ctx context.Context) {
	tick := time.NewTicker(statsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !n.cfg.InMemory {
				n.writeStats()
			}
		}
	}
}

// writeStats replaces the file. It is not synced: after a power loss an older one, or none, is good enough.
func (n *Node) writeStats() {
	file, err := n.stats.Save(time.Now())
	if err == nil {
		err = os.WriteFile(n.path(statsFile+".new"), file, 0o600)
	}
	if err == nil {
		err = os.Rename(n.path(statsFile+".new"), n.path(statsFile))
	}
	if err != nil {
		n.cfg.Logger.Warn("the statistics can't be saved", "file", n.path(statsFile), "error", err)
	}
}
