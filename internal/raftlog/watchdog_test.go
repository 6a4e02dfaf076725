package raftlog

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func isSync(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
}

// A sync that hangs for 5 s is as good as one that failed; one that comes back in less is only slow.
func TestHangingDisk(t *testing.T) {
	for _, file := range []string{".log", "marks"} {
		for _, c := range []struct {
			hangs time.Duration
			fatal bool
		}{{4 * time.Second, false}, {7 * time.Second, true}} {
			synctest.Test(t, func(t *testing.T) {
				var hangs atomic.Int64
				fatals := make(chan error, 9)
				cfg := newDisk(t).config()
				cfg.Fatal = func(err error) { fatals <- err }
				cfg.FS = errorfs.Wrap(cfg.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if isSync(op) && strings.HasSuffix(op.Path, file) {
						time.Sleep(time.Duration(hangs.Swap(0)))
					}
					return nil
				}))
				log, err := Open(cfg)
				if err != nil {
					t.Fatal(err)
				}
				s, err := log.Shard(7, Start{})
				if err != nil {
					t.Fatal(err)
				}
				save(t, s, hardState(1, 1, 0), entries(1, 1, 1))
				time.Sleep(time.Minute) // idle: nothing hangs
				hangs.Store(int64(c.hangs))
				err = s.Save(hardState(2, 1, 0), entries(2, 2, 2))
				if err == nil {
					err = s.Save(hardState(3, 1, 0), entries(3, 3, 3))
				}
				var said error
				if len(fatals) > 0 {
					said = <-fatals
				}
				if c.fatal {
					if said == nil || !strings.Contains(said.Error(), "the disk hangs") || err == nil {
						t.Errorf("a sync of %q hung for %v: fatal %v, the next save %v", file, c.hangs, said, err)
					}
				} else if said != nil || err != nil {
					t.Errorf("a sync of %q took %v: fatal %v, save %v", file, c.hangs, said, err)
				}
				_ = log.Close() // it may fail; its goroutines must end
			})
		}
	}
}

// Pebble replays its log on opening, and tries for ever to write what it has replayed.
func TestOpenOnAFullDisk(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	for i := uint64(1); i <= 300; i++ {
		save(t, s, hardState(1, 1, 0), entries(i, i, 1))
	}
	d.close()

	var full atomic.Bool
	var said atomic.Pointer[error]
	full.Store(true)
	cfg := d.config()
	cfg.Fatal = func(err error) {
		said.Store(&err)
		full.Store(false) // or Open would not return
	}
	cfg.FS = errorfs.Wrap(cfg.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			return syscall.ENOSPC
		}
		return nil
	}))
	log, err := Open(cfg)
	if err == nil {
		err = log.Close()
	}
	if p := said.Load(); p == nil || !errors.Is(*p, syscall.ENOSPC) {
		t.Errorf("fatal %v, open %v; want ENOSPC to be fatal", p, err)
	}
}
