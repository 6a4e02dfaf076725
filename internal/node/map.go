package node

import (
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
)

// saveMap saves the map of a cluster.
func saveMap(d *datadir.Dir, of string, m *cluster.Map) error {
	return d.SaveNote(datadir.MapFile, of, m.Encode())
}

// readMap reads the map saved before the restart, and of which cluster it is; nil: none.
func readMap(d *datadir.Dir) (of string, m *cluster.Map) {
	of, text := d.ReadNote(datadir.MapFile)
	if m, err := cluster.DecodeMap(text); err == nil {
		return of, m
	}
	return "", nil
}
