package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/auditlog"
	"github.com/pawlq/pawl/internal/engine/policies"
	"github.com/pawlq/pawl/internal/engine/schedule"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/store"
)

// replica is one shard on this node, with what its leader keeps in memory.
type replica struct {
	id    uint32
	b     *Broker
	log   *slog.Logger
	shard *shard.Shard

	gone chan struct{} // closed when the broker has forgotten the replica
	work sync.WaitGroup
	ctx  context.Context // of work
	stop context.CancelFunc

	// Owned by the shard's loop; leader is nil while another node leads.
	leader *engine.Leader
	claims waitingClaims
	polls  polls
	served []serving     // claims of the round that runs, to be delivered once it is committed
	events []stats.Event // space for those of a round
	ticks  *tickTraces
	ahead  *atomic.Pointer[engine.ReadAhead] // what was read for leader, to be taken by the next round

	applied    atomic.Uint64 // log index of the last round
	deadline   atomic.Int64  // shard time before which there is nothing to do
	wake       chan struct{} // the deadline moved to earlier
	toFile     chan struct{} // dead letters wait for the archive
	toSend     chan struct{} // messages wait for the sender
	deliveries deliveries
	results    results
	watches    watches
	ring       events.Ring    // of what happened
	scratch    []events.Event // of tell

	operations operations
}

func newReplica(b *Broker, id uint32) *replica {
	r := &replica{id: id, b: b, log: b.cfg.Logger.With("shard", id), gone: make(chan struct{}),
		wake: make(chan struct{}, 1), toFile: make(chan struct{}, 1), toSend: make(chan struct{}, 1), watches: watches{wake: make(chan struct{}, 1)}}
	r.ticks = newTickTraces(b.cfg.Tracer)
	r.operations.wake = make(chan struct{}, 1)
	r.ctx, r.stop = context.WithCancel(b.stopping)
	return r
}

// begin starts what the broker does for the replica of its own accord, until end.
func (r *replica) begin() {
	r.work.Go(func() { r.passTime(r.ctx) })
	r.work.Go(func() { r.archiveDead(r.ctx) })
	r.work.Go(func() { r.sendOutbox(r.ctx) })
	r.work.Go(func() { r.operate(r.ctx) })
	r.work.Go(func() { r.checkClaims(r.ctx) })
}

func (r *replica) end() {
	r.stop()
	r.work.Wait()
}

func (r *replica) hooks() shard.Hooks {
	return shard.Hooks{Elected: r.elected, BeforeSeal: r.beforeSeal, Committed: r.committed, Dropped: r.dropped}
}

// round is the engine's round over tx, begun by the first call of the round.
func (r *replica) round(tx *store.Tx) *engine.Round {
	round, ok := tx.Local.(*engine.Round)
	if !ok {
		r.ticks.forget()
		if a := r.ahead.Swap(nil); a != nil {
			r.leader.Take(a)
		}
		round = r.leader.Begin(tx)
		tx.Local = round
	}
	return round
}

func (r *replica) elected(o shard.LeaderTerm) {
	term := engine.LeaderTerm{Epoch: o.Epoch, Began: o.Began, Before: o.Before}
	if until, doubted := term.Doubted(); doubted {
		r.log.Info("the shard's last entry is over an hour old, or the clock is wrong: retention deletes nothing for an hour",
			"last", o.Before.Time(), "now", o.Began.Time(), "until", until.Time())
	}
	r.polls.begin(o.Began)
	r.deliveries.begin()
	r.leader = engine.NewLeader(term, r.b.cfg.Limits, policies.All...)
	auditlog.Keep(r.leader, r.b.cfg.AuditKeep)
	r.ahead = new(atomic.Pointer[engine.ReadAhead]) // a read for the leader before may still end
	if r.ticks != nil {
		schedule.TraceTicks(r.leader, r.ticks.begin)
	}
	r.ring.Open()
	r.deadline.Store(0)
	poke(r.wake) // whatever the deadline was: one that was lost with the last leadership may be 0 too, and nobody looked at it since
	poke(r.toFile)
	poke(r.toSend)
	poke(r.operations.wake)
}

// beforeSeal feeds waiting claims with what the round made ready, so that an enqueue and the claim of its task share one
// commit.
func (r *replica) beforeSeal(tx *store.Tx) {
	round := r.round(tx)
	r.feed(round)
	round.Seal()
	if at := r.leader.NextDeadline(); int64(at) < r.deadline.Load() {
		r.setDeadline(at) // a round that writes nothing, too, may use a queue whose lanes are still to be read
	}
}

func (r *replica) committed(tx *store.Tx, at shard.Stamp) {
	round := r.round(tx)
	r.applied.Store(at.Index)
	r.deliver(at)
	r.tell(round, at)
	r.count(round)
	r.ticks.tell(round.Ticked)
	r.results.ended(round.Ended)
	r.watches.lost(round.Lost)
	for i := range round.Dead {
		logDead(r.log, &round.Dead[i], r.b.cfg.LogHeaders)
	}
	r.logBreakers(round.Breakers)
	if round.ToArchive {
		poke(r.toFile)
	}
	if round.ToSend {
		poke(r.toSend)
	}
	if round.ToOperate {
		poke(r.operations.wake)
	}
	r.results.told(round.Rested)
	r.setDeadline(r.leader.NextDeadline())
	r.readAhead()
}

// readAhead has the tasks read that claims will want soon.
func (r *replica) readAhead() {
	if a := r.leader.ReadAhead(); a != nil {
		done := r.ahead
		r.shard.ReadBeside(func(from store.Reader) {
			a.Read(from)
			done.Store(a)
		})
	}
}

func (r *replica) dropped(over bool) {
	r.leader = nil
	if over {
		r.ring.Close() // else what is in it was committed, and what did not happen is not
	}
	r.askAgain()
	r.results.again()
}

// setDeadline is called by the shard's loop only.
func (r *replica) setDeadline(at store.Time) {
	if before := r.deadline.Swap(int64(at)); int64(at) < before {
		poke(r.wake)
	}
}

// passTime lets time pass in the shard when there is something to do, and sleeps otherwise.
func (r *replica) passTime(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(r.untilDeadline())
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
			continue
		case <-timer.C:
		}
		if now, leads := r.shard.Now(); !leads || int64(now) < r.deadline.Load() {
			continue
		}
		began := time.Now()
		more, _, err := change(ctx, r, func(round *engine.Round) (bool, error) {
			engine.Tick(round)
			r.setDeadline(r.leader.NextDeadline()) // a round that writes nothing is not committed
			return r.leader.NextDeadline() <= round.Now(), nil
		})
		switch {
		case err != nil && ctx.Err() == nil:
			r.rest(ctx, err)
		case more: // what is due all at once takes a third of the time, so that others hardly notice
			sleep(ctx, min(2*time.Since(began), maxTickRest))
		}
	}
}

// maxTickRest bounds the pause between two rounds in which time passes.
const maxTickRest = 20 * time.Millisecond

// tickRest is the pause after time could not pass: while leadership is handed over, say.
const tickRest = 100 * time.Millisecond

func (r *replica) rest(ctx context.Context, err error) {
	r.warn("letting time pass", err)
	sleep(ctx, tickRest)
}

// warn logs what failed, unless it did since another node leads the shard now, or is about to, and does it there.
func (r *replica) warn(what string, err error) {
	var elsewhere *Elsewhere
	if !errors.As(err, &elsewhere) || elsewhere.Shard != r.id {
		r.log.Warn(what, "error", err)
	}
}

// idleLook is how often the deadline is looked at although nothing moved it: a leader's clock leans towards the wall
// clock, so a long sleep drifts.
const idleLook = 30 * time.Second

func (r *replica) untilDeadline() time.Duration {
	now, leads := r.shard.Now()
	if !leads {
		return idleLook
	}
	wait := store.Time(r.deadline.Load()) - now
	if wait > store.Time(idleLook/time.Microsecond) {
		return idleLook
	}
	return max(time.Duration(wait)*time.Microsecond, 0)
}

// poke fills a channel of one place.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits, unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
