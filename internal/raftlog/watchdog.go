package raftlog

import (
	"fmt"
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
	begun   atomic.Uint64
	ended   atomic.Uint64
	seen    uint64 // ended, at the last beat; the watchdog's
	silence int    // beats without an end while something was under way; the watchdog's
}

func (p *pulse) begin() { p.begun.Add(1) }
func (p *pulse) end()   { p.ended.Add(1) }

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

// watchdog beats until quit is closed, or until one of the pulses has stopped.
func watchdog(quit <-chan struct{}, fail func(error), pulses ...*pulse) {
	beat := time.NewTicker(stallBeat)
	defer beat.Stop()
	for {
		select {
		case <-quit:
			return
		case <-beat.C:
		}
		for _, p := range pulses {
			if err := p.beat(); err != nil {
				fail(err)
				return
			}
		}
	}
}
