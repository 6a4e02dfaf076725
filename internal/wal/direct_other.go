//go:build !linux

package wal

import "github.com/cockroachdb/pebble/v2/vfs"

// openDirect returns nil: direct writes are not supported.
func (*Config) openDirect(*segment) (vfs.File, error) { return nil, nil }
