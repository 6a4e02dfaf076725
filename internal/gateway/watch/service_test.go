package watch

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
)

func TestRequestsAreChecked(t *testing.T) {
	f := newWorld(1)
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	for _, bad := range []*pawlv1.WatchEventsRequest{{Cursor: "x"}, {Cursor: apiproto.EncodeCursor(apiproto.EventCursor, []byte{1, 2})},
		{Kinds: []string{"x"}}, {TaskId: new("x")}, {Queue: new("a\x00b")}, {Type: new(strings.Repeat("x", 300))},
		{Digest: durationpb.New(minDigest - 1)}, {Digest: durationpb.New(maxDigest + 1)},
		{Digest: &durationpb.Duration{Seconds: 1, Nanos: -1}}, {Digest: durationpb.New(time.Millisecond)},
		{Digest: durationpb.New(time.Minute)}, {Digest: durationpb.New(-time.Second)}, {Digest: durationpb.New(time.Second),
			Cursor: apiproto.EncodeCursor(apiproto.EventCursor, []byte{})}} {
		w, err := f.newWatcher(ctx, bad)
		if err == nil {
			w.close()
		}
		if err == nil || bad.GetDigest().CheckValid() != nil && bad.Digest != nil && !strings.Contains(err.Error(), "is not a duration") {
			t.Errorf("%v was accepted, or refused with %v", bad, err)
		}
	}
	for _, d := range []time.Duration{minDigest, time.Second, maxDigest} {
		w, err := f.newWatcher(ctx, &pawlv1.WatchEventsRequest{Digest: durationpb.New(d)})
		if err != nil || w.digest != d || w.pulse == 0 {
			t.Fatalf("digest every %v: %+v, %v", d, w, err)
		}
		w.close()
	}
}

// A namespace gets at most half of a node's event streams.
func TestNamespacesShareStreams(t *testing.T) {
	f := newWorld(1)
	var open []*watcher
	watch := func(ns string) error {
		ctx, c := callinfo.Begin(context.Background(), "grpc", "test")
		c.Namespace = ns
		w, err := f.newWatcher(ctx, &pawlv1.WatchEventsRequest{})
		if err == nil {
			open = append(open, w)
		}
		return err
	}
	for _, ns := range []string{"a", "b"} {
		for range MaxStreams / 2 {
			if err := watch(ns); err != nil {
				t.Fatal(err)
			}
		}
		if err := watch(ns); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("namespace %q has 500 streams", ns)) {
			t.Errorf("namespace %s, one stream over its limit: %v", ns, err)
		}
	}
	if err := watch("c"); err == nil || !strings.Contains(err.Error(), "1000 streams of events are open at this node") {
		t.Errorf("one stream over the node's limit: %v", err)
	}
	for _, w := range open {
		w.close()
	}
	if n := f.Streams.InUse(); n != 0 {
		t.Errorf("%d streams are still counted after all were closed", n)
	}
}

// A digest that is refused has no interval.
func TestRefusedDigests(t *testing.T) {
	for what, r := range map[string]*pawlv1.WatchEventsRequest{
		"too short":     {Digest: durationpb.New(1)},
		"broken":        {Digest: &durationpb.Duration{Seconds: 1, Nanos: -1}},
		"with a cursor": {Digest: durationpb.New(time.Second), Cursor: "x"},
	} {
		if d, err := digestOf(r); err == nil || d != 0 {
			t.Errorf("%s: %v, %v; want 0 and an error", what, d, err)
		}
	}
}

// These limits are part of what callers rely on, or bound what a node uses. Changing one must be deliberate.
func TestLimitsAreStable(t *testing.T) {
	for what, c := range map[string][2]int{"streams": {MaxStreams, 1000}, "the system shard": {systemShard, 0}} {
		if c[0] != c[1] {
			t.Errorf("limit of %s = %d, want %d", what, c[0], c[1])
		}
	}
}

// A caller is refused the events of a queue beyond its token. Without a queue it gets those of its own.
func TestScope(t *testing.T) {
	f := newWorld(1)
	ctx, c := callinfo.Begin(task.WithScope(t.Context(), task.Scope{Queues: []string{"mail*"}}), "grpc", "test")
	c.Principal = callinfo.Principal{Principal: auth.Anonymous}
	for queue, allowed := range map[string]bool{"": true, "mail-1": true, "pay": false} {
		w, err := f.newWatcher(ctx, &pawlv1.WatchEventsRequest{Queue: new(queue)})
		if err == nil {
			w.close()
		}
		if (err == nil) != allowed {
			t.Errorf("queue %q: %v", queue, err)
		}
	}
}

// Every part of a request, and what the caller may see, reaches the shards that are asked.
func TestFilterOfARequest(t *testing.T) {
	id := task.NewID(1, 2, 3)
	scope := task.Scope{Queues: []string{"mail*"}}
	ctx, c := callinfo.Begin(task.WithScope(t.Context(), scope), "grpc", "test")
	c.Namespace, c.Began = "team", time.Unix(7, 0)
	want := events.Filter{Namespace: "team", Since: c.Began, Queue: "mail", Type: "send", Task: id, Kinds: []events.Kind{"task.*",
		"queue.paused"}, Scope: scope}
	for field, value := range reflect.ValueOf(want).Fields() {
		if value.IsZero() {
			t.Errorf("the test does not cover %s", field.Name)
		}
	}
	w, err := newWorld(1).newWatcher(ctx, &pawlv1.WatchEventsRequest{Queue: new("mail"), Type: new("send"), TaskId: new(id.String()),
		Kinds: []string{"task.*", "queue.paused"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if got := w.query(events.Place{}, 0).Filter; !reflect.DeepEqual(got, want) {
		t.Errorf("shards are asked for %+v, want %+v", got, want)
	}
}

// grpcStream is a stream of gRPC whose caller is gone after the first frame.
type grpcStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s grpcStream) Context() context.Context               { return s.ctx }
func (s grpcStream) Send(*pawlv1.WatchEventsResponse) error { return errPlanted }

func TestGRPC(t *testing.T) {
	ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
	if err := newWorld(1).WatchEvents(&pawlv1.WatchEventsRequest{}, grpcStream{ctx: ctx}); err != errPlanted {
		t.Errorf("WatchEvents returned %v, want what Send returned", err)
	}
}

// A stream is counted once its request has been accepted, before its first frame.
func TestStreamsAreCounted(t *testing.T) {
	f, m := newWorld(1), &meter{}
	f.Observer = callinfo.NewObserver(m, nil)
	for _, c := range []struct {
		request *pawlv1.WatchEventsRequest
		want    string
	}{
		{&pawlv1.WatchEventsRequest{Cursor: "x"}, "0 streams"},
		{&pawlv1.WatchEventsRequest{}, "0 streams, open, 1 streams, frame"},
	} {
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		got := fmt.Sprintf("%d streams", m.streams)
		err := f.Watch(ctx, c.request, func() { got += fmt.Sprintf(", open, %d streams", m.streams) },
			func(*pawlv1.WatchEventsResponse) error {
				got += ", frame"
				return errPlanted
			})
		if err == nil || got != c.want {
			t.Errorf("%v: %s, %v; want %s", c.request, got, err, c.want)
		}
	}
}
