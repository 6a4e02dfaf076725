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
}

// newUpkeep starts the goroutine that flushes. It ends in stop.
func newUpkeep(state *store.Store) *upkeep {
	u := &upkeep{kick: make(chan struct{}, 1), flushed: make(chan error, 1), ended: make(chan struct{})}
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

func (u *upkeep) applied(n int) { u.bytes += uint64(n) }

// tick is what a leader and a follower do at every tick beside Raft's own.
func (l *loop) tick() error {
	l.publishTime()
	u := l.upkeep
	at := l.cfg.State.Applied().Index
	if at == u.looked {
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

// publishTime lets Now answer.
func (l *loop) publishTime() {
	if l.office != nil {
		at := l.office.clock.Now()
		l.clock.Store(&reading{at, l.cfg.Time.Elapsed()})
	}
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

// replicated is the last entry that all peers have. A replica that is not the leader keeps everything: it doesn't know,
// and may be asked for it once it leads.
func (l *loop) replicated() uint64 {
	if l.alone {
		return math.MaxUint64
	}
	if l.office == nil {
		return 0
	}
	have := uint64(math.MaxUint64)
	l.raft.WithProgress(func(_ uint64, _ raft.ProgressType, p tracker.Progress) { have = min(have, p.Match) })
	return have
}
