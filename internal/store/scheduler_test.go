package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// unmerged returns a disk with a state of many tables waiting for compaction.
func unmerged(t *testing.T) *vfs.MemFS {
	fs := vfs.NewMem()
	s := open(t, fs, me)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	options := s.options()
	options.Experimental.CompactionScheduler = newScheduler() // grants nothing
	db, err := pebble.Open("state", options)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		if err := errors.Join(db.Set([]byte("b"), fmt.Append(nil, i), pebble.NoSync), db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return fs
}

func tables(t *testing.T, fs vfs.FS) (names []string) {
	all, err := fs.List("state")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if strings.HasSuffix(name, ".sst") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A state that can't be opened is left alone: no compaction runs after the failure.
func TestNoCompactionAfterFailedOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := unmerged(t)
		before := tables(t, fs)
		full := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".dbtmp") {
				return syscall.ENOSPC
			}
			return nil
		}))
		s, err := Open(Config{Dir: "state", FS: full, Identity: me, Fatal: func(err error) { t.Error(err) }})
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("Open = %v, %v, want ENOSPC", s, err)
		}
		synctest.Wait()
		if after := tables(t, fs); !slices.Equal(after, before) {
			t.Errorf("the tables were %v before, and are %v now", before, after)
		}
	})
}

// Tables that were waiting when the store was opened are compacted then, even if nothing is written.
func TestTablesAreMergedAfterOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := unmerged(t)
		if n := len(tables(t, fs)); n < 30 {
			t.Fatalf("only %d tables wait for compaction, want at least 30", n)
		}
		s := open(t, fs, me)
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if n := len(tables(t, fs)); n > 3 {
			t.Errorf("%d tables are left after compaction, want at most 3", n)
		}
	})
}
