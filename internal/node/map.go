package node

import (
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
)

// saveMap saves the map of the cluster.
func saveMap(d *datadir.Dir, m *cluster.Map) error {
	if d.InMemory {
		return nil
	}
	return datadir.ReplaceFile(d.FS, d.File(datadir.MapFile), m.Encode())
}

// readMap reads the map saved before the restart; nil if there is none or it is unreadable. Nothing depends on it.
func readMap(fs vfs.FS, dir string) *cluster.Map {
	b, err := datadir.ReadFile(fs, fs.PathJoin(dir, datadir.MapFile))
	if err != nil {
		return nil
	}
	m, err := cluster.DecodeMap(b)
	if err != nil {
		return nil
	}
	return m
}
