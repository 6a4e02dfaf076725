package raftlog

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func isSync(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
}

// A sync that hangs for 5 s counts as failed; one that takes less is merely slow.
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
				log, s := opened(t, cfg)
				save(t, s, aHardState(1, 1, 0), entries(1, 1, 1))
				time.Sleep(time.Minute) // idle: nothing hangs
				hangs.Store(int64(c.hangs))
				err := s.Save(aHardState(2, 1, 0), entries(2, 2, 2))
				if err == nil {
					err = s.Save(aHardState(3, 1, 0), entries(3, 3, 3))
				}
				var said error
				if len(fatals) > 0 {
					said = <-fatals
				}
				if c.fatal {
					says := "the disk hangs: a write to the " + map[string]string{".log": "log", "marks": "marks of the logs"}[file] +
						" has"
					if said == nil || !strings.Contains(said.Error(), says) || err == nil {
						t.Errorf("a sync of %q hung for %v: fatal %v, the next Save %v", file, c.hangs, said, err)
					}
				} else if said != nil || err != nil {
					t.Errorf("a sync of %q took %v: fatal %v, Save %v", file, c.hangs, said, err)
				}
				_ = log.Close() // it may fail, but its goroutines must end
			})
		}
	}
}

// A write counts as hung at the sixth beat without a completed write, counting again after each completion.
func TestBeats(t *testing.T) {
	d := newWatchdog()
	p := d.watch("log")
	if d.busy() || p.beat() != nil {
		t.Error("the watchdog is busy before a write has begun")
	}
	p.begin()
	if !d.busy() {
		t.Error("the watchdog is not busy during a write")
	}
	beats := func(what string, n int) {
		t.Helper()
		for i := 1; i <= n; i++ {
			if err := p.beat(); err != nil {
				t.Fatalf("%s: beat %d: %v", what, i, err)
			}
		}
	}
	beats("at first", stallBeats-1)
	p.end()
	p.begin()
	beats("after an end", stallBeats)
	if err := p.beat(); err == nil {
		t.Error("a hanging write was not detected")
	}
	if p.end(); d.busy() {
		t.Error("the watchdog is busy after the write ended")
	}
}

// The watchdog sleeps while no write is in progress, and afterwards takes as long to detect a hung write as otherwise.
func TestWatchdogSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newWatchdog()
		p := d.watch("log")
		failed := make(chan time.Duration, 1)
		var began time.Time
		go d.run(make(chan struct{}), func(error) { failed <- time.Since(began) })
		synctest.Wait()
		if !d.asleep.Load() {
			t.Error("the watchdog is not asleep although no write is in progress")
		}
		time.Sleep(time.Hour)
		began = time.Now()
		p.begin()
		if took := <-failed; took != stallBeats*stallBeat {
			t.Errorf("a hanging write was detected after %v, want %v", took, stallBeats*stallBeat)
		}
	})
}

// TestSleep: the watchdog falls asleep only while no write is in progress, whenever the write began, and is woken once.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, busy := range []bool{false, true} {
			d := newWatchdog()
			p := d.watch("log")
			if busy {
				p.begin()
			}
			quit, awake := make(chan struct{}), false
			go func() { d.sleep(quit); awake = true }()
			if synctest.Wait(); awake != busy || d.asleep.Load() == busy {
				t.Errorf("a write is in progress: %v; the watchdog is awake: %v, and says it is asleep: %v", busy, awake, d.asleep.Load())
			}
			close(quit)
			synctest.Wait()
		}
	})
}
