package shard

import (
	"math"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/pawlq/pawl/internal/store"
)

// upkeep keeps the log short: it flushes the state when too much of the log is not in its files yet, on a goroutine of
// its own, since a flush may take long.
type upkeep struct {
	kick    chan struct{}
	flushed chan error
	ended   chan struct{}

	// These belong to the loop.
	flushing bool
	looked   uint64 // what was applied when tick last looked at what is flushed
	bytes    uint64 // of entries applied after entry from
	from     uint64
	trail    trail
	ticks    uint64
	lastWord map[uint64]uint64 // the tick at which a peer was last seen active
}

// trail remembers where in the log which share of its bytes begins. A step is a sixteenth of what a leader keeps for
// replicas that it doesn't hear of, and all that others keep.
type trail struct {
	step  uint64
	since uint64   // bytes after the last of starts
	from  []uint64 // the entry that ended each step, oldest first
}

// maxTrail is how many steps a leader keeps at most for replicas that it does hear of: sixteen times more than for others.
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

// end is the entry up to which the log may be cut to keep at least so many steps.
func (t *trail) end(steps int) uint64 {
	if len(t.from) <= steps {
		return 0
	}
	return t.from[len(t.from)-1-steps]
}

// newUpkeep starts the goroutine that flushes. It ends in stop.
func newUpkeep(state *store.Store, keepBytes uint64) *upkeep {
	u := &upkeep{kick: make(chan struct{}, 1), flushed: make(chan error, 1), ended: make(chan struct{}),
		trail: trail{step: keepBytes / 16}, lastWord: map[uint64]uint64{}}
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

// tick is what a leader and a follower do at every tick beside Raft's own.
func (l *loop) tick() error {
	l.handOverIfBarred()
	l.leaveIfSlow()
	l.tickHandover()
	u := l.upkeep
	if u.ticks++; l.leading != nil {
		l.seeActive()
	}
	at := l.cfg.State.Applied().Index
	if at == u.looked && u.ticks%lookTicks != 0 {
		return nil
	}
	u.looked = at
	// Soon after the state has flushed them: entries that are cut while they are still in memory are never written to a
	// table of the log.
	if err := l.cut(); err != nil {
		return err
	}
	first, _ := l.log.FirstIndex()
	if !u.flushing && (u.bytes > l.cfg.Limits.ReplayBytes || at+1-first > l.cfg.Limits.ReplayEntries) {
		u.flushing = true
		u.kick <- struct{}{}
	}
	return nil
}

// needsTicks says whether Raft or the log have anything to do as time passes. A leader without any other replica has nobody to hear from
// and nobody to tell that it leads, so it needs a tick only to look at its log after an entry. An idle node of a cluster of one sleeps.
func (l *loop) needsTicks() bool {
	return l.leading == nil || !l.alone || len(l.members.Learners) > 0 || l.change != nil || l.handovers.under != nil ||
		l.cfg.State.Applied().Index != l.upkeep.looked
}

// cut removes what the state has flushed from the log.
func (l *loop) cut() error {
	durable, err := l.cfg.State.Durable()
	if err != nil {
		return err
	}
	if planted("shard-cut-applied") {
		durable = l.cfg.State.Applied()
	}
	u := l.upkeep
	if durable.Index >= u.from {
		u.bytes, u.from = 0, l.cfg.State.Applied().Index
	}
	return l.log.Compact(min(durable.Index, l.replicated()))
}

// replicated is the entry up to which the log may be cut. A leader keeps what replicas lack that it hears of, and a part
// of it for the others; any other replica keeps a little, since it may be asked for it once it leads.
func (l *loop) replicated() uint64 {
	if l.alone && len(l.members.Learners) == 0 {
		return math.MaxUint64
	}
	t := &l.upkeep.trail
	if l.leading == nil {
		return t.end(1)
	}
	active, silent := uint64(math.MaxUint64), uint64(math.MaxUint64)
	l.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		have := p.Match
		if from, under := l.outgoing.from[id]; under {
			have = max(have, from)
		}
		if id == l.cfg.Replica || l.upkeep.active(id) {
			active = min(active, have)
		} else {
			silent = min(silent, have)
		}
	})
	return min(max(active, t.end(maxTrail-1)), max(silent, t.end(16)))
}

// silentTicks is after how many ticks without a word a peer is not waited for any more; lookTicks how often the log is
// looked at although nothing was applied.
const (
	silentTicks = 50
	lookTicks   = 50
)

// seeActive notes which peers Raft heard of since it last asked itself.
func (l *loop) seeActive() {
	u := l.upkeep
	l.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if _, known := u.lastWord[id]; p.RecentActive || !known {
			u.lastWord[id] = u.ticks
		}
	})
}

// active says whether a peer was heard of lately.
func (u *upkeep) active(id uint64) bool {
	at, known := u.lastWord[id]
	return known && u.ticks-at < silentTicks
}
