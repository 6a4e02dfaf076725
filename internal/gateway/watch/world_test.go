package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/watch/watchtest"
	"github.com/pawlq/pawl/internal/task"
)

var errPlanted = errors.New("planted")

// world is a service whose events are in rings.
type world struct {
	Service
	rings    *watchtest.Rings
	shards   *shards
	draining chan struct{}
}

func newWorld(numbers ...uint32) *world {
	f := &world{rings: watchtest.NewRings(), shards: &shards{all: numbers}, draining: make(chan struct{})}
	f.Service = Service{Source: f.rings, Broker: f, Cluster: f.shards, Limits: task.DefaultLimits(),
		Streams: admission.NewSlots(MaxStreams), Observer: callinfo.NewObserver(&meter{}, nil), Log: slog.New(slog.DiscardHandler)}
	return f
}

// meter counts streams.
type meter struct {
	callinfo.Meter
	streams int
}

// Streams implements callinfo.Meter.
func (m *meter) Streams(_, _ string, by int) { m.streams += by }

// Draining is closed when the node shuts down.
func (f *world) Draining() <-chan struct{} { return f.draining }

// shards are the shards of a cluster.
type shards struct {
	mu  sync.Mutex
	all []uint32
}

func (s *shards) set(numbers ...uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = numbers
}

// Shards returns their numbers.
func (s *shards) Shards() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// stream is an open stream of events.
type stream struct {
	t      *testing.T
	cancel context.CancelFunc
	frames chan *pawlv1.WatchEventsResponse
	ended  chan struct{}
	events []*pawlv1.Event // received, but not returned yet
	cursor string          // behind the last event
}

// subscribe opens a stream and reads its first frame.
func (f *world) subscribe(t *testing.T, r *pawlv1.WatchEventsRequest) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{t: t, cancel: cancel, frames: make(chan *pawlv1.WatchEventsResponse), ended: make(chan struct{})}
	ctx, _ = callinfo.Begin(ctx, "grpc", "test")
	go func() {
		defer close(s.ended)
		_ = f.Watch(ctx, r, func() {}, func(frame *pawlv1.WatchEventsResponse) error {
			select {
			case s.frames <- frame:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	if got := s.next(); got != "" {
		t.Fatalf("the first frame has %q, want no event", got)
	}
	synctest.Wait() // until it asks for events, so that it does not get earlier ones
	return s
}

// next returns the next event: its kind, shard and queue; "" for a frame without events, "end" at the end.
func (s *stream) next() string {
	if len(s.events) == 0 {
		select {
		case frame := <-s.frames:
			s.events, s.cursor = frame.GetEvents(), frame.GetCursor()
		case <-s.ended:
			return "end"
		}
		if len(s.events) == 0 {
			return ""
		}
	}
	e := s.events[0]
	s.events, s.cursor = s.events[1:], e.GetCursor()
	return strings.TrimSpace(fmt.Sprintf("%s %d %s", e.GetKind(), e.GetShard(), e.GetQueue()))
}

func (s *stream) expect(what string, want ...string) {
	s.t.Helper()
	for _, w := range want {
		if got := s.next(); got != w {
			s.t.Errorf("%s: %q, want %q", what, got, w)
		}
	}
}

func (s *stream) end() {
	s.cancel()
	<-s.ended
}
