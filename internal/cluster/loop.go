package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Groups are the Raft groups of all shards, wherever they are led. Calls may be repeated, late, or made by two
// Reconcilers at once: one that no longer fits the shard's membership is refused with an error, or does nothing.
type Groups interface {
	// Status asks the shard's leader, which makes sure that it still leads.
	Status(ctx context.Context, shard uint32) (Status, error)
	// AddLearner does nothing if the replica is a member.
	AddLearner(ctx context.Context, shard uint32, id uint64) error
	// ChangeVoters returns when the change is applied on the leader, and must not begin after ctx has ended. It is refused
	// if the leader has another term or other voters than the change was planned on, if one who is to be promoted is no
	// learner, or if of the new voters no majority answers.
	ChangeVoters(ctx context.Context, shard uint32, change VoterChange) error
	// RemoveLearner does nothing if the replica is no member; a voter is refused.
	RemoveLearner(ctx context.Context, shard uint32, id uint64) error
	// Transfer is refused if the replica is no voter, and fails without any effect on calls if it gives no answer. Why is for the log.
	Transfer(ctx context.Context, shard uint32, to uint64, why string) error
}

// ReconcilerConfig is what a Reconciler is made of.
type ReconcilerConfig struct {
	Control      *Control
	Groups       Groups
	Period       time.Duration // between two looks; default 500 ms
	ReplaceAfter time.Duration // silence of a node after which its replicas are replaced; default 5 minutes
	Logger       *slog.Logger  // nil: none
}

const (
	defaultPeriod = 500 * time.Millisecond
	// idlePeriod is the same in a cluster of one node in which nothing is to be done. What changes that writes, and pokes.
	idlePeriod = 10 * time.Minute
	// againAfter is the time to the next look when something was done.
	againAfter = 50 * time.Millisecond
	// lookRest is the shortest time between two looks, whoever pokes.
	lookRest = 20 * time.Millisecond
	// statusTimeout bounds the wait for a shard's leader, stepTimeout that for a step.
	statusTimeout = 2 * time.Second
	stepTimeout   = 5 * time.Second
	// maxAsking is how many shards are asked, or changed, at once.
	maxAsking = 8
)

// Reconciler makes the shards' memberships what the tables say, one step at a time for each shard, where the system
// shard is led. It keeps nothing between two looks.
type Reconciler struct {
	cfg   ReconcilerConfig
	poke  chan struct{}
	asked chan struct{} // is closed after the next look, for somebody who waits for it; nil: nobody does
}

// NewReconciler makes a Reconciler that does not run yet.
func NewReconciler(cfg ReconcilerConfig) *Reconciler {
	if cfg.Period == 0 {
		cfg.Period = defaultPeriod
	}
	if cfg.ReplaceAfter == 0 {
		cfg.ReplaceAfter = defaultReplaceAfter
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Reconciler{cfg: cfg, poke: make(chan struct{}, 1)}
}

// Poke asks for a look soon.
func (r *Reconciler) Poke() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// Run looks and acts, while this node leads the system shard, until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	defer r.answer()
	for ctx.Err() == nil {
		wait := r.cfg.Period
		if r.cfg.Control.leads() {
			var err error
			if wait, err = r.look(ctx); err != nil && ctx.Err() == nil {
				r.cfg.Logger.Debug("placement can't be read", "error", err)
			}
		}
		r.answer()
		// A step writes, and what is written asks for a look: one that is refused at once must not be tried without end.
		sleep(ctx, lookRest)
		r.pause(ctx, wait-lookRest)
	}
}

// answer tells whoever asked for a look that it is done.
func (r *Reconciler) answer() {
	if r.asked != nil {
		close(r.asked)
		r.asked = nil
	}
}

// pause waits until it is time for the next look. While that is long, who wants to know how the shards stand asks for one.
func (r *Reconciler) pause(ctx context.Context, wait time.Duration) {
	var wanted chan chan struct{}
	if wait > r.cfg.Period {
		wanted = r.cfg.Control.lookWanted
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

// look is one shard in one look.
type look struct {
	m       *Map  // as read
	row     Shard // of it
	asked   time.Time
	status  Status
	err     error // of asking for the status
	verdict Verdict
}

// look reads the rows, asks all shards, and takes at most one step for each. It tells how long the next look may wait.
func (r *Reconciler) look(ctx context.Context) (wait time.Duration, err error) {
	m, err := r.cfg.Control.Map(ctx)
	if err != nil {
		return r.cfg.Period, err
	}
	looks := make([]look, len(m.Shards))
	each(len(looks), func(i int) {
		ask, cancel := context.WithTimeout(ctx, statusTimeout)
		defer cancel()
		looks[i].m, looks[i].row, looks[i].asked = m, m.Shards[i], time.Now()
		status, err := r.cfg.Groups.Status(ask, m.Shards[i].ID)
		if looks[i].err = err; err == nil {
			looks[i].status = status
		}
	})
	r.decide(m, looks)
	switch {
	case r.act(ctx, looks):
		return min(r.cfg.Period, againAfter), nil
	case len(m.Members()) == 1 && !slices.ContainsFunc(looks, look.unsettled):
		return max(r.cfg.Period, idlePeriod), nil
	}
	return r.cfg.Period, nil
}

// unsettled says whether something is being done, is waited for, or is not known.
func (l look) unsettled() bool {
	return l.verdict.Step.Kind != NoStep || l.verdict.Busy != "" || l.verdict.Blocked != ""
}

// decide plans the steps. What a step does to a row counts for the plans after it, so that not all shards choose the
// same node.
func (r *Reconciler) decide(m *Map, looks []look) {
	members := r.cfg.Control.members(m)
	for i := range looks {
		if j := memberIndex(members, NodeOf(looks[i].status.Leader)); j >= 0 {
			members[j].Leaders++
		}
	}
	quiet := true
	rest := make([]placed, 0, len(looks))
	for i := range looks {
		l := &looks[i]
		if l.err != nil {
			l.verdict.Busy = "nobody answers for it"
			r.cfg.Logger.Debug("a shard can't be asked", "shard", l.row.ID, "error", l.err)
		} else {
			l.verdict = Next(Scene{Settings: m.Settings, Members: members, Shard: l.row, Status: l.status, ReplaceAfter: r.cfg.ReplaceAfter})
		}
		if step := l.verdict.Step; step.Kind == AddReplica {
			members[memberIndex(members, step.Node)].Replicas++
		}
		quiet = quiet && l.verdict.Step.Kind == NoStep && l.verdict.Busy == ""
		rest = append(rest, placed{l.row, l.status})
	}
	if !quiet {
		return
	}
	step := balance(members, rest)
	for i := range looks {
		if step.Kind != NoStep && looks[i].row.ID == step.Shard {
			looks[i].verdict.Step = step
		}
	}
}

// act takes the steps, and remembers how each shard looked.
func (r *Reconciler) act(ctx context.Context, looks []look) (acted bool) {
	errs := make([]error, len(looks))
	each(len(looks), func(i int) {
		if looks[i].verdict.Step.Kind != NoStep {
			errs[i] = r.take(ctx, looks[i])
		}
	})
	for i, l := range looks {
		s := sight{status: l.status, problem: l.verdict.Blocked, at: l.asked}
		if s.problem == "" {
			s.problem = l.verdict.Busy
		}
		if step := l.verdict.Step; step.Kind != NoStep {
			s.step = step.told(l.m)
			acted = acted || errs[i] == nil
			r.logStep(step, s.step, errs[i])
		}
		if err := errs[i]; err != nil && !errors.Is(err, errStale) {
			s.problem = s.step + ": not done yet, it is tried again" // the log says why
		}
		r.cfg.Control.saw(l.row.ID, s)
	}
	return acted
}

func (r *Reconciler) logStep(step Step, told string, err error) {
	log := r.cfg.Logger.With("shard", step.Shard, "step", told)
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
func (r *Reconciler) take(ctx context.Context, l look) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	step := l.verdict.Step
	switch step.Kind {
	case AddLearner:
		return r.cfg.Groups.AddLearner(ctx, step.Shard, step.Replica)
	case RemoveLearner:
		return r.cfg.Groups.RemoveLearner(ctx, step.Shard, step.Replica)
	case ChangeVoters:
		if err := r.cfg.Control.beginChange(ctx, l.m, step.Shard); err != nil {
			return err
		}
		err := r.cfg.Groups.ChangeVoters(ctx, step.Shard, step.Change)
		if err == nil {
			r.cfg.Control.changeDone(step.Shard)
		}
		return err
	case TransferLeader:
		return r.cfg.Groups.Transfer(ctx, step.Shard, step.Replica, step.Why)
	}
	return r.cfg.Control.takeRowStep(ctx, l.row, step)
}

// each calls fn for 0 to n-1, a few at a time, and waits for all.
func each(n int, fn func(i int)) {
	var all sync.WaitGroup
	room := make(chan struct{}, maxAsking)
	for i := range n {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			fn(i)
		})
	}
	all.Wait()
}
