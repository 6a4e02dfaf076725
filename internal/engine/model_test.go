package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// model is the life of tasks in the most obvious form: a list of tasks, and loops over all of them. It has one rule per
// verb and knows nothing of lanes, rows or rounds.
type model struct {
	tasks  []*modelTask  // that are kept
	groups []*modelGroup // that are kept
	made   []*modelGroup // whose calls may be repeated
	rules  map[string]task.QueueConfig
	tokens map[[2]string]*modelBucket  // by queue and key, "" for the queue's own
	onces  map[[2]string]*modelOnce    // by queue and once key
	broken map[[2]string]*modelBreaker // by queue and type
	keys   map[string]modelClaim       // by claim key
	asked  []modelRequest              // requests that have created a task
	now    store.Time
	since  store.Time // while time passes, up to when it has
	places int
	late   bool // time has passed, and its deadlines are handled now
	unread bool // the leader has lanes to read, so a probe may not be the first
}

// modelBucket holds tokens as of a time.
type modelBucket struct {
	tokens float64
	at     store.Time
}

func (m *model) rateOf(queue, key string) task.Rate {
	s := m.rules[queue].Settings
	if key == "" {
		return s.Rate
	}
	return s.RulesOf(key).Rate
}

// modelClaim is the result of the first claim with a claim key.
type modelClaim struct {
	t     *modelTask
	fence int
	until store.Time
}

// again returns the answer to a repeated claim: the same claim, if it still holds.
func (m *model) again(key string) *modelTask {
	c, known := m.keys[key]
	if key == "" || !known || c.until <= m.now || c.t.state != task.Claimed || c.t.fence != c.fence {
		return nil
	}
	return c.t
}

// has returns the number of tokens after the refill since the last call and what is taken now.
func (m *model) has(queue, key string, take int) float64 {
	rate := m.rateOf(queue, key)
	if !rate.IsSet() {
		return 1
	}
	b := m.tokens[[2]string{queue, key}]
	if b == nil {
		b = &modelBucket{tokens: float64(rate.Capacity()), at: m.now}
		m.tokens[[2]string{queue, key}] = b
	}
	b.tokens += (m.now - b.at).Sub(0).Seconds() / rate.Period.Seconds() * float64(rate.Limit)
	b.tokens, b.at = min(b.tokens, float64(rate.Capacity()))-float64(take), m.now
	return b.tokens
}

// rule changes the limits of a queue.
func (m *model) rule(queue string, c task.QueueConfig) {
	for of := range m.tokens {
		if of[0] == queue && m.has(queue, of[1], 0) >= float64(m.rateOf(queue, of[1]).Capacity())-1e-6 { // by the old rate
			delete(m.tokens, of) // it is full at the new one, too
		}
	}
	was := m.rules[queue].Settings
	m.rules[queue] = c
	m.ruleBreakers(queue, &was, &c.Settings)
	for of := range m.tokens {
		if of[0] == queue && !m.rateOf(queue, of[1]).IsSet() {
			delete(m.tokens, of)
		}
	}
}

type modelTask struct {
	id              task.ID
	queue, typ, key string
	priority        task.Priority
	state           task.State
	runAt, until    store.Time
	expires         store.Time // 0: never
	always          bool       // it expires also after its first start
	place           int        // order of becoming ready
	order           int        // place in the order of its key; 0: none
	inLine, begun   bool
	yields          bool // its claim does
	cost            int
	fence, failures int
	crashes, most   int
	replayedAt      int // attempts used up before the last replay
	worker          string
	unique          *task.Unique
	then            []task.Spec
	group           *modelGroup
	holds, next     bool // holds its unique key, or waits to

	created, ended store.Time // ended 0: it has not ended
	retention      *time.Duration
}

// modelRequest is a call that created a task, and may be repeated.
type modelRequest struct {
	spec task.Spec
	t    *modelTask
}

// keptUntil returns when an ended task is forgotten: at the end of a second. A dead letter is forgotten once it is archived.
func (t *modelTask) keptUntil() store.Time {
	keep := task.DefaultSettings().Retention.Of(t.state)
	if t.retention != nil {
		keep = *t.retention
	}
	const second = 1_000_000
	return (t.ended.Add(keep) + second - 1) / second * second
}

// noteEnds records which tasks have ended by now.
func (m *model) noteEnds() {
	for _, t := range m.tasks {
		switch {
		case !t.state.Ended():
			t.ended = 0
		case t.ended == 0:
			t.ended = m.now
		}
	}
}

// forget drops the tasks whose retention is over at a time.
func (m *model) forget(at store.Time) {
	m.noteEnds()
	m.tasks = slices.DeleteFunc(m.tasks, func(t *modelTask) bool { return t.ended != 0 && t.state != task.Dead && t.keptUntil() <= at })
}

// archive drops the dead letters whose retention is over.
func (m *model) archive() (n int) {
	all := len(m.tasks)
	m.tasks = slices.DeleteFunc(m.tasks, func(t *modelTask) bool { return t.state == task.Dead && t.keptUntil() <= m.now })
	return all - len(m.tasks)
}

// remembers reports whether the repeat of a request finds its task: as long as that is kept, and for ten minutes.
func (m *model) remembers(q modelRequest) bool {
	return slices.Contains(m.tasks, q.t) || m.now < q.t.created.Add(10*time.Minute)
}

func (m *model) ready(t *modelTask) {
	m.places++
	t.state, t.place = task.Ready, m.places
}

// modelLine is a place where tasks wait for their turn: see line.
type modelLine struct {
	priority task.Priority
	of       [2]string
}

// claim returns the tasks that a claim for one queue may get: in the best priority with a runnable task, or in each if
// they have weights, the first of each key, and of each key and type on trial. TestFairness checks which key's turn it
// is.
func (m *model) claim(queue string, types []string) (first map[modelLine]*modelTask) {
	best, tried, weighted := task.Low, map[string]task.Priority{}, m.rules[queue].Settings.Weighted()
	var able []*modelTask
	for _, t := range m.tasks {
		if t.queue != queue || len(types) > 0 && !slices.Contains(types, t.typ) || m.held(t) {
			continue
		}
		able = append(able, t)
		best = min(best, t.priority)
		if p, some := tried[t.typ]; m.onTrial(t) && (!some || t.priority < p) {
			tried[t.typ] = t.priority // its probe is there
		}
	}
	first = map[modelLine]*modelTask{}
	for _, t := range able {
		if !weighted && t.priority > best || m.onTrial(t) && t.priority > tried[t.typ] && !m.unread {
			continue
		}
		of := modelLine{t.priority, m.line(t)}
		if first[of] == nil || t.place < first[of].place {
			first[of] = t
		}
	}
	return first
}

// held reports whether a task must not run now. Of a type on trial only one task may run: see line.
func (m *model) held(t *modelTask) bool {
	rules := m.rules[t.queue]
	running, ofKey, holding := 0, 0, 0
	for _, other := range m.tasks {
		if other.state == task.Claimed && other.queue == t.queue {
			running++
			if other.key == t.key {
				if ofKey++; !other.yields {
					holding++
				}
			}
		}
	}
	reached := func(n, most int) bool { return most > 0 && n >= most }
	most := rules.Settings.PerKey.MaxRunning
	if own, ok := rules.Settings.Keys[t.key]; ok {
		most = own.MaxRunning
	}
	if m.has(t.queue, "", 0) < 1-1e-6 || t.key != "" && m.has(t.queue, t.key, 0) < 1-1e-6 {
		return true
	}
	paused := slices.ContainsFunc(rules.Holds, func(h task.Hold) bool { return h.Type == t.typ || h.Key == t.key && t.key != "" })
	return t.state != task.Ready || t.next || m.waitsInOrder(t, holding) || rules.Paused || paused || m.breaks(t) ||
		reached(running, rules.Settings.MaxRunning) || t.key != "" && reached(ofKey, most)
}

// moved applies the rules for keys and groups of a task that has moved.
func (m *model) moved(t *modelTask) {
	m.passKey(t)
	m.updateGroup(t)
	m.lineUp()
}

// pass does what the passage of time alone does up to now, in order of deadlines.
func (m *model) pass(now store.Time) {
	m.cancelMembers()
	defer m.forgetGroups()
	for {
		var first *modelTask
		var at store.Time
		for _, t := range m.tasks {
			due, waits := t.due()
			if waits && due <= now && (first == nil || due < at || due == at && less(t, first)) {
				first, at = t, due
			}
		}
		if m.tryBefore(first, at, now) {
			continue
		}
		if first == nil {
			m.forget(now)
			m.now = now
			return
		}
		if !m.late {
			at = max(at, m.since) // a task that came back may have expired before
		}
		m.forget(at - 1)
		if !m.late {
			m.now, m.since = at, at
		}
		if first.expired(at) {
			first.state = task.Discarded
			m.moved(first)
			continue
		}
		if first.state != task.Claimed {
			m.ready(first)
			m.lineUp()
			continue
		}
		if first.crashes++; first.used() >= first.most {
			first.state = task.Dead
		} else {
			first.state = task.Ready // at its old place
		}
		m.moved(first)
		m.judge(first, modelFailure)
	}
}

func (t *modelTask) used() int { return t.failures + t.crashes - t.replayedAt }

func (t *modelTask) due() (at store.Time, some bool) {
	switch t.state {
	case task.Scheduled, task.Retrying:
		at, some = t.runAt, true
	case task.Claimed:
		at, some = t.until, true
	}
	if t.awaitsStart() && (!some || t.expires < at) {
		return t.expires, true
	}
	return at, some
}

// less is the order of deadlines at the same time: due tasks before leases, then by id.
func less(a, b *modelTask) bool {
	if (a.state == task.Claimed) != (b.state == task.Claimed) {
		return b.state == task.Claimed
	}
	return slices.Compare(a.id[:], b.id[:]) < 0
}

// TestModel runs random verbs against the engine and the model. PAWL_SEED repeats a run.
func TestModel(t *testing.T) { runModel(t, duelQueues, modelSteps, (*duel).verbs) }

// runModel runs one duel of n steps for each seed.
func runModel(t *testing.T, queues []string, n int, steps func(*duel) []func() string) {
	seeds := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	if s := os.Getenv("PAWL_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := &duel{World: engine.NewWorld(t), queues: queues, m: &model{rules: map[string]task.QueueConfig{},
				tokens: map[[2]string]*modelBucket{}, onces: map[[2]string]*modelOnce{}, broken: map[[2]string]*modelBreaker{},
				keys: map[string]modelClaim{}, now: engine.Dawn}, rng: rand.New(rand.NewPCG(seed, 0)), tokens: map[task.ID][]task.Token{}}
			for _, q := range queues {
				d.rule(q, task.QueueConfig{Settings: task.DefaultSettings()})
			}
			for step := range n {
				what := d.step(steps(d))
				if err := d.compare(); err != nil {
					t.Fatalf("PAWL_SEED=%d, step %d, %s: %v", seed, step, what, err)
				}
			}
			for what, n := range d.seen {
				t.Logf("%s: %d", what, n)
			}
		})
	}
}

// duelQueues: in c all tasks have one of a few unique keys, so that it is short and they meet while they run.
var duelQueues = []string{"a", "b", "c"}

// duel is the engine against the model.
type duel struct {
	*engine.World
	queues []string
	m      *model
	rng    *rand.Rand
	tokens map[task.ID][]task.Token
	seen   map[string]int
	noted  uint64            // entries of the audit
	owed   map[string][3]int // what priorities are owed, by queue and types
}

func (d *duel) step(steps []func() string) string {
	if d.seen == nil {
		d.seen, d.owed = map[string]int{}, map[string][3]int{}
	}
	d.m.now = d.Now
	what := steps[d.rng.IntN(len(steps))]()
	d.m.lineUp()
	d.m.noteEnds()
	d.seen[what]++
	return what
}

func (d *duel) verbs() []func() string {
	return []func() string{d.enqueueStep, d.enqueueStep, d.claimStep, d.claimStep, d.settleStep, d.settleStep, d.settleStep,
		d.passStep, d.cancelStep, d.retryStep, d.pauseStep, d.limitStep, d.leaderStep, d.onceStep, d.onceStep, d.closeBreakerStep,
		d.groupStep, d.requestStep, d.archiveStep}
}

func (d *duel) pick(of ...string) string { return of[d.rng.IntN(len(of))] }

func (d *duel) enqueueStep() string {
	s := d.spec(2)
	if d.rng.IntN(2) == 0 {
		s.RequestID = task.NewID(1, int64(d.Now)/1000-int64(d.rng.IntN(5000)), d.rng.Uint64()) // by producers' clocks
	}
	return d.enter(s)
}

// enter enqueues a task.
func (d *duel) enter(s task.Spec) string {
	t := d.m.taskOf(&s)
	outcome, other := d.m.enter(t)
	a, err := d.Enqueue(s)
	if outcome == schema.FollowerCreated && s.RequestID != (task.ID{}) {
		d.m.asked = append(d.m.asked, modelRequest{s, t})
	}
	return d.entered(t, outcome, other, a, err)
}

// requestStep repeats an enqueue.
func (d *duel) requestStep() string {
	if len(d.m.asked) == 0 {
		return "no request to repeat"
	}
	at := d.rng.IntN(len(d.m.asked))
	q := d.m.asked[at]
	if !d.m.remembers(q) {
		d.m.asked = slices.Delete(d.m.asked, at, at+1)
		return "forgotten request: " + d.enter(q.spec)
	}
	if a, err := d.Enqueue(q.spec); err != nil || !a.Duplicate || a.KeyTaken || a.ID != q.t.id || a.State != q.t.state ||
		a.CreatedAt != q.t.created {
		d.T.Fatalf("the repeat of a request got %+v (%v), the model has %+v", a, err, q.t)
	}
	if !slices.Contains(d.m.tasks, q.t) {
		return "repeated request of a forgotten task"
	}
	return "repeated request"
}

// archiveStep archives the dead letters whose retention is over.
func (d *duel) archiveStep() string {
	n := d.m.archive()
	views := query.ToArchive(d.Store, "default", math.MaxInt)
	for _, v := range views {
		d.Round(func(r *engine.Round) { engine.ForgetArchived(r, "default", v.ID, v.Exec.EndedAt) })
	}
	if len(views) != n {
		d.T.Fatalf("%d dead letters are due for the archive, the model has %d", len(views), n)
	}
	return "archive"
}

// spec returns a random task, with up to that many generations of follow-ups.
func (d *duel) spec(generations int) task.Spec {
	s := task.Spec{Type: d.pick("x", "y"), Queue: d.pick(d.queues...), Key: d.pick("", "k", "l", "m"), MaxAttempts: 1 + d.rng.IntN(4),
		Cost: d.rng.IntN(4), Priority: task.Priorities[d.rng.IntN(3)], Retry: &task.Retry{Initial: 7 * time.Second,
			Factor: 3, Max: time.Minute}}
	if d.rng.IntN(3) == 0 {
		s.Delay = time.Duration(d.rng.IntN(60)) * time.Second
	}
	if s.Queue == "c" || d.rng.IntN(4) == 0 {
		s.Unique = d.unique()
	}
	if d.rng.IntN(4) == 0 {
		s.ExpiresIn = time.Duration(1+d.rng.IntN(40))*time.Second + time.Millisecond // never when another deadline of the task is
		s.ExpiresAlways = d.rng.IntN(2) == 0
	}
	if d.rng.IntN(3) == 0 {
		keep := time.Duration(20_000+d.rng.IntN(60_000)) * time.Millisecond // longer than a passStep: see learn
		s.Retention = &keep
	}
	if generations > 0 {
		for range max(d.rng.IntN(4)-1, 0) {
			s.Then = append(s.Then, d.spec(generations-1))
		}
	}
	s.Fill()
	return s
}

// taskOf returns the initial task of a spec.
func (m *model) taskOf(s *task.Spec) *modelTask {
	t := &modelTask{queue: s.Queue, typ: s.Type, key: s.Key, priority: s.Priority, most: s.MaxAttempts, cost: max(s.Cost, 1),
		state: task.Scheduled, runAt: m.now.Add(s.Delay), unique: s.Unique, then: s.Then, created: m.now, retention: s.Retention}
	if s.ExpiresIn > 0 {
		t.expires, t.always = m.now.Add(s.ExpiresIn), s.ExpiresAlways
	}
	if s.Delay == 0 {
		m.ready(t)
	}
	return t
}

func (d *duel) claimStep() string {
	queue := d.pick(d.queues...)
	var types []string
	if d.rng.IntN(2) == 0 {
		types = []string{d.pick("x", "y", "z")}
	}
	lease := time.Duration(1+d.rng.IntN(40)) * time.Second
	var next task.ID
	known := d.AllRead(queue) && !d.m.late
	if known {
		next = d.explainAll(queue, types)
	}
	c := engine.ClaimRequest{Queues: []engine.Share{{Queue: queue}}, Types: types, Lease: lease, Worker: "w" + fmt.Sprint(d.rng.IntN(3)),
		ClaimKey: d.pick("", "i", "j", "k", "l"), Yields: d.rng.IntN(2) == 0}
	d.m.unread = !d.AllRead(queue)
	got := d.Claim(c)
	if again := d.m.again(c.ClaimKey); again != nil {
		if len(got) != 1 || got[0].ID != again.id || got[0].Token != d.tokens[again.id][again.fence-1] {
			d.T.Fatalf("the repeat of claim %q got %v, the model has %+v", c.ClaimKey, got, again)
		}
		return "repeated claim"
	}
	d.claimDiscards()
	first := d.m.claim(queue, types)
	if len(got) == 0 && !d.AllRead(queue) {
		return "claim while lanes are read"
	}
	weighted := d.m.rules[queue].Settings.Weighted()
	if known && !weighted && ((len(got) == 0) != (next == task.ID{}) || len(got) > 0 && got[0].ID != next) {
		d.T.Fatalf("the claim of %q got %v, but %s was explained as next", queue, got, next)
	}
	if len(first) == 0 && len(got) == 0 {
		return "claim of nothing"
	}
	var want *modelTask
	for _, t := range first {
		if len(got) > 0 && t.id == got[0].ID {
			want = t
		}
	}
	if want == nil {
		d.T.Fatalf("the claim of %q %v got %v, the model expects one of %v", queue, types, got, first)
	}
	if weighted {
		d.noteTurn(queue, types, first, want)
		d.seen["claim by weights"]++
	}
	d.m.probe(want)
	d.m.has(queue, "", want.cost)
	if want.key != "" {
		d.m.has(queue, want.key, want.cost)
	}
	want.state, want.until, want.worker = task.Claimed, d.Now.Add(lease), got[0].Exec.Claim.Worker
	want.yields = c.Yields && want.order != 0
	want.fence++
	if int(got[0].Exec.Fence) != want.fence || got[0].Exec.Attempt() != want.failures+want.crashes+1 {
		d.T.Fatalf("the claim has fence %d and attempt %d, the model has %+v", got[0].Exec.Fence, got[0].Exec.Attempt(), want)
	}
	d.tokens[want.id] = append(d.tokens[want.id], got[0].Token)
	if c.ClaimKey != "" {
		d.m.keys[c.ClaimKey] = modelClaim{want, want.fence, want.until}
	}
	return "claim"
}

// settleStep uses a random token of all that were ever issued.
func (d *duel) settleStep() string {
	t := d.any(func(t *modelTask) bool { return len(d.tokens[t.id]) > 0 })
	if t == nil {
		return "nothing to settle"
	}
	fence := 1 + d.rng.IntN(t.fence)
	if d.rng.IntN(3) > 0 {
		fence = t.fence
	}
	return d.settle(t, fence, d.pick("ack", "fail", "fail", "release", "snooze", "extend"))
}

// settle uses the token of one of a task's claims.
func (d *duel) settle(t *modelTask, fence int, verb string) string {
	hold := engine.Hold{Namespace: "default", ID: t.id, Token: d.tokens[t.id][fence-1]}
	holds := t.state == task.Claimed && fence == t.fence
	switch verb {
	case "extend":
		lease := time.Duration(1+d.rng.IntN(60)) * time.Second
		_, err := engine.Run(d.World, func(r *engine.Round) (store.Time, error) {
			return engine.Extend(r, hold, engine.Extension{Lease: lease})
		})
		if holds {
			t.until = max(t.until, d.Now.Add(lease))
		}
		return d.judge(verb, holds, false, err)
	case "ack":
		_, err := engine.Run(d.World, func(r *engine.Round) (engine.Settled, error) { return engine.Ack(r, hold, schema.Result{}) })
		repeated := t.state == task.Succeeded && fence == t.fence
		if holds {
			t.state = task.Succeeded
			d.m.passKey(t)
			d.m.judge(t, modelSuccess)
			d.addFollowers(t)
			d.m.updateGroup(t)
		}
		if repeated && err == nil && len(d.Last.Woken) > 0 {
			d.T.Fatalf("a repeated ack of %+v woke claims", t)
		}
		return d.judge(verb, holds, repeated, err)
	default:
		return d.giveBack(verb, hold, t, holds)
	}
}

// addFollowers adds the follow-ups of a task that has succeeded, and checks that each exists once and that there are no
// others. Those of a member are members.
func (d *duel) addFollowers(t *modelTask) {
	v, err := query.Show(d.Store, "default", t.id)
	if err != nil || len(v.Then) != len(t.then) {
		d.T.Fatalf("%d tasks follow %s, the model has %+v (%v)", len(v.Then), t.id, t, err)
	}
	var births []*modelTask
	t.group.join(func() {
		for i, f := range v.Then {
			next := d.m.taskOf(&t.then[i])
			next.group = t.group
			outcome, other := d.m.enter(next)
			if f.State != outcome || outcome == schema.FollowerDuplicate && f.ID != other.id {
				d.T.Fatalf("task %s has the follow-up %+v, the model has it %s by %+v", t.id, f, outcome, other)
			}
			t.group.note(next, outcome)
			if d.seen["chain: "+outcome.String()]++; outcome != schema.FollowerCreated {
				continue
			}
			next.id = f.ID
			births = append(births, next)
			if v, err := query.Show(d.Store, "default", f.ID); err != nil || v.Parent.ID != t.id {
				d.T.Fatalf("task %s has the follow-up %+v of %+v (%v)", t.id, f, v, err)
			}
		}
	})
	d.m.cancelLate(t.group, births)
}

func (d *duel) giveBack(verb string, hold engine.Hold, t *modelTask, holds bool) string {
	var out engine.Settled
	var err error
	delay := time.Duration(0)
	if verb == "fail" {
		out, err = engine.Run(d.World, func(r *engine.Round) (engine.Settled, error) { return engine.Fail(r, hold, engine.FailRequest{}) })
	} else {
		if verb == "snooze" {
			delay = 5 * time.Second
		}
		out, err = engine.Run(d.World, func(r *engine.Round) (engine.Settled, error) { return engine.Release(r, hold, delay) })
	}
	if !holds {
		return d.judge(verb, false, err == nil, err) // the stories check whether it is a repeat
	}
	switch {
	case verb == "release":
		t.state = task.Ready
	case verb == "snooze":
		t.state, t.runAt = task.Scheduled, d.Now.Add(delay)
	default:
		if t.failures++; t.used() >= t.most {
			t.state = task.Dead
		} else {
			t.state = task.Retrying
			t.runAt = d.Now.Add(task.Retry{Initial: 7 * time.Second, Factor: 3, Max: time.Minute}.Delay(t.used(), 0))
		}
	}
	d.m.moved(t)
	d.m.judge(t, map[bool]modelVerdict{true: modelFailure}[verb == "fail"])
	if err == nil && out.State != t.state {
		d.T.Fatalf("%s left the task %s, the model has %s", verb, out.State, t.state)
	}
	return d.judge(verb, true, false, err)
}

// judge compares the answer with what must be: accepted if the claim holds or the call is a repeat, else stale.
func (d *duel) judge(verb string, holds, repeated bool, err error) string {
	switch {
	case (holds || repeated) && err == nil:
		return verb
	case !holds && !repeated && errors.Is(err, task.ErrStaleClaim):
		return "stale " + verb
	}
	d.T.Fatalf("%s returned %v, but the claim holds: %t, a repeat: %t", verb, err, holds, repeated)
	return ""
}

func (d *duel) passStep() string {
	d.m.since = d.Now
	d.Pass(time.Duration(d.rng.IntN(20000)) * time.Millisecond)
	d.m.now = d.Now
	d.m.pass(d.Now)
	return "time"
}

func (d *duel) cancelStep() string {
	t := d.any(func(*modelTask) bool { return d.rng.IntN(4) == 0 })
	if t == nil {
		return "nothing to cancel"
	}
	err := d.operate(task.TaskCancelled, t, t.state != task.Cancelled, func(r *engine.Round) error {
		return engine.Cancel(r, "default", t.id)
	})
	switch {
	case t.state.Ended() && t.state != task.Cancelled:
		if e, ok := task.AsError(err); !ok || e.Code != task.CodeWrongState || e.State != t.state {
			d.T.Fatalf("cancelling a task that is %s: %v", t.state, err)
		}
		return "late cancel"
	case err != nil:
		d.T.Fatal(err)
	}
	d.m.cancel(t)
	return "cancel"
}

func (m *model) cancel(t *modelTask) {
	t.state = task.Cancelled
	m.moved(t)
	m.judgeIfProbe(t)
}

func (d *duel) retryStep() string {
	t := d.any(func(t *modelTask) bool { return t.state == task.Dead || t.state == task.Discarded })
	if t == nil {
		return "nothing to replay"
	}
	err := d.operate(task.TaskRetried, t, true, func(r *engine.Round) error { return engine.Retry(r, "default", t.id) })
	if t.unique != nil {
		if holder, _ := d.m.keyOf(t); holder != nil && holder != t {
			d.refused(err, task.ErrWrongState, holder)
			return "replay of a task whose key is taken"
		}
		t.holds = true
	}
	if err != nil {
		d.T.Fatal(err)
	}
	t.replayedAt, t.expires = t.failures+t.crashes, 0
	d.m.ready(t)
	return "replay"
}

func (d *duel) pauseStep() string {
	q := d.pick(d.queues...)
	c := d.m.rules[q]
	c.Paused = !c.Paused
	d.rule(q, c)
	return "pause"
}

// limitStep changes the rules of a queue, or drops them.
func (d *duel) limitStep() string {
	q := d.pick(d.queues...)
	c := task.QueueConfig{Settings: task.DefaultSettings(), Paused: d.m.rules[q].Paused}
	c.Settings.MaxRunning = max(d.rng.IntN(12)-4, 0)
	c.Settings.PerKey.MaxRunning = max(d.rng.IntN(5)-1, 0)
	rate := func(was task.Rate) (r task.Rate) {
		switch d.rng.IntN(4) {
		case 0:
			return was
		case 1:
			r = task.Rate{Limit: 1 + d.rng.IntN(5), Period: time.Duration(1+d.rng.IntN(90)) * time.Second, Burst: d.rng.IntN(4)}
		}
		return r
	}
	was := d.m.rules[q].Settings
	c.Settings.Rate, c.Settings.PerKey.Rate = rate(was.Rate), rate(was.PerKey.Rate)
	for _, key := range []string{"k", "l"} {
		if d.rng.IntN(2) == 0 {
			continue
		}
		if c.Settings.Keys == nil {
			c.Settings.Keys = map[string]task.KeyRules{}
		}
		c.Settings.Keys[key] = task.KeyRules{Rules: task.Rules{MaxRunning: d.rng.IntN(3), Rate: rate(was.RulesOf(key).Rate)},
			Weight: d.rng.IntN(3)}
	}
	if d.rng.IntN(2) == 0 {
		c.Settings.Weights = [3]int{1 + d.rng.IntN(9), 1 + d.rng.IntN(9), 1 + d.rng.IntN(9)}
	}
	d.breakerRules(&c.Settings)
	c.Settings.KeyOrder = was.KeyOrder
	if d.rng.IntN(3) == 0 {
		c.Settings.KeyOrder = d.keyOrder()
	}
	if d.rng.IntN(4) == 0 {
		c.Holds = append(c.Holds, task.Hold{Type: d.pick("x", "y")})
	}
	if d.rng.IntN(4) == 0 {
		c.Holds = append(c.Holds, task.Hold{Key: d.pick("k", "m")})
	}
	d.rule(q, c)
	return "limit"
}

func (d *duel) rule(q string, c task.QueueConfig) {
	if d.m.rules[q].Settings.Weights != c.Settings.Weights {
		maps.DeleteFunc(d.owed, func(name string, _ [3]int) bool { return strings.HasPrefix(name, q) })
	}
	d.m.rule(q, c)
	d.Configure(q, c)
}

func (d *duel) leaderStep() string {
	// The new leadership begins long ago, so that its grace for leases, which the stories show, plays no part here.
	d.BecomeLeader()
	clear(d.owed)
	d.Backdate(time.Hour)
	return "new leader"
}

func (d *duel) any(ok func(*modelTask) bool) *modelTask {
	for range 20 {
		if len(d.m.tasks) == 0 {
			return nil
		}
		if t := d.m.tasks[d.rng.IntN(len(d.m.tasks))]; ok(t) {
			return t
		}
	}
	return nil
}

// compare compares the engine's tasks and groups with the model's, and occasionally checks the tables.
func (d *duel) compare() error {
	if err := d.compareGroups(); err != nil {
		return err
	}
	execs := map[task.ID]*schema.Exec{}
	eachExec(d.World, func(id task.ID, x *schema.Exec) { execs[id] = x })
	if len(execs) != len(d.m.tasks) {
		return fmt.Errorf("%d tasks are there; the model has %d", len(execs), len(d.m.tasks))
	}
	for _, t := range d.m.tasks {
		x := execs[t.id]
		if x == nil {
			return fmt.Errorf("task %s is not there; the model has %+v", t.id, t)
		}
		if (x.Role == schema.RoleHolder) != t.holds || (x.Role == schema.RoleNext) != t.next {
			return fmt.Errorf("task %s has role %d in its unique key; the model has %+v", t.id, x.Role, t)
		}
		if x.State != t.state || int(x.Fence) != t.fence || x.Failures != t.failures || x.Crashes != t.crashes {
			return fmt.Errorf("task %s is %s, fence %d, failures %d, crashes %d; the model has %+v", t.id, x.State, x.Fence,
				x.Failures, x.Crashes, t)
		}
	}
	if err := d.compareBreakers(); err != nil {
		return err
	}
	if d.rng.IntN(10) == 0 {
		return d.Check()
	}
	return nil
}
