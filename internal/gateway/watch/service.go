package watch

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// MaxStreams bounds the event streams of a node. A namespace may have half of them.
	MaxStreams = 1000
	// minDigest and maxDigest bound the interval of a digest.
	minDigest = 100 * time.Millisecond
	maxDigest = 10 * time.Second
)

// Source is where the events of all shards come from, whichever node leads them.
type Source interface {
	// Events returns what happened in a shard after a place, waiting for it. The system shard has the events of queues.
	Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error)
}

// Service implements EventService.
type Service struct {
	pawlv1.UnimplementedEventServiceServer
	Source   Source
	Broker   interface{ Draining() <-chan struct{} } // closed when the node shuts down
	Cluster  interface{ Shards() []uint32 }
	Limits   task.Limits
	Streams  *admission.Slots // one for each open stream
	Observer callinfo.Observer
	Log      *slog.Logger
}

// WatchEvents implements EventService.
func (g *Service) WatchEvents(r *pawlv1.WatchEventsRequest, s grpc.ServerStreamingServer[pawlv1.WatchEventsResponse]) error {
	return g.Watch(s.Context(), r, func() {}, s.Send)
}

// Watch streams events. It calls open once the request has been validated, and send for each frame.
func (g *Service) Watch(ctx context.Context, r *pawlv1.WatchEventsRequest, open func(),
	send func(*pawlv1.WatchEventsResponse) error) error {
	w, err := g.newWatcher(ctx, r)
	if err != nil {
		return err
	}
	defer w.close()
	g.Observer.Streams(callinfo.Of(ctx))
	open()
	if err := w.run(send); err != nil {
		return err
	}
	return task.Unavailable(0, "the server is shutting down")
}

// digestOf returns the interval of a digest; 0: the stream is not a digest.
func digestOf(r *pawlv1.WatchEventsRequest) (time.Duration, error) {
	if r.GetDigest() == nil {
		return 0, nil
	}
	d, err := apiproto.SpanOf("digest", r.GetDigest())
	switch {
	case err != nil:
		return 0, err
	case d < minDigest || d > maxDigest:
		return 0, task.Invalid("digest", "%s is not between %s and %s", humanize.DurationText(d), humanize.DurationText(minDigest),
			humanize.DurationText(maxDigest))
	case r.GetCursor() != "":
		return 0, task.Invalid("cursor", "a digest has none: it covers what happens from now on")
	}
	return d, nil
}

// filterOf reads and checks which events a request asks for.
func filterOf(ctx context.Context, r *pawlv1.WatchEventsRequest, l task.Limits) (f events.Filter, err error) {
	f = events.Filter{Namespace: callinfo.Namespace(ctx), Since: callinfo.Of(ctx).Began, Queue: r.GetQueue(), Type: r.GetType(),
		Scope: task.ScopeOf(ctx)}
	for _, n := range []struct{ field, value string }{{"queue", f.Queue}, {"type", f.Type}} {
		if err := task.CheckName(n.field, n.value, l); err != nil {
			return f, err
		}
	}
	if f.Queue != "" {
		if err := callinfo.MayUse(ctx, f.Queue); err != nil {
			return f, err
		}
	}
	if f.Task, err = apiproto.OptionalID("task_id", r.GetTaskId()); err != nil {
		return f, err
	}
	for _, k := range r.GetKinds() {
		f.Kinds = append(f.Kinds, events.Kind(k))
	}
	return f, events.CheckKinds("kind", f.Kinds)
}

// placesOf reads a cursor. Without one it returns nil.
func placesOf(cursor string) (events.Places, error) {
	at, err := apiproto.DecodeCursor(apiproto.EventCursor, cursor)
	if at == nil || err != nil {
		return nil, err
	}
	places, err := events.DecodePlaces(at)
	if err != nil {
		return nil, apiproto.BadCursor(cursor)
	}
	return places, nil
}
