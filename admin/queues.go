package admin

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// QueueSettings holds the settings of a queue. In responses every field has its effective value; in Put, a zero field means the default.
type QueueSettings struct {
	Weights     *PriorityWeights // nil: strict order of priorities
	Retry       pawltype.RetryPolicy
	MaxAttempts int           // default 5
	Lease       time.Duration // default 30 s
	Timeout     time.Duration // of one run; default: none
	Retention   Retention
	MaxWait     time.Duration        // a task that is ready for longer needs attention; 1 s to 365 days; default 5 min
	MaxLength   int64                // maximum number of waiting tasks, in all shards together; 0: no limit
	KeyOrder    KeyOrder             // for tasks enqueued from now on; "": KeyOrderNone, but a FIFO queue of Amazon SQS keeps its order
	QueueLimits                      // for the queue as a whole
	PerKey      QueueLimits          // for the tasks of each key
	Keys        map[string]KeyLimits // for single keys, instead of PerKey; at most 1,000
	Breaker     *Breaker             // for each type; nil: none
	Breakers    map[string]Breaker   // for single types, instead of Breaker; at most 1,000
}

// KeyOrder is the order in which a queue runs the tasks of one key.
type KeyOrder string

const (
	KeyOrderNone   KeyOrder = "none"   // first come, first served, several at the same time; a task that waits for a retry is overtaken
	KeyOrderStrict KeyOrder = "strict" // as enqueued: each task starts only when all earlier ones have ended, including their retries
)

// check rejects unknown values, because the protocol has numbers for the known ones only.
func (o KeyOrder) check() error {
	if o != "" && o != KeyOrderNone && o != KeyOrderStrict {
		return convert.Invalid("settings.key_order", "%q is not one of none, strict", string(o))
	}
	return nil
}

func (o KeyOrder) proto() pawlv1.KeyOrder {
	switch o {
	case KeyOrderNone:
		return pawlv1.KeyOrder_KEY_ORDER_NONE
	case KeyOrderStrict:
		return pawlv1.KeyOrder_KEY_ORDER_STRICT
	}
	return pawlv1.KeyOrder_KEY_ORDER_UNSPECIFIED
}

// QueueLimits limit what a queue, or a key within it, runs. Tasks beyond the limits wait, use no attempts, and are overtaken by others.
type QueueLimits struct {
	MaxRunning int // tasks claimed at the same time, of a queue in all shards together; 0: no limit
	Rate       RateLimit
}

// RateLimit is a token bucket: a task starts when the bucket has at least one token, and takes as many as it costs (see pawl.Cost), even if
// that leaves a debt. The zero value means no limit.
type RateLimit struct {
	Limit  int           // tokens per Period, 1 to 1,000,000
	Period time.Duration // 1 s to 24 h
	Burst  int           // most tokens the bucket holds; 0: Limit
}

// KeyLimits are the limits of a key, and its weight among other keys.
type KeyLimits struct {
	QueueLimits
	Weight int // 1 to 1,000; 0: 1
}

// PausedSubset is a pause of a queue's tasks of one type or one key.
type PausedSubset struct {
	Type, Key string // one of them
	Reason    string
	By        string // as given by the caller; "": unknown; set in responses only
	At        time.Time
}

// check refuses what would pause or resume the whole queue.
func (s PausedSubset) check() error {
	if s.Type == "" && s.Key == "" {
		return convert.Invalid("type", "is empty, and so is the key: Pause and Resume are for the whole queue")
	}
	return nil
}

// PriorityWeights divides claims among the priorities that have tasks. Each weight is 1 to 1,000.
type PriorityWeights struct{ High, Normal, Low int }

// Retention is how long ended tasks are kept, by end state.
type Retention struct {
	Succeeded time.Duration // default 24 h
	Discarded time.Duration // default 24 h
	Cancelled time.Duration // default 24 h
	Dead      time.Duration // default 14 days
	Poisoned  time.Duration // default 14 days
}

// Queue is everything the broker knows about a queue.
type Queue struct {
	Name            string
	Paused          bool
	PausedReason    string
	PausedBy        string // as given by the caller; "": unknown
	PausedAt        time.Time
	PausedSubsets   []PausedSubset  // types and keys that are paused separately
	Breakers        []BreakerStatus // up to 100 that are not closed, the longest open first
	BreakersOpen    int             // how many are not closed
	Depth           Depth
	ReadyByPriority ReadyByPriority
	OldestReady     time.Duration // how long the oldest ready task has been ready
	// Recent activity, set by Get and List but not by calls that change the queue.
	Rates     *QueueRates    // in the last minute; nil: not reported
	Wait      Latency        // from ready to claimed, in the last 5 minutes
	Run       Latency        // from claimed to the end of the run, in the last 5 minutes
	Drain     *time.Duration // until no task is ready, at the rates of the last minute; nil: the ready tasks do not become fewer
	Workers   *int           // that take its tasks, without quiet and draining ones; nil: not reported
	Series    *QueueSeries   // set by List; nil: not requested
	Settings  QueueSettings
	Version   int64 // of the settings; grows with every change
	CreatedAt time.Time
	Parts     []QueuePart // of a spread queue: its part in each shard
	// Missing are the shards and nodes whose part of the numbers is missing.
	Missing []pawltype.Missing
}

// QueuePart is the part of a queue in one shard.
type QueuePart struct {
	Shard     int
	Slots     int  // how many of the queue's 64 slots send their new tasks here; 0: the part is draining
	Moving    bool // slots are moving to or from this shard
	Exclusive bool // no other queue uses the shard
	Depth     Depth
}

// Depth counts the tasks of a queue by state.
type Depth struct {
	Scheduled, Ready, Claimed, Retrying int64
	Held                                int64 // ready tasks that can't run now
	Dead, Poisoned                      int64
}

// ReadyByPriority counts the ready tasks of a queue by priority.
type ReadyByPriority struct{ High, Normal, Low int64 }

// List iterates over the queues that a filter selects, by name unless the filter says otherwise. Queue.Missing says which shards and nodes
// the numbers of a queue lack. If the numbers decide which queues are listed, as with QueueFilter.Most, and some are missing, List ends
// with a pawltype.IncompleteError after the queues that it found.
func (a Queues) List(ctx context.Context, f QueueFilter) iter.Seq2[*Queue, error] {
	list := convert.Figures[*Queue]
	if f.byNumbers() {
		list = convert.Pages[*Queue]
	}
	return list(func(cursor string) (pawltype.Page[*Queue], error) {
		return a.ListPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// QueueTrait is a property by which queues can be filtered.
type QueueTrait string

// The traits of queues. All but QueuePaused may be some seconds out of date.
const (
	QueueDead     QueueTrait = "dead"      // has dead letters
	QueuePoisoned QueueTrait = "poisoned"  // has poisoned tasks
	QueuePaused   QueueTrait = "paused"    // is paused, or one of its types or keys is
	QueueNoWorker QueueTrait = "no_worker" // has ready tasks that no worker takes
)

// queueTraits lists the traits by their number in the protocol.
var queueTraits = []QueueTrait{"", QueueDead, QueuePoisoned, QueuePaused, QueueNoWorker}

// QueueFilter says which queues to list, and in which order.
type QueueFilter struct {
	Pattern string     // of names, in which * matches any characters; "": all
	Having  QueueTrait // "": any
	// Most sorts by the number of dead, poisoned or ready tasks, according to Having, or else by unfinished tasks, largest
	// first; the list then has one page. Otherwise queues are sorted by name.
	Most   bool
	Series time.Duration // include each queue's series of 2 minutes, 5 minutes, 1 hour or 24 hours; 0: none
}

// byNumbers reports whether the numbers of queues decide which of them are listed.
func (f QueueFilter) byNumbers() bool { return f.Most || f.Having != "" && f.Having != QueuePaused }

// ListPage returns one page of queues.
func (a Queues) ListPage(ctx context.Context, f QueueFilter, page pawltype.PageRequest) (pawltype.Page[*Queue], error) {
	trait := slices.Index(queueTraits, f.Having)
	if trait < 0 {
		return pawltype.Page[*Queue]{}, fmt.Errorf("list queues: %w", convert.Invalid("having",
			"%q is not one of dead, poisoned, paused and no_worker", f.Having))
	}
	req := &pawlv1.ListQueuesRequest{Limit: convert.Int32(page.Limit), Cursor: page.Cursor, Series: convert.Duration(f.Series),
		Pattern: convert.Text(f.Pattern), Having: pawlv1.QueueTrait(trait)}
	if f.Most {
		req.Order = pawlv1.QueueOrder_QUEUE_ORDER_MOST
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).ListQueues, req)
	if err != nil {
		return pawltype.Page[*Queue]{}, fmt.Errorf("list queues: %w", err)
	}
	return convert.Page(resp, queueOf), nil
}

// Get returns a queue, or ErrNotFound if there is none.
func (a Queues) Get(ctx context.Context, name string) (*Queue, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).GetQueue, &pawlv1.GetQueueRequest{Queue: name})
	return queueAnswer("queue", name, resp.GetQueue(), err)
}

// Put replaces the settings of a queue, creating it if necessary.
func (a Queues) Put(ctx context.Context, name string, settings QueueSettings) (*Queue, error) {
	if err := settings.KeyOrder.check(); err != nil {
		return nil, fmt.Errorf("put queue %q: %w", name, err)
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).PutQueue, &pawlv1.PutQueueRequest{Queue: name,
		Settings: settings.proto()})
	return queueAnswer("put queue", name, resp.GetQueue(), err)
}

// PutIfVersion is Put if the settings still have this version, and returns ErrConflict otherwise, so that concurrent changes are not lost.
func (a Queues) PutIfVersion(ctx context.Context, name string, version int64, settings QueueSettings) (*Queue, error) {
	if err := settings.KeyOrder.check(); err != nil {
		return nil, fmt.Errorf("put queue %q: %w", name, err)
	}
	req := &pawlv1.PutQueueRequest{Queue: name, Settings: settings.proto(), IfVersion: &version}
	resp, err := operate(ctx, a.calls, false, pawlv1.NewOperatorServiceClient(a.rpc).PutQueue, req)
	return queueAnswer("put queue", name, resp.GetQueue(), err)
}

// Delete removes an empty queue. If the queue has tasks, Delete returns ErrWrongState.
func (a Queues) Delete(ctx context.Context, name string) error {
	if _, err := operate(ctx, a.calls, false, pawlv1.NewOperatorServiceClient(a.rpc).DeleteQueue, &pawlv1.DeleteQueueRequest{
		Queue: name}); err != nil {
		return fmt.Errorf("delete queue %q: %w", name, err)
	}
	return nil
}

// Pause stops claims from a queue. New tasks are still accepted, and running tasks continue.
func (a Queues) Pause(ctx context.Context, name, reason string) (*Queue, error) {
	return a.pause(ctx, name, PausedSubset{Reason: reason})
}

// PauseSubset is Pause for the tasks of one type or one key, which must not be empty.
func (a Queues) PauseSubset(ctx context.Context, queue string, of PausedSubset) (*Queue, error) {
	if err := of.check(); err != nil {
		return nil, fmt.Errorf("pause queue %q: %w", queue, err)
	}
	return a.pause(ctx, queue, of)
}

func (a Queues) pause(ctx context.Context, queue string, of PausedSubset) (*Queue, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).PauseQueue,
		&pawlv1.PauseQueueRequest{Queue: queue, Reason: of.Reason, Type: convert.Text(of.Type), Key: convert.Text(of.Key)})
	return queueAnswer("pause queue", queue, resp.GetQueue(), err)
}

// Resume ends the pause of a queue. It is not an error if the queue is not paused.
func (a Queues) Resume(ctx context.Context, name, reason string) (*Queue, error) {
	return a.resume(ctx, name, PausedSubset{Reason: reason})
}

// ResumeSubset ends the pause of one type or one key, which must not be empty.
func (a Queues) ResumeSubset(ctx context.Context, queue string, of PausedSubset) (*Queue, error) {
	if err := of.check(); err != nil {
		return nil, fmt.Errorf("resume queue %q: %w", queue, err)
	}
	return a.resume(ctx, queue, of)
}

func (a Queues) resume(ctx context.Context, queue string, of PausedSubset) (*Queue, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).ResumeQueue,
		&pawlv1.ResumeQueueRequest{Queue: queue, Reason: of.Reason, Type: convert.Text(of.Type), Key: convert.Text(of.Key)})
	return queueAnswer("resume queue", queue, resp.GetQueue(), err)
}

// SpreadOptions says over which shards to spread a queue: either Shards, or as many shards as Parts says.
type SpreadOptions struct {
	Parts  int   // first the shards that have the queue, then those with the fewest other queues
	Shards []int // shard numbers
	// Exclusive reserves these shards: no other queue may be in them, and new queues go elsewhere. A Spread without it ends the reservation.
	Exclusive bool
	// DryRun changes nothing, and returns the queue as it would be.
	DryRun bool
	// Force spreads the queue although it has tasks whose key, unique key and idempotency key are in different slots.
	Force bool
}

// Spread spreads a queue over shards, or moves it, when it outgrows one shard. Some guarantees then hold only within a
// key, no longer across keys: see docs/scaling.md. Tasks whose key, unique key and idempotency key are in different
// slots are refused from then on. When Spread returns, new tasks go to the new shards; existing tasks stay where they
// are and drain. ErrWrongState means that other queues are in the way, or that there are tasks that would be refused.
// After ErrUnavailable, the move may have started and will continue.
func (a Queues) Spread(ctx context.Context, name string, onto SpreadOptions, reason string) (*Queue, error) {
	req := &pawlv1.SpreadQueueRequest{Queue: name, Parts: convert.Int32(onto.Parts), Own: onto.Exclusive, DryRun: onto.DryRun,
		Force: onto.Force, Reason: reason}
	for _, shard := range onto.Shards {
		req.Shards = append(req.Shards, uint32(max(convert.Int32(shard), 0))) // #nosec G115 -- not negative
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).SpreadQueue, req)
	return queueAnswer("spread queue", name, resp.GetQueue(), err)
}

// Purge discards the tasks that wait in a queue and returns how many. It does not erase them.
func (a Queues) Purge(ctx context.Context, name, reason string) (discarded int64, err error) {
	resp, err := operate(ctx, a.calls, false, pawlv1.NewOperatorServiceClient(a.rpc).PurgeQueue, &pawlv1.PurgeQueueRequest{
		Queue: name, Reason: reason})
	if err != nil {
		return 0, fmt.Errorf("purge queue %q: %w", name, err)
	}
	return resp.GetDiscarded(), nil
}

func queueAnswer(verb, name string, p *pawlv1.Queue, err error) (*Queue, error) {
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", verb, name, err)
	}
	return queueOf(p), nil
}

func (s QueueSettings) proto() *pawlv1.QueueSettings {
	out := &pawlv1.QueueSettings{
		Retry: convert.RetryPolicyProto(s.Retry), MaxAttempts: convert.Int32(s.MaxAttempts),
		Lease: convert.Duration(s.Lease), Timeout: convert.Duration(s.Timeout), MaxLength: s.MaxLength, MaxWait: convert.Duration(s.MaxWait),
		KeyOrder: s.KeyOrder.proto(),
		Retention: &pawlv1.Retention{
			Succeeded: convert.Duration(s.Retention.Succeeded), Discarded: convert.Duration(s.Retention.Discarded),
			Cancelled: convert.Duration(s.Retention.Cancelled), Dead: convert.Duration(s.Retention.Dead),
			Poisoned: convert.Duration(s.Retention.Poisoned),
		},
	}
	out.MaxRunning, out.Rate = s.QueueLimits.proto()
	if s.PerKey != (QueueLimits{}) {
		out.PerKey = KeyLimits{QueueLimits: s.PerKey}.proto()
	}
	for key, rules := range s.Keys {
		if out.Keys == nil {
			out.Keys = map[string]*pawlv1.KeyRules{}
		}
		out.Keys[key] = rules.proto()
	}
	s.setBreakers(out)
	if w := s.Weights; w != nil {
		out.Weights = &pawlv1.PriorityWeights{High: convert.Int32(w.High), Normal: convert.Int32(w.Normal), Low: convert.Int32(w.Low)}
	}
	return out
}

func (l QueueLimits) proto() (running int32, rate *pawlv1.Rate) {
	if r := l.Rate; r != (RateLimit{}) {
		rate = &pawlv1.Rate{Limit: convert.Int32(r.Limit), Period: durationpb.New(r.Period), Burst: convert.Int32(r.Burst)}
	}
	return convert.Int32(l.MaxRunning), rate
}

func (k KeyLimits) proto() *pawlv1.KeyRules {
	running, rate := k.QueueLimits.proto()
	return &pawlv1.KeyRules{MaxRunning: running, Rate: rate, Weight: convert.Int32(k.Weight)}
}

func limitsOf(running int32, p *pawlv1.Rate) QueueLimits {
	return QueueLimits{MaxRunning: int(running), Rate: RateLimit{Limit: int(p.GetLimit()), Period: p.GetPeriod().AsDuration(),
		Burst: int(p.GetBurst())}}
}

func settingsOf(p *pawlv1.QueueSettings) QueueSettings {
	r := p.GetRetention()
	out := QueueSettings{
		Retry: convert.RetryPolicy(p.GetRetry()), MaxAttempts: int(p.GetMaxAttempts()),
		Lease: p.GetLease().AsDuration(), Timeout: p.GetTimeout().AsDuration(), MaxLength: p.GetMaxLength(), MaxWait: p.GetMaxWait().AsDuration(),
		Retention: Retention{
			Succeeded: r.GetSucceeded().AsDuration(), Discarded: r.GetDiscarded().AsDuration(), Cancelled: r.GetCancelled().AsDuration(),
			Dead: r.GetDead().AsDuration(), Poisoned: r.GetPoisoned().AsDuration(),
		},
	}
	out.QueueLimits = limitsOf(p.GetMaxRunning(), p.GetRate())
	out.PerKey = limitsOf(p.GetPerKey().GetMaxRunning(), p.GetPerKey().GetRate())
	for key, rules := range p.GetKeys() {
		if out.Keys == nil {
			out.Keys = map[string]KeyLimits{}
		}
		out.Keys[key] = KeyLimits{QueueLimits: limitsOf(rules.GetMaxRunning(), rules.GetRate()), Weight: int(rules.GetWeight())}
	}
	if p.GetKeyOrder() == pawlv1.KeyOrder_KEY_ORDER_STRICT {
		out.KeyOrder = KeyOrderStrict
	}
	out.readBreakers(p)
	if w := p.GetWeights(); w != nil {
		out.Weights = &PriorityWeights{High: int(w.GetHigh()), Normal: int(w.GetNormal()), Low: int(w.GetLow())}
	}
	return out
}

func queueOf(p *pawlv1.Queue) *Queue {
	if p == nil {
		return nil
	}
	r := p.GetReadyByPriority()
	q := &Queue{
		Name: p.GetQueue(), Paused: p.GetPaused(), PausedReason: p.GetPausedReason(), PausedBy: p.GetPausedBy(),
		PausedAt: convert.Time(p.GetPausedAt()), Depth: depthOf(p.GetDepth()),
		ReadyByPriority: ReadyByPriority{High: r.GetHigh(), Normal: r.GetNormal(), Low: r.GetLow()},
		OldestReady:     time.Duration(p.GetOldestReadyAgeSeconds() * float64(time.Second)),
		Settings:        settingsOf(p.GetSettings()), Version: p.GetVersion(), CreatedAt: convert.Time(p.GetCreatedAt()),
	}
	for _, h := range p.GetHolds() {
		q.PausedSubsets = append(q.PausedSubsets, PausedSubset{Type: h.GetType(), Key: h.GetKey(), Reason: h.GetReason(), By: h.GetBy(),
			At: convert.Time(h.GetAt())})
	}
	if r := p.GetRates(); r != nil {
		q.Rates = &QueueRates{In: r.GetIn(), Out: r.GetOut(), Failed: r.GetFailed()}
		q.Wait, q.Run = latencyOf(p.GetWait()), latencyOf(p.GetRun())
	}
	if p.DrainSeconds != nil {
		drain := convert.Seconds(p.GetDrainSeconds())
		q.Drain = &drain
	}
	if p.Workers != nil {
		workers := int(p.GetWorkers())
		q.Workers = &workers
	}
	q.Series = queueSeriesOf(p.GetSeries())
	q.BreakersOpen = int(p.GetBreakersOpen())
	q.Missing = convert.Missing(p.GetMissing())
	for _, b := range p.GetBreakers() {
		q.Breakers = append(q.Breakers, breakerStatusOf(b))
	}
	for _, part := range p.GetParts() {
		q.Parts = append(q.Parts, QueuePart{Shard: int(part.GetShard()), Slots: int(part.GetSlots()), Moving: part.GetMoving(),
			Exclusive: part.GetOwn(), Depth: depthOf(part.GetDepth())})
	}
	return q
}

func depthOf(d *pawlv1.Depth) Depth {
	return Depth{Scheduled: d.GetScheduled(), Ready: d.GetReady(), Claimed: d.GetClaimed(), Retrying: d.GetRetrying(), Held: d.GetHeld(),
		Dead: d.GetDead(), Poisoned: d.GetPoisoned()}
}
