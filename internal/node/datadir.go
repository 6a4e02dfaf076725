package node

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/pawlq/pawl/internal/cluster"
)

// Names in the data directory: the logs, and the archive of dead letters.
const (
	logDir     = "raft"
	archiveDir = "archive"
)

// mapFile holds the map of the cluster as this node last knew it: where the others are, after a restart.
const mapFile = "cluster.map"

// dataDir is the node's data directory: whose it is, and what it holds besides the shards.
type dataDir struct {
	cfg      Config
	identity *identityStore
}

func (d *dataDir) path(name string) string {
	if d.cfg.InMemory {
		return name
	}
	return filepath.Join(d.cfg.Dir, name)
}

// checkLogs refuses states of shards without their logs. To raftlog a missing directory is a new one, and whatever the states had
// not flushed would be lost silently.
func (d *dataDir) checkLogs() error {
	if d.cfg.InMemory || d.cfg.AcceptDataLoss {
		return nil
	}
	if _, err := os.Stat(d.path(logDir)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for id, h := range d.identity.read().Replicas {
		if _, err := os.Stat(d.path(stateDir(id, h.Replica))); err == nil {
			return &DamageError{What: "log", File: d.path(logDir), Reason: "it is missing, but there are states of shards"}
		}
	}
	return nil
}

// saveMap saves the map of the cluster.
func (d *dataDir) saveMap(m *cluster.Map) error {
	if d.cfg.InMemory {
		return nil
	}
	return replaceFile(filepath.Join(d.cfg.Dir, mapFile), m.Encode())
}

// readMap reads the map saved before the restart; nil if there is none or it is unreadable. Nothing depends on it.
func readMap(dir string) *cluster.Map {
	b, err := os.ReadFile(filepath.Join(dir, mapFile))
	if err != nil {
		return nil
	}
	m, err := cluster.DecodeMap(b)
	if err != nil {
		return nil
	}
	return m
}
