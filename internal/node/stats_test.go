package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pawlq/pawl/internal/node/datadir"
)

// A node that stops saves its statistics.
func TestStoppingSavesStats(t *testing.T) {
	dir := t.TempDir()
	start(t, Config{Dir: dir}).end()
	if _, err := os.Stat(filepath.Join(dir, datadir.StatsFile)); err != nil {
		t.Error(err)
	}
}
