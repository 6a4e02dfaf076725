package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/pawlq/pawl/internal/broker/tasklog"
	"github.com/pawlq/pawl/internal/broker/waiting"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/engine/policies"
	"github.com/pawlq/pawl/internal/engine/schedule"
	"github.com/pawlq/pawl/internal/engine/schema"
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
	ctx  context.Context // of the goroutines in work
	stop context.CancelFunc

	// Owned by the shard's loop; leader is nil while another node leads.
	leader  *engine.Leader
	term    uint64 // of leader
	claims  waiting.Claims
	polls   waiting.Polls
	served  []serving      // claims of the current round, delivered once it is committed
	serving *waiting.Claim // the one that is being served
	events  []stats.Event  // reused for the events of each round
	ticks   *tickTraces
	ahead   *atomic.Pointer[engine.ReadAhead] // rows read ahead for leader; the next round takes them

	applied atomic.Uint64 // log index of the last round
	results results
	watches watches
	ring    events.Ring    // recent events
	scratch []events.Event // used by publishEvents
	holds   waiting.Holds  // by backups; they end with the term, and CheckCut fails then

	ticker     ticker
	archiver   archiver
	sender     outboxSender
	operations operationRunner
	steps      singleflight.Group // of operations
}

func newReplica(b *Broker, id uint32) *replica {
	r := &replica{id: id, b: b, log: b.cfg.Logger.With("shard", id), gone: make(chan struct{}),
		watches: watches{wake: make(chan struct{}, 1), byClaim: map[claimKey]*watched{}}}
	r.ticks = newTickTraces(b.cfg.Tracer)
	r.ticker.r, r.ticker.wake = r, make(chan struct{}, 1)
	r.archiver = archiver{r: r, wake: make(chan struct{}, 1)}
	r.sender.r, r.sender.wake = r, make(chan struct{}, 1)
	r.operations.r, r.operations.wake = r, make(chan struct{}, 1)
	r.ctx, r.stop = context.WithCancel(b.stopping)
	return r
}

// begin starts the broker's background work for the replica, which runs until end.
func (r *replica) begin() {
	r.work.Go(func() { r.ticker.run(r.ctx) })
	r.work.Go(func() { r.archiver.run(r.ctx) })
	r.work.Go(func() { r.sender.run(r.ctx) })
	r.work.Go(func() { r.operations.run(r.ctx) })
	r.work.Go(func() { r.checkClaims(r.ctx) })
}

func (r *replica) end() {
	r.stop()
	r.work.Wait()
}

// enter reports whether a call may begin that goes on when its caller no longer waits. end waits for its r.work.Done.
func (r *replica) enter() bool {
	r.b.mu.RLock()
	defer r.b.mu.RUnlock()
	here := r.b.replicas[r.id] == r && r.b.stopping.Err() == nil
	if here {
		r.work.Add(1)
	}
	return here
}

func (r *replica) hooks() shard.Hooks {
	return shard.Hooks{Elected: r.elected, BeforeSeal: r.beforeSeal, Committed: r.committed, Dropped: r.dropped}
}

// round returns the engine's round over tx. The first call of the round begins it.
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
	if r.term != o.Term { // else a round was dropped
		r.sender.lanes.BeginTerm()
	}
	r.term = o.Term
	r.polls.Begin(o.Began)
	r.leader = engine.NewLeader(term, r.b.cfg.Limits, policies.All...)
	actions.SetRetention(r.leader, r.b.cfg.AuditKeep)
	r.ahead = new(atomic.Pointer[engine.ReadAhead]) // a read for the previous leader may still finish
	if r.ticks != nil {
		schedule.TraceTicks(r.leader, r.ticks.begin)
	}
	r.ring.Open()
	r.ticker.begin()
	poke(r.archiver.wake)
	poke(r.sender.wake)
	poke(r.operations.wake)
}

// beforeSeal serves waiting claims from the tasks that the round made ready, so that an enqueue and the claim of its task share one
// commit.
func (r *replica) beforeSeal(tx *store.Tx) {
	round := r.round(tx)
	defer r.failServing()
	r.serveWaiting(round)
	round.Seal()
}

// committed publishes the effects of a round. A round that wrote nothing has some too: it may have read lanes, for which a watch waits.
func (r *replica) committed(tx *store.Tx, at shard.Stamp) {
	round := r.round(tx)
	r.applied.Store(at.Index)
	r.deliver(at)
	r.publishEvents(round, at)
	r.count(round)
	r.ticks.end(round.Ticked)
	r.results.ended(round.Ended)
	r.watches.lost(round.Lost)
	r.watches.ended(round.Transitions)
	for i := range round.Dead {
		tasklog.Dead(r.log, &round.Dead[i], r.b.cfg.LogHeaders)
	}
	r.logBreakers(round.Breakers)
	r.logApart(round.Apart)
	if round.ToArchive {
		poke(r.archiver.wake)
	}
	if round.ToSend {
		poke(r.sender.wake)
	}
	if round.ToOperate {
		poke(r.operations.wake)
	}
	r.results.operationsChanged(round.Stopped)
	r.ticker.set(r.leader.NextDeadline())
	r.readAhead()
}

// readAhead reads the tasks that claims will soon need.
func (r *replica) readAhead() {
	if a := r.leader.ReadAhead(); a != nil {
		done := r.ahead
		r.shard.ReadAsync(func(from store.Reader) {
			a.Read(from)
			done.Store(a)
		})
	}
}

func (r *replica) dropped(over bool) {
	r.leader = nil
	if over {
		r.ring.Close() // otherwise the ring holds only committed events, and what was dropped never happened
		r.holds.ReleaseAll()
	}
	r.retryWaiting()
	r.results.wakeAll()
}

// logApart logs the rows that a round has set apart.
func (r *replica) logApart(rows []schema.Apart) {
	for i := range rows {
		a := &rows[i]
		r.log.Error("a row could not be handled and was set apart", "namespace", a.Namespace, "table", string(a.Key[:1]), "key",
			fmt.Sprintf("%q", a.Key), "reason", a.Reason, "kept", a.Kept)
	}
}

// warn logs an error, unless it occurred because another node leads the shard or is about to, and will do the work.
func (r *replica) warn(what string, err error) {
	var notLeader *NotLeader
	if !errors.As(err, &notLeader) || notLeader.Shard != r.id {
		r.log.Warn(what, "error", err)
	}
}

// poke sends to a channel of capacity one, unless it is full.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
