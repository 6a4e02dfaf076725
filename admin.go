package pawl

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Admin are the operator's calls: queues, dead letters, single tasks, the server, the cluster.
type Admin struct {
	client        *Client
	actor, reason string
}

// Admin gives the operator's calls, in the name of WithActor, for the reason of WithReason.
func (c *Client) Admin() Admin { return Admin{client: c, actor: c.actor, reason: c.reason} }

// QueueSettings are the rules of a queue. In answers every field has its effective value; in PutQueue a zero field means the default.
type QueueSettings struct {
	Weights     *PriorityWeights // nil: strict order of priorities
	Retry       RetryPolicy
	MaxAttempts int           // default 5
	Lease       time.Duration // default 30 s
	Timeout     time.Duration // of one run; default: none
	Keep        Keep
	MaxWait     time.Duration       // a task that is ready for longer needs attention: 1 s to 365 days; default 5 min
	MaxLength   int64               // waiting tasks at most; 0: no limit
	Limits                          // of the queue as a whole
	PerKey      Limits              // of the tasks of each key
	Keys        map[string]KeyRules // of single keys, instead of PerKey; at most 1,000
	Breaker     *Breaker            // of each type; nil: none
	Breakers    map[string]Breaker  // of single types, instead of Breaker; at most 1,000
}

// Limits bound what a queue, or a key within it, runs. Tasks beyond them wait, use no attempt, and let others go past.
type Limits struct {
	MaxRunning int // tasks that are claimed at once; 0: no limit
	Rate       Rate
}

// Rate is a token bucket: a task starts when it holds a token, and takes as many as it costs (see Cost), even if that makes a
// debt. The zero value is no limit.
type Rate struct {
	Limit  int           // tokens that come in a period: 1 to 1,000,000
	Period time.Duration // 1 s to 24 h
	Burst  int           // tokens that there can be; 0: Limit
}

// KeyRules are the limits of a key, and its share against other keys.
type KeyRules struct {
	Limits
	Weight int // 1 to 1,000; 0: 1
}

// Hold is a pause of all tasks of a type, or of a key, in a queue.
type Hold struct {
	Type, Key string // one of them
	Reason    string
	By        string // as they called themselves; "": not known. Only in answers
	At        time.Time
}

// PriorityWeights shares claims among the priorities that have tasks, each 1 to 1,000.
type PriorityWeights struct{ High, Normal, Low int }

// Keep is how long tasks that have ended are kept, by how they ended.
type Keep struct {
	Succeeded time.Duration // default 24 h
	Discarded time.Duration // default 24 h
	Cancelled time.Duration // default 24 h
	Dead      time.Duration // default 14 days
	Poisoned  time.Duration // default 14 days
}

// QueueInfo is everything the broker knows of a queue.
type QueueInfo struct {
	Name            string
	Paused          bool
	PausedReason    string
	PausedBy        string // as they called themselves; "": not known
	PausedAt        time.Time
	Holds           []Hold          // types and keys that are paused alone
	Breakers        []BreakerStatus // those that are not closed, up to 100, the longest open first
	BreakersOpen    int             // how many are not closed
	Depth           Depth
	ReadyByPriority ReadyByPriority
	OldestReady     time.Duration // how long the oldest ready task has been ready
	// What happened lately: of Queue and Queues, not of calls that change something.
	Rates     *QueueRates    // of the last minute; nil: not told
	Wait      Latency        // from ready to claimed, in the last 5 minutes
	Run       Latency        // from claimed to the end of the run, in the last 5 minutes
	Drain     *time.Duration // until no task is ready or claimed, at the present rates; nil: they do not get less
	Workers   *int           // that take its tasks: not those that are quiet or drain; nil: not told
	Series    *QueueSeries   // of QueuesWhere; nil: not asked for
	Settings  QueueSettings
	Version   int64 // of the settings: grows with each change
	CreatedAt time.Time
	Parts     []QueuePart // of a queue that was shared out: what it has in each shard
}

// QueuePart is what a queue has in one shard.
type QueuePart struct {
	Shard  int
	Slots  int  // of the queue's 64: those whose new tasks go there; 0: it only drains
	Moving bool // slots are on their way to it or from it
	Own    bool // no other queue lies in the shard
	Depth  Depth
}

// Depth counts the tasks of a queue by state.
type Depth struct {
	Scheduled, Ready, Claimed, Retrying int64
	Held                                int64 // of the ready: may not run now
	Dead, Poisoned                      int64
}

// ReadyByPriority counts the ready tasks.
type ReadyByPriority struct{ High, Normal, Low int64 }

// Queues goes over all queues by name.
func (a Admin) Queues(ctx context.Context) iter.Seq2[*QueueInfo, error] {
	return pages(func(cursor string) (Page[*QueueInfo], error) {
		return a.QueuesPage(ctx, PageRequest{Cursor: cursor})
	})
}

// QueuesPage gives one page of the queues.
func (a Admin) QueuesPage(ctx context.Context, page PageRequest) (Page[*QueueInfo], error) {
	return a.QueuesWhere(ctx, QueueFilter{}, page)
}

// QueueTrait is something that a queue has or not.
type QueueTrait string

// Traits of queues. What is told of the first, the second and the last may be some seconds old.
const (
	QueueDead     QueueTrait = "dead"      // it has dead letters
	QueuePoisoned QueueTrait = "poisoned"  // it has poisoned tasks
	QueuePaused   QueueTrait = "paused"    // it is paused, or a type or a key in it
	QueueNoWorker QueueTrait = "no_worker" // it has ready tasks, and no worker takes them
)

// queueTraits are by their numbers in the protocol.
var queueTraits = []QueueTrait{"", QueueDead, QueuePoisoned, QueuePaused, QueueNoWorker}

// QueueFilter says which queues a list has, and what of them.
type QueueFilter struct {
	Pattern string     // a name, in which each * stands for any characters; "": all
	Having  QueueTrait // "": whatever they have
	// Most lists those first that have the most dead, poisoned or ready tasks, as Having says, or else most to do; otherwise they are
	// in the order of their names. Such a list has one page.
	Most   bool
	Series time.Duration // each queue has its series of 2 or 5 minutes, an hour or 24; 0: none
}

// QueuesWhere gives one page of some queues.
func (a Admin) QueuesWhere(ctx context.Context, f QueueFilter, page PageRequest) (Page[*QueueInfo], error) {
	trait := slices.Index(queueTraits, f.Having)
	if trait < 0 {
		return Page[*QueueInfo]{}, fmt.Errorf("list queues: %w", invalid("having", "%q is none of dead, poisoned, paused and no_worker", f.Having))
	}
	req := &pawlv1.ListQueuesRequest{Limit: clampInt32(page.Limit), Cursor: page.Cursor, Series: durationOrNil(f.Series), Pattern: f.Pattern, Having: pawlv1.QueueTrait(trait)}
	if f.Most {
		req.Order = pawlv1.QueueOrder_QUEUE_ORDER_MOST
	}
	resp, err := operate(ctx, a, true, a.client.operator.ListQueues, req)
	if err != nil {
		return Page[*QueueInfo]{}, fmt.Errorf("list queues: %w", err)
	}
	return pageOf(resp, queueOf), nil
}

// Queue gives one queue, or ErrNotFound.
func (a Admin) Queue(ctx context.Context, name string) (*QueueInfo, error) {
	resp, err := operate(ctx, a, true, a.client.operator.GetQueue, &pawlv1.GetQueueRequest{Queue: name})
	return queueAnswer("queue", name, resp.GetQueue(), err)
}

// PutQueue replaces the settings of a queue, creating it if need be.
func (a Admin) PutQueue(ctx context.Context, name string, settings QueueSettings) (*QueueInfo, error) {
	resp, err := operate(ctx, a, true, a.client.operator.PutQueue, &pawlv1.PutQueueRequest{Queue: name, Settings: settings.proto()})
	return queueAnswer("put queue", name, resp.GetQueue(), err)
}

// PutQueueIf is PutQueue if the settings still have this version, and ErrConflict otherwise: nobody's change gets lost.
func (a Admin) PutQueueIf(ctx context.Context, name string, version int64, settings QueueSettings) (*QueueInfo, error) {
	req := &pawlv1.PutQueueRequest{Queue: name, Settings: settings.proto(), IfVersion: &version}
	resp, err := operate(ctx, a, false, a.client.operator.PutQueue, req)
	return queueAnswer("put queue", name, resp.GetQueue(), err)
}

// DeleteQueue removes an empty queue; one with tasks is ErrWrongState.
func (a Admin) DeleteQueue(ctx context.Context, name string) error {
	if _, err := operate(ctx, a, false, a.client.operator.DeleteQueue, &pawlv1.DeleteQueueRequest{Queue: name}); err != nil {
		return fmt.Errorf("delete queue %q: %w", name, err)
	}
	return nil
}

// PauseQueue stops claims from a queue; tasks are still accepted, and those that run go on.
func (a Admin) PauseQueue(ctx context.Context, name, reason string) (*QueueInfo, error) {
	return a.Pause(ctx, name, Hold{Reason: reason})
}

// Pause is PauseQueue for the tasks of one type, or of one key.
func (a Admin) Pause(ctx context.Context, queue string, of Hold) (*QueueInfo, error) {
	resp, err := operate(ctx, a, true, a.client.operator.PauseQueue,
		&pawlv1.PauseQueueRequest{Queue: queue, Reason: of.Reason, Type: of.Type, Key: of.Key})
	return queueAnswer("pause queue", queue, resp.GetQueue(), err)
}

// ResumeQueue ends the pause of a queue. If there is none, that is no error.
func (a Admin) ResumeQueue(ctx context.Context, name, reason string) (*QueueInfo, error) {
	return a.Resume(ctx, name, Hold{Reason: reason})
}

// Resume ends the pause of one type, or of one key.
func (a Admin) Resume(ctx context.Context, queue string, of Hold) (*QueueInfo, error) {
	resp, err := operate(ctx, a, true, a.client.operator.ResumeQueue,
		&pawlv1.ResumeQueueRequest{Queue: queue, Reason: of.Reason, Type: of.Type, Key: of.Key})
	return queueAnswer("resume queue", queue, resp.GetQueue(), err)
}

// Onto says over which shards a queue is shared out: Shards, or as many as Parts says.
type Onto struct {
	Parts  int   // those that have the queue, then those that have least of others
	Shards []int // by their numbers
	// Own: no other queue may be in these shards, and none that is new goes there. SpreadQueue without Own ends that.
	Own bool
}

// SpreadQueue shares a queue out over shards, or moves it. One shard can carry only so much; what the queue then promises
// within a key, and no more across keys, is in docs/scaling.md. New tasks go to their new shards when it returns; those that are
// there stay and drain. ErrWrongState says that other queues are in the way. After ErrUnavailable the move may have begun, and
// goes on.
func (a Admin) SpreadQueue(ctx context.Context, name string, onto Onto, reason string) (*QueueInfo, error) {
	req := &pawlv1.SpreadQueueRequest{Queue: name, Parts: clampInt32(onto.Parts), Own: onto.Own, Reason: reason}
	for _, shard := range onto.Shards {
		req.Shards = append(req.Shards, uint32(max(clampInt32(shard), 0))) // #nosec G115 -- not negative
	}
	resp, err := operate(ctx, a, true, a.client.operator.SpreadQueue, req)
	return queueAnswer("spread queue", name, resp.GetQueue(), err)
}

// PurgeQueue discards the tasks that wait in a queue and says how many; it doesn't erase them.
func (a Admin) PurgeQueue(ctx context.Context, name, reason string) (discarded int64, err error) {
	resp, err := operate(ctx, a, false, a.client.operator.PurgeQueue, &pawlv1.PurgeQueueRequest{Queue: name, Reason: reason})
	if err != nil {
		return 0, fmt.Errorf("purge queue %q: %w", name, err)
	}
	return resp.GetDiscarded(), nil
}

// RetryTask makes a retrying or ended task ready now, with fresh attempts if it had ended. A succeeded one is ErrWrongState.
func (a Admin) RetryTask(ctx context.Context, id string) (*TaskInfo, error) {
	resp, err := operate(ctx, a, false, a.client.operator.RetryTask, &pawlv1.RetryTaskRequest{TaskId: id})
	return taskAnswer("retry", id, resp.GetTask(), err)
}

// RunTaskNow makes a scheduled or retrying task ready now.
func (a Admin) RunTaskNow(ctx context.Context, id string) (*TaskInfo, error) {
	resp, err := operate(ctx, a, false, a.client.operator.RunTaskNow, &pawlv1.RunTaskNowRequest{TaskId: id})
	return taskAnswer("run now", id, resp.GetTask(), err)
}

// DiscardTask ends a task that waits, or drops a dead letter.
func (a Admin) DiscardTask(ctx context.Context, id, reason string) (*TaskInfo, error) {
	resp, err := operate(ctx, a, false, a.client.operator.DiscardTask, &pawlv1.DiscardTaskRequest{TaskId: id, Reason: reason})
	return taskAnswer("discard", id, resp.GetTask(), err)
}

// ServerInfo is who answers.
type ServerInfo struct {
	Version   string
	ClusterID string
	Node      string
	Now       time.Time // by the clock of its system shard
	Shards    []ShardInfo
}

// ShardInfo is one shard as the server sees it.
type ShardInfo struct {
	Shard  uint32
	Leader string // node; "" if there is none
	Index  uint64 // applied
	Term   uint64
}

// Server tells who answers.
func (a Admin) Server(ctx context.Context) (*ServerInfo, error) {
	resp, err := operate(ctx, a, true, a.client.operator.GetServer, &pawlv1.GetServerRequest{})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	out := &ServerInfo{Version: resp.GetVersion(), ClusterID: resp.GetClusterId(), Node: resp.GetNode(), Now: timeOf(resp.GetNow())}
	for _, p := range resp.GetShards() {
		out.Shards = append(out.Shards, ShardInfo{Shard: p.GetShard(), Leader: p.GetLeader(), Index: p.GetIndex(), Term: p.GetTerm()})
	}
	return out, nil
}

func queueAnswer(verb, name string, p *pawlv1.Queue, err error) (*QueueInfo, error) {
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", verb, name, err)
	}
	return queueOf(p), nil
}

func taskAnswer(verb, id string, p *pawlv1.Task, err error) (*TaskInfo, error) {
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", verb, id, err)
	}
	return infoOf(p), nil
}

func (s QueueSettings) proto() *pawlv1.QueueSettings {
	out := &pawlv1.QueueSettings{
		Retry: s.Retry.proto(), MaxAttempts: clampInt32(s.MaxAttempts),
		Lease: durationOrNil(s.Lease), Timeout: durationOrNil(s.Timeout), MaxLength: s.MaxLength, MaxWait: durationOrNil(s.MaxWait),
		Retention: &pawlv1.Retention{
			Succeeded: durationOrNil(s.Keep.Succeeded), Discarded: durationOrNil(s.Keep.Discarded), Cancelled: durationOrNil(s.Keep.Cancelled),
			Dead: durationOrNil(s.Keep.Dead), Poisoned: durationOrNil(s.Keep.Poisoned),
		},
	}
	out.MaxRunning, out.Rate = s.Limits.proto()
	if s.PerKey != (Limits{}) {
		out.PerKey = KeyRules{Limits: s.PerKey}.proto()
	}
	for key, rules := range s.Keys {
		if out.Keys == nil {
			out.Keys = map[string]*pawlv1.KeyRules{}
		}
		out.Keys[key] = rules.proto()
	}
	s.setBreakers(out)
	if w := s.Weights; w != nil {
		out.Weights = &pawlv1.PriorityWeights{High: clampInt32(w.High), Normal: clampInt32(w.Normal), Low: clampInt32(w.Low)}
	}
	return out
}

func (l Limits) proto() (running int32, rate *pawlv1.Rate) {
	if r := l.Rate; r != (Rate{}) {
		rate = &pawlv1.Rate{Limit: clampInt32(r.Limit), Period: durationpb.New(r.Period), Burst: clampInt32(r.Burst)}
	}
	return clampInt32(l.MaxRunning), rate
}

func (k KeyRules) proto() *pawlv1.KeyRules {
	running, rate := k.Limits.proto()
	return &pawlv1.KeyRules{MaxRunning: running, Rate: rate, Weight: clampInt32(k.Weight)}
}

func limitsOf(running int32, p *pawlv1.Rate) Limits {
	l := Limits{MaxRunning: int(running)}
	if p != nil {
		l.Rate = Rate{Limit: int(p.GetLimit()), Period: p.GetPeriod().AsDuration(), Burst: int(p.GetBurst())}
	}
	return l
}

func settingsOf(p *pawlv1.QueueSettings) QueueSettings {
	r := p.GetRetention()
	out := QueueSettings{
		Retry: retryPolicyOf(p.GetRetry()), MaxAttempts: int(p.GetMaxAttempts()),
		Lease: p.GetLease().AsDuration(), Timeout: p.GetTimeout().AsDuration(), MaxLength: p.GetMaxLength(), MaxWait: p.GetMaxWait().AsDuration(),
		Keep: Keep{
			Succeeded: r.GetSucceeded().AsDuration(), Discarded: r.GetDiscarded().AsDuration(), Cancelled: r.GetCancelled().AsDuration(),
			Dead: r.GetDead().AsDuration(), Poisoned: r.GetPoisoned().AsDuration(),
		},
	}
	out.Limits = limitsOf(p.GetMaxRunning(), p.GetRate())
	out.PerKey = limitsOf(p.GetPerKey().GetMaxRunning(), p.GetPerKey().GetRate())
	for key, rules := range p.GetKeys() {
		if out.Keys == nil {
			out.Keys = map[string]KeyRules{}
		}
		out.Keys[key] = KeyRules{Limits: limitsOf(rules.GetMaxRunning(), rules.GetRate()), Weight: int(rules.GetWeight())}
	}
	out.readBreakers(p)
	if w := p.GetWeights(); w != nil {
		out.Weights = &PriorityWeights{High: int(w.GetHigh()), Normal: int(w.GetNormal()), Low: int(w.GetLow())}
	}
	return out
}

func queueOf(p *pawlv1.Queue) *QueueInfo {
	if p == nil {
		return nil
	}
	r := p.GetReadyByPriority()
	q := &QueueInfo{
		Name: p.GetQueue(), Paused: p.GetPaused(), PausedReason: p.GetPausedReason(), PausedBy: p.GetPausedBy(), PausedAt: timeOf(p.GetPausedAt()),
		Depth:           depthOf(p.GetDepth()),
		ReadyByPriority: ReadyByPriority{High: r.GetHigh(), Normal: r.GetNormal(), Low: r.GetLow()},
		OldestReady:     time.Duration(p.GetOldestReadyAgeSeconds() * float64(time.Second)),
		Settings:        settingsOf(p.GetSettings()), Version: p.GetVersion(), CreatedAt: timeOf(p.GetCreatedAt()),
	}
	for _, h := range p.GetHolds() {
		q.Holds = append(q.Holds, Hold{Type: h.GetType(), Key: h.GetKey(), Reason: h.GetReason(), By: h.GetBy(), At: timeOf(h.GetAt())})
	}
	if r := p.GetRates(); r != nil {
		q.Rates = &QueueRates{In: r.GetIn(), Out: r.GetOut(), Failed: r.GetFailed()}
		q.Wait, q.Run = latencyOf(p.GetWait()), latencyOf(p.GetRun())
	}
	if p.DrainSeconds != nil {
		drain := secondsOf(p.GetDrainSeconds())
		q.Drain = &drain
	}
	if p.Workers != nil {
		workers := int(p.GetWorkers())
		q.Workers = &workers
	}
	q.Series = queueSeriesOf(p.GetSeries())
	q.BreakersOpen = int(p.GetBreakersOpen())
	for _, b := range p.GetBreakers() {
		q.Breakers = append(q.Breakers, breakerStatusOf(b))
	}
	for _, part := range p.GetParts() {
		q.Parts = append(q.Parts, QueuePart{Shard: int(part.GetShard()), Slots: int(part.GetSlots()), Moving: part.GetMoving(), Own: part.GetOwn(),
			Depth: depthOf(part.GetDepth())})
	}
	return q
}

func depthOf(d *pawlv1.Depth) Depth {
	return Depth{Scheduled: d.GetScheduled(), Ready: d.GetReady(), Claimed: d.GetClaimed(), Retrying: d.GetRetrying(), Held: d.GetHeld(),
		Dead: d.GetDead(), Poisoned: d.GetPoisoned()}
}
