package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// EventKind is what happened; docs/events.md has them all.
type EventKind string

// The kinds of events of tasks, and the one that comes from no task or queue.
const (
	EventEnqueued  EventKind = "task.enqueued"
	EventClaimed   EventKind = "task.claimed"
	EventSucceeded EventKind = "task.succeeded"
	EventFailed    EventKind = "task.failed" // an attempt; what becomes of the task follows
	EventLeaseLost EventKind = "task.lease_lost"
	EventReleased  EventKind = "task.released" // or snoozed
	EventRetrying  EventKind = "task.retrying"
	EventDead      EventKind = "task.dead"
	EventPoisoned  EventKind = "task.poisoned"
	EventDiscarded EventKind = "task.discarded"
	EventCancelled EventKind = "task.cancelled"
	EventReplayed  EventKind = "task.replayed"
	// EventReset says that what happened before in the event's shard is not all known: look at the state afresh. What follows is
	// whole again.
	EventReset EventKind = "reset"
	// EventChanged says that something happened: see EventFilter.Digest.
	EventChanged EventKind = "changed"
)

// EventFilter selects events. Fields that are set must all match; a reset comes in any case.
type EventFilter struct {
	Queue  string
	Type   string // of the task
	TaskID string
	Kinds  []EventKind // any of these, at most 32; "task.*" is all of a sort
	// After is the Cursor of the last event that was seen, of an earlier stream: "" is from now on. A server keeps what happens for
	// minutes, and not over a change of leaders: beyond that there is a reset.
	After string
	// Digest asks only whether something happens: instead of events come some of kind "changed", of a shard at most one in so much time,
	// 100 ms to 10 s. Whatever happens, it costs the server next to nothing. There is no After then: after a break the stream begins with
	// a reset. 0: events are told.
	Digest time.Duration
}

// Event is something that happened. Fields that make no sense for its kind are zero.
type Event struct {
	Kind        EventKind
	Time        time.Time
	Queue       string
	Type        string // of a task, or of a breaker
	TaskID      string
	State       pawltype.State // that the task came to
	Attempt     int
	Worker      string
	Reason      string
	Error       string // of a failed attempt, up to 256 bytes
	Name        string // of a schedule
	OperationID string
	Count       int64  // ticks that a schedule missed
	Shard       uint32 // 0: the system shard, which tells of queues
	Index       uint64 // of the entry in the shard's log
	Cursor      string // behind the event: see EventFilter.After
}

// eventSilence is how long a stream may say nothing: the server says something every 15 s.
const eventSilence = 45 * time.Second

// Events goes over what happens from now on, or behind a cursor, until ctx ends, which is its last error. Events of one shard come in
// the order in which it was. A stream that breaks is opened anew behind the last event. Who is too slow for what happens gets a reset
// for what was missed. Other errors end it at once: the filter is wrong, or the caller may not read events.
func (a Client) Events(ctx context.Context, f EventFilter) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		req := &pawlv1.WatchEventsRequest{Queue: f.Queue, Type: f.Type, TaskId: f.TaskID, Cursor: f.After, Digest: convert.Duration(f.Digest)}
		for _, k := range f.Kinds {
			req.Kinds = append(req.Kinds, string(k))
		}
		missed := false
		for try := 0; ; try++ {
			began := time.Now()
			err := a.watch(ctx, req, missed, yield)
			missed = f.Digest > 0 // nobody keeps for it what happens in between
			switch {
			case errors.Is(err, errEnough):
				return
			case ctx.Err() != nil:
				yield(nil, ctx.Err())
				return
			case rpc.Final(err) || errors.Is(err, pawltype.ErrWrongState):
				yield(nil, fmt.Errorf("events: %w", err))
				return
			}
			if time.Since(began) > rpc.Steady {
				try = 0
			}
			rpc.Sleep(ctx, nil, max(rpc.Backoff(try, rpc.FirstReconnect, rpc.MaxReconnect), min(convert.RetryAfter(err), rpc.MaxReconnect)))
		}
	}
}

// errEnough: the caller's loop has ended.
var errEnough = errors.New("enough")

// watch reads one stream, and keeps the cursor in the request. What was missed before is told as a reset.
func (a calls) watch(ctx context.Context, req *pawlv1.WatchEventsRequest, missed bool, yield func(*Event, error) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(eventSilence, cancel)
	defer silent.Stop()
	ctx, err := a.acting(ctx)
	if err != nil {
		return err
	}
	stream, err := pawlv1.NewEventServiceClient(a.rpc).WatchEvents(ctx, req)
	if err != nil {
		return a.rpc.Failed(convert.CallError(ctx, err))
	}
	for {
		frame, err := stream.Recv()
		if err != nil {
			return a.rpc.Failed(convert.CallError(ctx, err))
		}
		silent.Stop() // the caller may take its time
		if missed && !yield(&Event{Kind: EventReset}, nil) {
			return errEnough
		}
		missed = false
		for _, p := range frame.GetEvents() {
			if !yield(eventOf(p), nil) {
				return errEnough
			}
			req.Cursor = p.GetCursor()
		}
		req.Cursor = frame.GetCursor()
		silent.Reset(eventSilence)
	}
}

func eventOf(p *pawlv1.Event) *Event {
	return &Event{Kind: EventKind(p.GetKind()), Time: convert.Time(p.GetTime()), Queue: p.GetQueue(), Type: p.GetType(), TaskID: p.GetTaskId(), State: convert.State(p.GetState()),
		Attempt: int(p.GetAttempt()), Worker: p.GetWorker(), Reason: p.GetReason(), Error: p.GetError(), Name: p.GetName(), OperationID: p.GetOperationId(),
		Count: p.GetCount(), Shard: p.GetShard(), Index: p.GetIndex(), Cursor: p.GetCursor()}
}
