package raftlog

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// A disk that hangs returns no error: whoever writes to it waits, and a leader that waits holds up everybody. So a write
// that is in progress for stallBeats beats of the watchdog, that is for at least 5 s, fails the log like a write error, and the
// process exits.
//
// Beats are counted, not time: after a process or machine was stopped for a while, one beat has passed, which does not
// count as a hung disk. Such a disk may also prevent the process from ever exiting, so whoever is notified should first close
// what others wait for.
const (
	stallBeat  = time.Second
	stallBeats = 6
)

// writeTracker shows whether writes complete.
type writeTracker struct {
	what       string
	watchdog   *watchdog
	begun      atomic.Uint64
	ended      atomic.Uint64
	seen       uint64 // ended at the last beat; owned by the watchdog
	stuckBeats int    // beats during which a write was in progress and none completed; owned by the watchdog
}

func (p *writeTracker) begin() {
	p.begun.Add(1)
	p.watchdog.wakeUp()
}

func (p *writeTracker) end() { p.ended.Add(1) }

func (p *writeTracker) inProgress() bool { return p.begun.Load() != p.ended.Load() }

// beat returns an error if a write has been in progress for too long.
func (p *writeTracker) beat() error {
	ended := p.ended.Load()
	if ended != p.seen || p.begun.Load() == ended {
		p.seen, p.stuckBeats = ended, 0
		return nil
	}
	if p.stuckBeats++; p.stuckBeats < stallBeats {
		return nil
	}
	return fmt.Errorf("the disk hangs: a write to the %s has taken more than %v", p.what, (stallBeats-1)*stallBeat)
}

// watchdog beats while a write is in progress, and sleeps otherwise.
type watchdog struct {
	trackers []*writeTracker
	asleep   atomic.Bool
	wake     chan struct{} // one place
}

func newWatchdog() *watchdog { return &watchdog{wake: make(chan struct{}, 1)} }

// watch adds a writeTracker. It must be called before the watchdog runs.
func (d *watchdog) watch(what string) *writeTracker {
	p := &writeTracker{what: what, watchdog: d}
	d.trackers = append(d.trackers, p)
	return p
}

// wakeUp wakes the watchdog. It must be called after a write has begun.
func (d *watchdog) wakeUp() {
	if d.asleep.Load() && d.asleep.CompareAndSwap(true, false) {
		d.wake <- struct{}{}
	}
}

// run beats until quit is closed or a write hangs.
func (d *watchdog) run(quit <-chan struct{}, fail func(error)) {
	beat := time.NewTimer(stallBeat)
	defer beat.Stop()
	for {
		if !d.busy() {
			d.sleep(quit)
			for _, p := range d.trackers {
				p.seen, p.stuckBeats = p.ended.Load(), 0
			}
		}
		beat.Reset(stallBeat)
		select {
		case <-quit:
			return
		case <-beat.C:
		}
		for _, p := range d.trackers {
			if err := p.beat(); err != nil {
				fail(err)
				return
			}
		}
	}
}

// sleep returns when a write is in progress. It checks once more after setting asleep: a write that began before did not wake it.
func (d *watchdog) sleep(quit <-chan struct{}) {
	d.asleep.Store(true)
	if d.busy() && d.asleep.CompareAndSwap(true, false) {
		return
	}
	select {
	case <-d.wake:
	case <-quit:
	}
}

func (d *watchdog) busy() bool { return slices.ContainsFunc(d.trackers, (*writeTracker).inProgress) }
