package admin

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Subset names tasks of a queue: those of one type or of one key.
type Subset struct {
	Type string
	Key  string
}

// check refuses what would pause or resume the whole queue.
func (s Subset) check() error {
	if s.Type == "" && s.Key == "" {
		return convert.Invalid("type", "is empty, and so is the key: Pause and Resume are for the whole queue")
	}
	return nil
}

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
	having, err := convert.Number[pawlv1.QueueTrait]("having", f.Having, queueTraitWords, "one of dead, poisoned, paused and no_worker")
	if err != nil {
		return pawltype.Page[*Queue]{}, fmt.Errorf("list queues: %w", err)
	}
	req := &pawlv1.ListQueuesRequest{Limit: convert.Int32(page.Limit), Cursor: page.Cursor, Series: convert.Duration(f.Series),
		Pattern: convert.Text(f.Pattern), Having: having}
	if f.Most {
		req.Order = pawlv1.QueueOrder_QUEUE_ORDER_MOST
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).ListQueues, req)
	return pageOf(queueOf, resp, err, "list queues")
}

// Get returns a queue, or ErrNotFound if there is none.
func (a Queues) Get(ctx context.Context, name string) (*Queue, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).GetQueue, &pawlv1.GetQueueRequest{Queue: name})
	return queueAnswer("queue", name, resp.GetQueue(), err)
}

// Put replaces the settings of a queue, creating it if necessary.
func (a Queues) Put(ctx context.Context, name string, settings QueueSettings) (*Queue, error) {
	set, err := settings.checked()
	if err != nil {
		return nil, fmt.Errorf("put queue %q: %w", name, err)
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).PutQueue, &pawlv1.PutQueueRequest{Queue: name,
		Settings: set})
	return queueAnswer("put queue", name, resp.GetQueue(), err)
}

// PutIfVersion is Put if the settings still have this version, and returns ErrConflict otherwise, so that concurrent changes are not lost.
func (a Queues) PutIfVersion(ctx context.Context, name string, version int64, settings QueueSettings) (*Queue, error) {
	set, err := settings.checked()
	if err != nil {
		return nil, fmt.Errorf("put queue %q: %w", name, err)
	}
	req := &pawlv1.PutQueueRequest{Queue: name, Settings: set, IfVersion: &version}
	resp, err := operate(ctx, a.calls, false, pawlv1.NewOperatorServiceClient(a.rpc).PutQueue, req)
	return queueAnswer("put queue", name, resp.GetQueue(), err)
}

// Delete removes an empty queue. If the queue has tasks, Delete returns ErrWrongState.
func (a Queues) Delete(ctx context.Context, name string) error {
	_, err := operate(ctx, a.calls, false, pawlv1.NewOperatorServiceClient(a.rpc).DeleteQueue, &pawlv1.DeleteQueueRequest{
		Queue: name})
	return wrap(err, "delete queue %q", name)
}

// Pause stops claims from a queue. New tasks are still accepted, and running tasks continue.
func (a Queues) Pause(ctx context.Context, name string) (*Queue, error) {
	return a.pause(ctx, name, Subset{})
}

// PauseSubset is Pause for the tasks of one type or one key, which must not be empty.
func (a Queues) PauseSubset(ctx context.Context, queue string, of Subset) (*Queue, error) {
	if err := of.check(); err != nil {
		return nil, fmt.Errorf("pause queue %q: %w", queue, err)
	}
	return a.pause(ctx, queue, of)
}

func (a Queues) pause(ctx context.Context, queue string, of Subset) (*Queue, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).PauseQueue,
		&pawlv1.PauseQueueRequest{Queue: queue, Type: convert.Text(of.Type), Key: convert.Text(of.Key)})
	return queueAnswer("pause queue", queue, resp.GetQueue(), err)
}

// Resume ends the pause of a queue. It is not an error if the queue is not paused.
func (a Queues) Resume(ctx context.Context, name string) (*Queue, error) {
	return a.resume(ctx, name, Subset{})
}

// ResumeSubset ends the pause of one type or one key, which must not be empty.
func (a Queues) ResumeSubset(ctx context.Context, queue string, of Subset) (*Queue, error) {
	if err := of.check(); err != nil {
		return nil, fmt.Errorf("resume queue %q: %w", queue, err)
	}
	return a.resume(ctx, queue, of)
}

func (a Queues) resume(ctx context.Context, queue string, of Subset) (*Queue, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).ResumeQueue,
		&pawlv1.ResumeQueueRequest{Queue: queue, Type: convert.Text(of.Type), Key: convert.Text(of.Key)})
	return queueAnswer("resume queue", queue, resp.GetQueue(), err)
}

// Spread spreads a queue over shards, or moves it, when it outgrows one shard. Some guarantees then hold only within a
// key, no longer across keys: see docs/scaling.md. Tasks whose key, unique key and idempotency key are in different
// slots are refused from then on. When Spread returns, new tasks go to the new shards; existing tasks stay where they
// are and drain. ErrWrongState means that other queues are in the way, or that there are tasks that would be refused.
// After ErrUnavailable, the move may have started and will continue.
func (a Queues) Spread(ctx context.Context, name string, onto SpreadOptions) (*Queue, error) {
	req := onto.message()
	req.Queue = name
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).SpreadQueue, req)
	return queueAnswer("spread queue", name, resp.GetQueue(), err)
}

// Purge discards the tasks that wait in a queue and returns how many. It does not erase them.
func (a Queues) Purge(ctx context.Context, name string) (discarded int64, err error) {
	resp, err := operate(ctx, a.calls, false, pawlv1.NewOperatorServiceClient(a.rpc).PurgeQueue, &pawlv1.PurgeQueueRequest{
		Queue: name})
	if err != nil {
		return 0, fmt.Errorf("purge queue %q: %w", name, err)
	}
	return resp.GetDiscarded(), nil
}

func queueAnswer(verb, name string, p *pawlv1.Queue, err error) (*Queue, error) {
	return answer(queueOf, p, err, "%s %q", verb, name)
}

// checked rejects unknown words, because the protocol has numbers for the known ones only.
func (s QueueSettings) checked() (out *pawlv1.QueueSettings, err error) {
	out = s.message()
	out.KeyOrder, err = convert.Number[pawlv1.KeyOrder]("settings.key_order", s.KeyOrder, keyOrderWords, "one of none, strict")
	return out, err
}

// QueueLimits limit what a queue, or a key within it, runs. Tasks beyond the limits wait, use no attempts, and are overtaken by others.
type QueueLimits struct {
	MaxRunning int // tasks claimed at the same time, of a queue in all shards together; 0: no limit
	Rate       RateLimit
}

func queueLimitsOf(p interface {
	GetMaxRunning() int32
	GetRate() *pawlv1.Rate
}) QueueLimits {
	return QueueLimits{MaxRunning: int(p.GetMaxRunning()), Rate: rateLimitOf(p.GetRate())}
}

func (l QueueLimits) message() *pawlv1.KeyRules { return KeyLimits{QueueLimits: l}.message() }

func shardsOf(numbers []int) []uint32 {
	return each(numbers, func(n int) uint32 { return uint32(max(convert.Int32(n), 0)) }) // #nosec G115 -- not negative
}
