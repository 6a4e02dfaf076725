package raftlog

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// A disk that hangs gives no error: who writes to it waits, and a leader that waits holds up everybody. So a write that
// is there at stallBeats beats of the watchdog, so for 5 s at least, fails the log, as a failed one does, and the process
// ends.
//
// Beats are counted, not time: a process that was stopped for a while, or a machine that was, finds one beat gone and not a
// disk that hung. A disk in such a state may also never let the process end, so who hears of it should close what others
// wait for first.
const (
	stallBeat  = time.Second
	stallBeats = 6
)

// pulse shows whether what is written comes to an end.
type pulse struct {
	what    string
	dog     *watchdog
	begun   atomic.Uint64
	ended   atomic.Uint64
	seen    uint64 // ended, at the last beat; the watchdog's
	silence int    // beats without an end while something was under way; the watchdog's
}

func (p *pulse) begin() {
	p.begun.Add(1)
	p.dog.rouse()
}

func (p *pulse) end() { p.ended.Add(1) }

func (p *pulse) underWay() bool { return p.begun.Load() != p.ended.Load() }

// beat returns an error if something has been under way for too long.
func (p *pulse) beat() error {
	ended := p.ended.Load()
	if ended != p.seen || p.begun.Load() == ended {
		p.seen, p.silence = ended, 0
		return nil
	}
	if p.silence++; p.silence < stallBeats {
		return nil
	}
	return fmt.Errorf("the disk hangs: a write to the %s has taken more than %v", p.what, (stallBeats-1)*stallBeat)
}

// watchdog beats while something is under way, and sleeps otherwise.
type watchdog struct {
	pulses []*pulse
	asleep atomic.Bool
	wake   chan struct{} // one place
}

func newWatchdog() *watchdog { return &watchdog{wake: make(chan struct{}, 1)} }

// watch makes a pulse that the watchdog looks at, before it runs.
func (d *watchdog) watch(what string) *pulse {
	p := &pulse{what: what, dog: d}
	d.pulses = append(d.pulses, p)
	return p
}

// rouse is called after something has begun.
func (d *watchdog) rouse() {
	if d.asleep.Load() && d.asleep.CompareAndSwap(true, false) {
		d.wake <- struct{}{}
	}
}

// run beats until quit is closed, or until one of the pulses has stopped.
func (d *watchdog) run(quit <-chan struct{}, fail func(error)) {
	beat := time.NewTimer(stallBeat)
	defer beat.Stop()
	for {
		if !d.busy() {
			d.sleep(quit)
			for _, p := range d.pulses {
				p.seen, p.silence = p.ended.Load(), 0
			}
		}
		beat.Reset(stallBeat)
		select {
		case <-quit:
			return
		case <-beat.C:
		}
		for _, p := range d.pulses {
			if err := p.beat(); err != nil {
				fail(err)
				return
			}
		}
	}
}

// sleep returns when something is under way. It looks once more after it has said that it sleeps: what began before that did not rouse it.
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

func (d *watchdog) busy() bool { return slices.ContainsFunc(d.pulses, (*pulse).underWay) }
