//go:build !linux

package wal

import "github.com/cockroachdb/pebble/v2/vfs"

// openDirect returns nil: there are no direct writes.
func (*Log) openDirect(*segment) (vfs.File, error) { return nil, nil }
