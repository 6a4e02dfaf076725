package wal

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// openDirect opens a segment's file for writes that bypass the page cache. A sync then only has to flush the disk's
// cache, without searching for dirty pages. It returns nil if the file is in memory, or if its file system does not
// support direct writes.
func (c *Config) openDirect(s *segment) (vfs.File, error) {
	if s.file.Fd() == vfs.InvalidFd {
		return nil, nil
	}
	f, err := c.FS.OpenReadWrite(c.pathOf(s.number), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if !setDirect(f) {
		return nil, f.Close()
	}
	return f, nil
}

// setDirect switches a file to direct access, and reports whether it can then be read in blocks.
func setDirect(f vfs.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return false
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFL, flags|unix.O_DIRECT); err != nil {
		return false
	}
	_, err = f.ReadAt(newBlocks(blockSize)[:blockSize], 0)
	return err == nil
}
