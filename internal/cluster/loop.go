package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/system"
)

// Groups gives access to the Raft groups of all shards, wherever they are led. Calls may be repeated, late, or made by two Reconcilers at
// the same time: one that no longer fits the shard's membership returns an error or does nothing.
type Groups interface {
	// Status asks the shard's leader, which confirms that it still leads.
	Status(ctx context.Context, shard uint32) (Status, error)
	// AddLearner is a no-op if the replica is a member.
	AddLearner(ctx context.Context, shard uint32, id uint64) error
	// ChangeVoters returns when the leader has applied the change, which must not begin after ctx is done. It returns an error if the
	// leader's term or voters are not those that the change was planned for, if a replica to be promoted is no learner, or if no majority
	// of the new voters answers.
	ChangeVoters(ctx context.Context, shard uint32, change VoterChange) error
	// RemoveLearner is a no-op if the replica is not a member, and returns an error for a voter.
	RemoveLearner(ctx context.Context, shard uint32, id uint64) error
	// Transfer returns an error if the replica is not a voter; if the replica does not answer, it fails without affecting calls. why is for
	// the log.
	Transfer(ctx context.Context, shard uint32, to uint64, why string) error
}

// ReconcilerConfig configures a Reconciler.
type ReconcilerConfig struct {
	Placement *Placement
	Groups    Groups
	Period    time.Duration // between two passes; default 500 ms
	Logger    *slog.Logger  // nil: none
}

const (
	defaultPeriod = 500 * time.Millisecond
	// idlePeriod is the period in a cluster of one node with nothing to do. Whatever changes that writes, and pokes.
	idlePeriod = 10 * time.Minute
	// againAfter is the time to the next pass after something was done.
	againAfter = 50 * time.Millisecond
	// passPause is the shortest time between two passes, whoever pokes.
	passPause = 20 * time.Millisecond
	// statusTimeout bounds the wait for a shard's leader, stepTimeout that for a step.
	statusTimeout = 2 * time.Second
	stepTimeout   = 5 * time.Second
)

// Reconciler makes the shards' memberships match the tables, one step at a time for each shard, on the node that leads the system shard. It
// keeps no state between passes.
type Reconciler struct {
	cfg   ReconcilerConfig
	poke  chan struct{}
	asked chan struct{} // closed after the next pass, for a caller that waits for it; nil: none does
}

// NewReconciler returns a Reconciler that is not running yet.
func NewReconciler(cfg ReconcilerConfig) *Reconciler {
	if cfg.Period == 0 {
		cfg.Period = defaultPeriod
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Reconciler{cfg: cfg, poke: make(chan struct{}, 1)}
}

// Poke requests a pass soon.
func (r *Reconciler) Poke() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// Run makes passes while this node leads the system shard, until ctx is done.
func (r *Reconciler) Run(ctx context.Context) {
	defer r.answer()
	for ctx.Err() == nil {
		wait := r.cfg.Period
		if r.cfg.Placement.shard.Leads() {
			var err error
			if wait, err = r.reconcile(ctx); err != nil && ctx.Err() == nil {
				r.cfg.Logger.Debug("placement can't be read", "error", err)
			}
		}
		r.answer()
		// A step writes, and a write requests a pass: a step that is refused immediately must not be retried in a tight loop.
		system.Sleep(ctx, passPause)
		r.pause(ctx, wait-passPause)
	}
}

// answer wakes the caller that requested a pass.
func (r *Reconciler) answer() {
	if r.asked != nil {
		close(r.asked)
		r.asked = nil
	}
}

// pause waits until it is time for the next pass. If that is far off, a caller that wants to know the state of the shards can request one.
func (r *Reconciler) pause(ctx context.Context, wait time.Duration) {
	var wanted chan chan struct{}
	if wait > r.cfg.Period {
		wanted = r.cfg.Placement.passWanted
	}
	t := time.NewTimer(max(wait, 0))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-r.poke:
	case r.asked = <-wanted:
	case <-t.C:
	}
}

// shardPass is one shard in one pass.
type shardPass struct {
	m        *Map  // the map as read
	row      Shard // the shard's row in it
	asked    time.Time
	status   Status
	err      error // of the request for the status
	decision Decision
}

// reconcile reads the rows, asks all shards, and takes at most one step for each. It returns how long the next pass may wait.
func (r *Reconciler) reconcile(ctx context.Context) (wait time.Duration, err error) {
	m, err := r.cfg.Placement.Map(ctx)
	if err != nil {
		return r.cfg.Period, err
	}
	if err := r.cfg.Placement.noteSilence(ctx, m); err != nil {
		r.cfg.Logger.Debug("the silence of nodes can't be written", "error", err)
	}
	passes := make([]shardPass, len(m.Shards))
	parallel.Run(len(passes), func(i int) {
		ask, cancel := context.WithTimeout(ctx, statusTimeout)
		defer cancel()
		passes[i].m, passes[i].row, passes[i].asked = m, m.Shards[i], time.Now()
		status, err := r.cfg.Groups.Status(ask, m.Shards[i].ID)
		if passes[i].err = err; err == nil {
			passes[i].status = status
		}
	})
	r.decide(m, passes)
	switch {
	case r.act(ctx, passes):
		return min(r.cfg.Period, againAfter), nil
	case len(m.Members()) == 1 && !slices.ContainsFunc(passes, shardPass.unsettled):
		return max(r.cfg.Period, idlePeriod), nil
	}
	return r.cfg.Period, nil
}

// unsettled reports whether something is being done, awaited or unknown.
func (l shardPass) unsettled() bool {
	return l.decision.Step.Kind != NoStep || l.decision.Busy != "" || l.decision.Blocked != ""
}

// decide plans the steps. Each plan sees what the previous steps do to the rows, so that not all shards choose the same node.
func (r *Reconciler) decide(m *Map, passes []shardPass) {
	members := r.cfg.Placement.members(m)
	for i := range passes {
		if j := memberIndex(members, NodeOf(passes[i].status.Leader)); j >= 0 {
			members[j].Leaders++
		}
	}
	quiet := true
	rest := make([]shardState, 0, len(passes))
	for i := range passes {
		l := &passes[i]
		if l.err != nil {
			l.decision.Busy = "none of its replicas answers"
			r.cfg.Logger.Debug("a shard can't be asked", "shard", l.row.ID, "error", l.err)
		} else {
			l.decision = Next(PlanInput{Settings: m.Settings, Members: members, Shard: l.row, Status: l.status})
		}
		if step := l.decision.Step; step.Kind == AddReplica {
			members[memberIndex(members, step.Node)].Replicas++
		}
		quiet = quiet && l.decision.Step.Kind == NoStep && l.decision.Busy == ""
		rest = append(rest, shardState{l.row, l.status})
	}
	if !quiet {
		return
	}
	step := balance(members, rest)
	for i := range passes {
		if step.Kind != NoStep && passes[i].row.ID == step.Shard {
			passes[i].decision.Step = step
		}
	}
}

// act takes the steps, and records the state of each shard.
func (r *Reconciler) act(ctx context.Context, passes []shardPass) (acted bool) {
	errs := make([]error, len(passes))
	parallel.Run(len(passes), func(i int) {
		if passes[i].decision.Step.Kind != NoStep {
			errs[i] = r.take(ctx, passes[i])
		}
	})
	for i, l := range passes {
		s := observation{status: l.status, problem: l.decision.Blocked, at: l.asked}
		if s.problem == "" {
			s.problem = l.decision.Busy
		}
		if step := l.decision.Step; step.Kind != NoStep {
			s.step = step.describe(l.m)
			acted = acted || errs[i] == nil
			r.logStep(step, s.step, errs[i])
		}
		if err := errs[i]; err != nil && !errors.Is(err, errStale) {
			s.problem = s.step + ": not done yet, will be retried" // the log has the error
		}
		r.cfg.Placement.observations.observed(l.row.ID, s)
	}
	return acted
}

func (r *Reconciler) logStep(step Step, description string, err error) {
	log := r.cfg.Logger.With("shard", step.Shard, "step", description)
	if step.Why != "" {
		log = log.With("why", step.Why)
	}
	if err != nil {
		log.Warn("placement: a step was not done", "error", err)
		return
	}
	log.Info("placement")
}

// take takes one step.
func (r *Reconciler) take(ctx context.Context, l shardPass) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	step := l.decision.Step
	switch step.Kind {
	case AddLearner:
		return r.cfg.Groups.AddLearner(ctx, step.Shard, step.Replica)
	case RemoveLearner:
		return r.cfg.Groups.RemoveLearner(ctx, step.Shard, step.Replica)
	case ChangeVoters:
		if err := r.cfg.Placement.beginChange(ctx, l.m, step.Shard); err != nil {
			return err
		}
		err := r.cfg.Groups.ChangeVoters(ctx, step.Shard, step.Change)
		if err == nil {
			r.cfg.Placement.observations.changeDone(step.Shard)
		}
		return err
	case TransferLeader:
		return r.cfg.Groups.Transfer(ctx, step.Shard, step.Replica, step.Why)
	}
	return r.cfg.Placement.takeRowStep(ctx, l.row, step)
}
