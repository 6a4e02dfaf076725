package node

import (
	"os"
	"path/filepath"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
)

// saveMap saves the map of the cluster.
func saveMap(d *datadir.Dir, m *cluster.Map) error {
	if d.InMemory {
		return nil
	}
	return datadir.ReplaceFile(d.File(datadir.MapFile), m.Encode())
}

// readMap reads the map saved before the restart; nil if there is none or it is unreadable. Nothing depends on it.
func readMap(dir string) *cluster.Map {
	b, err := os.ReadFile(filepath.Join(dir, datadir.MapFile))
	if err != nil {
		return nil
	}
	m, err := cluster.DecodeMap(b)
	if err != nil {
		return nil
	}
	return m
}
