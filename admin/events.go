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

// EventKind is what happened; docs/events.md lists all kinds.
type EventKind string

// The kinds of task events, and those that concern no single task or queue.
const (
	EventEnqueued  EventKind = "task.enqueued"
	EventClaimed   EventKind = "task.claimed"
	EventSucceeded EventKind = "task.succeeded"
	EventFailed    EventKind = "task.failed" // an attempt failed; another event for the task follows
	EventLeaseLost EventKind = "task.lease_lost"
	EventReleased  EventKind = "task.released" // or snoozed
	EventRetrying  EventKind = "task.retrying"
	EventDead      EventKind = "task.dead"
	EventPoisoned  EventKind = "task.poisoned"
	EventDiscarded EventKind = "task.discarded"
	EventCancelled EventKind = "task.cancelled"
	EventReplayed  EventKind = "task.replayed"
	// EventReset says that earlier events of the shard may be missing: read the state again. From here on, the stream is complete again.
	EventReset EventKind = "reset"
	// EventChanged says only that something happened: see EventFilter.Digest.
	EventChanged EventKind = "changed"
)

// eventSilence is how long a stream may be silent before it is reopened. The server sends a frame at least every 15 s.
const eventSilence = 45 * time.Second

// Events iterates over events from now on, or after a cursor, until ctx ends; the last error is then that of ctx. The events of one shard
// come in order. A stream that breaks is reopened after the last event. A reader that is too slow gets a reset in place of what it missed.
// Other errors end the iteration immediately: the filter is invalid, or the caller may not read events.
func (a Client) Events(ctx context.Context, f EventFilter) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		req := f.message()
		missed := false
		for try := 0; ; try++ {
			began := time.Now()
			err := a.watch(ctx, req, missed, yield)
			missed = f.Digest > 0 // nothing stores what happens in between for a digest
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

// errEnough means that the caller's loop has ended.
var errEnough = errors.New("enough")

// watch reads one stream and keeps the cursor in req. With missed, the first frame is preceded by a reset.
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
			if !yield(new(eventOf(p)), nil) {
				return errEnough
			}
			req.Cursor = p.GetCursor()
		}
		req.Cursor = frame.GetCursor()
		silent.Reset(eventSilence)
	}
}
