package shard

import (
	"math"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/pawlq/pawl/internal/store"
)

// upkeep keeps the log short: when too much of the log is not yet in the state's files, it flushes the state on a separate
// goroutine, since a flush may take long.
type upkeep struct {
	l       *loop
	kick    chan struct{}
	flushed chan error
	ended   chan struct{}

	// The loop owns these.
	flushing   bool
	checked    uint64 // the last applied entry when tick last cut the log
	bytes      uint64 // of entries applied after entry from
	from       uint64
	trail      trail
	ticks      uint64
	lastActive map[uint64]uint64 // the tick at which a peer was last seen active
}

// trail remembers the entries at which the log had grown by another step. A step is a sixteenth of what a leader keeps
// for silent replicas, and all that the others keep.
type trail struct {
	step  uint64
	since uint64   // bytes after the last of starts
	from  []uint64 // the entry that ended each step, oldest first
}

// maxTrail is how many steps a leader keeps at most for active replicas: sixteen times as much as for silent ones.
const maxTrail = 16 * 16

func (t *trail) add(index uint64, n int) {
	if t.since += uint64(n); t.since < t.step {
		return
	}
	t.since = 0
	if t.from = append(t.from, index); len(t.from) > maxTrail {
		t.from = t.from[1:]
	}
}

// end returns the entry up to which the log may be cut to keep at least that many steps.
func (t *trail) end(steps int) uint64 {
	if len(t.from) <= steps {
		return 0
	}
	return t.from[len(t.from)-1-steps]
}

// newUpkeep starts the goroutine that flushes. stop ends it.
func newUpkeep(l *loop, state *store.Store, keepBytes uint64) *upkeep {
	u := &upkeep{l: l, kick: make(chan struct{}, 1), flushed: make(chan error, 1), ended: make(chan struct{}),
		from: state.Applied().Index, trail: trail{step: keepBytes / 16}, lastActive: map[uint64]uint64{}}
	go func() {
		defer close(u.ended)
		for range u.kick {
			u.flushed <- state.Flush()
		}
	}()
	return u
}

func (u *upkeep) stop() {
	close(u.kick)
	<-u.ended
}

func (u *upkeep) applied(index uint64, n int) {
	u.bytes += uint64(n)
	u.trail.add(index, n)
}

// tick does the shard's own work of a tick.
func (l *loop) tick() error {
	if l.upkeep.ticks%dropTicks == 0 {
		l.sealed = make([]byte, headerLen)
		l.cfg.State.DropBuffers()
	}
	l.transfers.startIfBarred()
	l.transfers.startIfSlow()
	l.transfers.tick()
	return l.upkeep.tick()
}

// tick cuts the log, and has the state flushed once too much would have to be replayed.
func (u *upkeep) tick() error {
	if u.ticks++; u.l.leading != nil {
		u.noteActive()
	}
	at := u.l.cfg.State.Applied().Index
	if at == u.checked && u.ticks%checkTicks != 0 {
		return nil
	}
	u.checked = at
	// Cut soon after the state has flushed, so that old segments of the log can be deleted.
	if err := u.cut(); err != nil {
		return err
	}
	first, _ := u.l.log.FirstIndex()
	if limits := &u.l.cfg.Limits; !u.flushing && (u.bytes > limits.ReplayBytes || at+1-first > limits.ReplayEntries) {
		u.flushing = true
		u.kick <- struct{}{}
	}
	return nil
}

// needsTicks reports whether Raft or the log has anything to do as time passes. A leader without other replicas has
// nobody to hear from or to send heartbeats to, so after an entry it needs one more tick, to cut its log, and a few
// after a large one, to drop its buffers. An idle node of a one-node cluster sleeps.
func (l *loop) needsTicks() bool {
	return l.leading == nil || !l.alone || l.buffered() > idleBuffers || len(l.members.Learners) > 0 || l.changes.current != nil ||
		l.transfers.current != nil || l.cfg.State.Applied().Index != l.upkeep.checked
}

// buffered returns the size of the buffers that are kept for the next rounds, in bytes.
func (l *loop) buffered() int { return cap(l.sealed) + l.cfg.State.BufferedBytes() }

// cut removes the entries that the state has flushed from the log.
func (u *upkeep) cut() error {
	durable, err := u.l.cfg.State.Durable()
	if err != nil {
		return err
	}
	if durable.Index > u.from {
		u.bytes, u.from = 0, u.l.cfg.State.Applied().Index
	}
	return u.l.log.Compact(min(durable.Index, u.replicated()))
}

// replicated returns the entry up to which the log may be cut. A leader keeps what active replicas still need, and a smaller
// part for silent ones; any other replica keeps a little, since it may be asked for it once it leads.
func (u *upkeep) replicated() uint64 {
	if u.l.alone && len(u.l.members.Learners) == 0 {
		return math.MaxUint64
	}
	t := &u.trail
	if u.l.leading == nil {
		return t.end(1)
	}
	active, silent := uint64(math.MaxUint64), uint64(math.MaxUint64)
	u.l.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		have := p.Match
		if from, under := u.l.outgoing.from[id]; under {
			have = max(have, from)
		}
		if id == u.l.cfg.Replica || u.active(id) {
			active = min(active, have)
		} else {
			silent = min(silent, have)
		}
	})
	return min(max(active, t.end(maxTrail-1)), max(silent, t.end(16)))
}

// silentTicks is the number of ticks after which a silent peer is no longer waited for; checkTicks is how often the log is cut
// even if nothing was applied; dropTicks is how often the buffers for entries are dropped.
const (
	silentTicks = 50
	checkTicks  = 50
	dropTicks   = 5
)

// noteActive records the peers that Raft has heard from since its last check of the quorum.
func (u *upkeep) noteActive() {
	u.l.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if _, known := u.lastActive[id]; p.RecentActive || !known {
			u.lastActive[id] = u.ticks
		}
	})
}

// active reports whether a peer was heard from recently.
func (u *upkeep) active(id uint64) bool {
	at, known := u.lastActive[id]
	return known && u.ticks-at < silentTicks
}
