package node

import (
	"bytes"
	"fmt"
	"hash/crc32"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
)

// A note is a small file about the cluster that the node could do without. It begins with a line that says what it is, of which
// cluster, and the checksum of the rest.
const noteHead = "pawl %s %s %08x\n"

// saveNote saves a note about a cluster in a file of the data directory.
func saveNote(d *datadir.Dir, name, of string, text []byte) error {
	if d.InMemory {
		return nil
	}
	return datadir.ReplaceFile(d.FS, d.File(name), append(fmt.Appendf(nil, noteHead, name, of, crc32.ChecksumIEEE(text)), text...))
}

// readNote reads a note; nil if there is none or it is damaged.
func readNote(d *datadir.Dir, name string) (of string, text []byte) {
	b, err := datadir.ReadFile(d.FS, d.File(name))
	if err != nil {
		return "", nil
	}
	head, text, _ := bytes.Cut(b, []byte("\n"))
	var what string
	var sum uint32
	if _, err := fmt.Sscanf(string(head)+"\n", noteHead, &what, &of, &sum); err != nil || what != name || sum != crc32.ChecksumIEEE(text) {
		return "", nil
	}
	return of, text
}

// saveMap saves the map of a cluster.
func saveMap(d *datadir.Dir, of string, m *cluster.Map) error {
	return saveNote(d, datadir.MapFile, of, m.Encode())
}

// readMap reads the map saved before the restart, and of which cluster it is; nil: none.
func readMap(d *datadir.Dir) (of string, m *cluster.Map) {
	of, text := readNote(d, datadir.MapFile)
	if m, err := cluster.DecodeMap(text); err == nil {
		return of, m
	}
	return "", nil
}
