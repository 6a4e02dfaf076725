package members

import (
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
)

// Save saves the map of a cluster.
func Save(d *datadir.Dir, of string, m *cluster.Map) error {
	return d.SaveNote(datadir.MapFile, of, m.Encode())
}

// Saved returns the map that was saved last, and of which cluster it is; nil: none.
func Saved(d *datadir.Dir) (of string, m *cluster.Map) {
	of, text := d.ReadNote(datadir.MapFile)
	if m, err := cluster.DecodeMap(text); err == nil {
		return of, m
	}
	return "", nil
}
