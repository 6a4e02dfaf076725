package datadir

import (
	"bytes"
	"fmt"
	"hash/crc32"
)

// A note is a small file about the cluster that the node could do without. It begins with a line that says what it is, of which
// cluster, and the checksum of the rest.
const noteHead = "pawl %s %s %08x\n"

// SaveNote saves a note about a cluster in a file of the directory.
func (d *Dir) SaveNote(name, of string, text []byte) error {
	if d.InMemory {
		return nil
	}
	return ReplaceFile(d.FS, d.File(name), append(fmt.Appendf(nil, noteHead, name, of, crc32.ChecksumIEEE(text)), text...))
}

// ReadNote reads a note; nil if there is none or it is damaged.
func (d *Dir) ReadNote(name string) (of string, text []byte) {
	b, err := ReadFile(d.FS, d.File(name))
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
