package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/gateway/administration"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/convert"
	"github.com/pawlq/pawl/internal/task"
)

// fakeEvents has a ring of events for each shard.
type fakeEvents struct {
	mu    sync.Mutex
	rings map[uint32]*events.Ring
	index uint64
	dark  map[uint32]bool // shards that don't answer
}

func newFakeEvents() *fakeEvents {
	return &fakeEvents{rings: map[uint32]*events.Ring{}, dark: map[uint32]bool{}}
}

func (f *fakeEvents) ring(shard uint32) *events.Ring {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rings[shard] == nil {
		f.rings[shard] = &events.Ring{}
		f.rings[shard].Open()
	}
	return f.rings[shard]
}

func (f *fakeEvents) setDark(shard uint32, dark bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dark[shard] = dark
}

func (f *fakeEvents) Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error) {
	r := f.ring(shard)
	f.mu.Lock()
	dark := f.dark[shard]
	f.mu.Unlock()
	if dark {
		return events.Page{}, task.Unavailable(0, "dark")
	}
	return r.Read(ctx, q)
}

// happen adds an event for each queue to a shard.
func (f *fakeEvents) happen(shard uint32, queues ...string) {
	r := f.ring(shard)
	f.index++
	interest := r.Committed(f.index)
	if interest == events.None {
		return
	}
	var all []events.Event
	for _, q := range queues {
		all = append(all, events.Event{Kind: events.TaskDead, At: time.Now(), Namespace: "default", Queue: q, Type: "a\nb", Task: task.NewID(shard, 1, f.index), State: task.Dead, Attempt: 2,
			Worker: "w1", Reason: "not_retryable"})
	}
	r.Add(f.index, interest, all)
}

// listener reads server-sent events.
type listener struct {
	t    *testing.T
	f    *fake
	g    *Gateway
	cut  context.CancelFunc
	in   *bufio.Reader
	done chan struct{}
	last string // id of the last event
	head http.Header
}

// flushed is a response that is read while it is written.
type flushed struct {
	*httptest.ResponseRecorder
	to *io.PipeWriter
}

func (f flushed) Write(b []byte) (int, error) { return f.to.Write(b) }
func (f flushed) Flush()                      {}

// subscribe opens a stream and reads its first frame.
func subscribe(t *testing.T, f *fake, query, last string) *listener {
	t.Helper()
	ctx, cut := context.WithCancel(context.Background())
	from, to := io.Pipe()
	l := &listener{t: t, f: f, g: newGateway(f), cut: cut, in: bufio.NewReader(from), done: make(chan struct{})}
	r := httptest.NewRequest("GET", ours+"/api/v1/events?"+query, nil).WithContext(ctx)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	w := flushed{httptest.NewRecorder(), to}
	go func() {
		defer close(l.done)
		l.g.Handler().ServeHTTP(w, r)
		l.head = w.Header()
		to.Close()
	}()
	context.AfterFunc(ctx, func() { from.Close() })
	if got := l.next(); got != "" {
		t.Fatalf("the first frame is %q, want one without events", got)
	}
	synctest.Wait() // until it asks for events, so that it does not get earlier ones
	return l
}

// next returns the next event: its kind, shard and queue; "" for a frame without events.
func (l *listener) next() string {
	l.t.Helper()
	kind, out := "", ""
	for {
		s, err := l.in.ReadString('\n')
		if err != nil {
			return "end"
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(s, "\n"), ":")
		switch value = strings.TrimPrefix(value, " "); name {
		case "id":
			l.last = value
		case "event":
			kind = value
		case "data":
			var e struct {
				Kind  string `json:"kind"`
				Queue string `json:"queue"`
				Shard int    `json:"shard"`
			}
			if err := json.Unmarshal([]byte(value), &e); err != nil || e.Kind != kind {
				l.t.Fatalf("%q: %v", s, err)
			}
			schema, _ := document()
			var any any
			_ = json.Unmarshal([]byte(value), &any)
			if err := schema.Components.Schemas["Event"].Value.VisitJSON(any); err != nil {
				l.t.Errorf("%s does not match openapi.json: %v", value, err)
			}
			out = strings.TrimSpace(fmt.Sprintf("%s %d %s", e.Kind, e.Shard, e.Queue))
		case "":
			if value == "" {
				return out
			}
		}
	}
}

func (l *listener) expect(what string, want ...string) {
	l.t.Helper()
	for _, w := range want {
		if got := l.next(); got != w {
			l.t.Errorf("%s: %q, want %q", what, got, w)
		}
	}
}

func (l *listener) end() {
	l.cut()
	<-l.done
	l.g.Shutdown(context.Background())
}

func TestServerSentEvents(t *testing.T) {
	document()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1, 2)
		f.events.happen(1, "before")
		l := subscribe(t, f, "", "")
		f.events.happen(1, "a", "b")
		l.expect("what happens", "task.dead 1 a")
		behind := l.last
		l.expect("what happens", "task.dead 1 b")
		f.events.happen(2, "c")
		l.expect("in another shard", "task.dead 2 c")
		f.events.happen(0, "d")
		l.expect("in the system shard", "task.dead 0 d")
		began := time.Now()
		l.expect("when nothing happens", "", "")
		if took := time.Since(began); took != 2*eventBeat {
			t.Errorf("two heartbeats took %v", took)
		}
		last := l.last
		l.end()
		if got := l.head.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("Content-Type = %q", got)
		}

		f.events.happen(1, "e")
		again := subscribe(t, f, "cursor="+behind, "")
		got := map[string]bool{again.next(): true, again.next(): true, again.next(): true, again.next(): true}
		for _, want := range []string{"task.dead 1 b", "task.dead 2 c", "task.dead 0 d", "task.dead 1 e"} {
			if !got[want] {
				t.Errorf("after a cursor: %v, want %q among them", got, want)
			}
		}
		again.end()
		again = subscribe(t, f, "cursor="+behind+"&kind=task.*", last)
		again.expect("behind the last event", "task.dead 1 e")
		again.end()
		again = subscribe(t, f, "queue=x", behind)
		f.events.happen(1, "a", "x", "b")
		again.expect("of a queue", "task.dead 1 x")
		again.end()
	})
}

// Nothing is missed silently: there is a reset for a shard with a new leader, for one that did not answer at first, and for a new one.
func TestEventsReset(t *testing.T) {
	document()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1, 2)
		f.events.setDark(2, true)
		l := subscribe(t, f, "kind=task.dead", "")
		f.events.happen(1, "a")
		l.expect("of the other shard", "task.dead 1 a")
		f.events.setDark(2, false)
		l.expect("of one that comes late", "reset 2")
		f.events.happen(2, "b")
		l.expect("behind the reset", "task.dead 2 b")
		f.events.ring(1).Close()
		f.events.ring(1).Open()
		l.expect("of one with another leader", "reset 1")
		f.set(func() { f.shards = []uint32{1, 2, 3} })
		l.expect("of one that is new", "reset 3")
		f.events.happen(3, "c")
		l.expect("in it", "task.dead 3 c")
		last := l.last
		l.end()
		f.events.setDark(1, true)
		l = subscribe(t, f, "kind=task.dead&cursor="+last, "")
		f.events.happen(1, "d")
		f.events.setDark(1, false)
		l.expect("of one that comes late, behind a cursor", "task.dead 1 d")
		last = l.last
		l.end()
		f.events.ring(1).Close()
		f.events.ring(1).Open()
		l = subscribe(t, f, "kind=task.dead&cursor="+last, "")
		l.expect("of one that has had another leader since its cursor", "reset 1")
		l.end()
	})
}

// A digest reports that something happened, but not what, and no more often than requested.
func TestDigest(t *testing.T) {
	document()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1, 2)
		l := subscribe(t, f, "digest=2s&queue=a&kind=task.*", "some-old-cursor")
		for range 10 {
			f.events.happen(1, "a", "b")
		}
		began := time.Now()
		l.expect("what happens", "changed 1")
		f.events.happen(1, "a")
		l.expect("what happens next", "changed 1")
		if took := time.Since(began); took < 2*time.Second || took > 3*time.Second {
			t.Errorf("two digests came within %v, want at least 2s", took)
		}
		f.events.happen(2, "b")
		f.events.happen(0, "a")
		l.expect("what was not asked for", "")
		f.events.happen(2, "a")
		l.expect("in another shard", "changed 2")
		f.events.ring(2).Close()
		f.events.ring(2).Open()
		l.expect("of one with another leader", "reset 2")
		began = time.Now()
		f.events.happen(2, "a")
		l.expect("behind a reset, at once", "changed 2")
		if took := time.Since(began); took >= time.Second {
			t.Errorf("after a reset the digest came after %v", took)
		}
		if l.last != "" {
			t.Errorf("a digest has the cursor %q", l.last)
		}
		l.end()
	})
}

// A reader that doesn't read delays no other, and gets a reset when it reads again.
func TestSlowReader(t *testing.T) {
	document()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		l := subscribe(t, f, "", "")
		many := make([]string, 1000)
		for i := range many {
			many[i] = strings.Repeat("q", 200)
		}
		for range 100 { // more than a ring holds, in no time
			f.events.happen(1, many...)
		}
		for {
			if got := l.next(); strings.HasPrefix(got, "reset") {
				break
			} else if got == "end" {
				t.Fatal("the stream ended without a reset")
			}
		}
		f.events.happen(1, "a")
		l.expect("behind the reset", "task.dead 1 a")
		close(f.draining)
		l.expect("when the server stops", "end")
		l.end()
	})
}

func TestEventsAreChecked(t *testing.T) {
	f := newFake(1)
	g := newGateway(f)
	defer g.Shutdown(context.Background())
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	for _, bad := range []*pawlv1.WatchEventsRequest{{Cursor: "x"}, {Cursor: convert.EncodeCursor(convert.EventCursor, []byte{1, 2})}, {Kinds: []string{"x"}}, {TaskId: "x"}, {Queue: "a\x00b"},
		{Type: strings.Repeat("x", 300)}, {Digest: durationpb.New(minDigest - 1)}, {Digest: durationpb.New(maxDigest + 1)}, {Digest: &durationpb.Duration{Seconds: 1, Nanos: -1}}, {Digest: durationpb.New(time.Millisecond)}, {Digest: durationpb.New(time.Minute)}, {Digest: durationpb.New(-time.Second)},
		{Digest: durationpb.New(time.Second), Cursor: convert.EncodeCursor(convert.EventCursor, []byte{})}} {
		w, err := g.services.event.newWatcher(ctx, bad)
		if err == nil {
			w.close()
		}
		if err == nil || bad.GetDigest().CheckValid() != nil && bad.Digest != nil && !strings.Contains(err.Error(), "is not a duration") {
			t.Errorf("%v was accepted, or refused with %v", bad, err)
		}
	}
	for _, d := range []time.Duration{minDigest, time.Second, maxDigest} {
		w, err := g.services.event.newWatcher(ctx, &pawlv1.WatchEventsRequest{Digest: durationpb.New(d)})
		if err != nil || w.digest != d || w.pulse == 0 {
			t.Fatalf("digest every %v: %+v, %v", d, w, err)
		}
		w.close()
	}
}

// A namespace gets at most half of a node's event streams.
func TestEventStreamsAreShared(t *testing.T) {
	g := newGateway(newFake(1))
	defer g.Shutdown(context.Background())
	var open []*watcher
	watch := func(ns string) error {
		ctx, c := callinfo.Begin(context.Background(), "grpc", "test")
		c.Namespace = ns
		w, err := g.services.event.newWatcher(ctx, &pawlv1.WatchEventsRequest{})
		if err == nil {
			open = append(open, w)
		}
		return err
	}
	for _, ns := range []string{"a", "b"} {
		for range maxWatchers / 2 {
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
	if n := g.services.event.watchers.InUse(); n != 0 {
		t.Errorf("%d streams are still counted after all were closed", n)
	}
}

// A caller that asks for the events of a queue beyond its token gets an error, rather than waiting forever.
func TestEventsOfForeignQueues(t *testing.T) {
	k := newTokenSet()
	k.add("post", auth.Rights{Namespace: "team", Roles: auth.Observe, Queues: []string{"mail*"}})
	g := lockedGateway(t, k)
	conn := dialGateway(t, g)
	s, err := pawlv1.NewEventServiceClient(conn).WatchEvents(with(t.Context(), k.secret["post"], ""), &pawlv1.WatchEventsRequest{Queue: "pay"})
	if err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "mail*") {
		t.Errorf("gRPC: %v, want permission denied", err)
	}
	if w := knock(g, "GET", "/api/v1/events?queue=pay", k.secret["post"], ""); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "mail*") {
		t.Errorf("REST: %d %s, want permission denied", w.Code, w.Body)
	}
}

// Shards that have no matching events are not asked.
func TestEventsAskWhoKnows(t *testing.T) {
	g := newGateway(newFake(1, 2))
	defer g.Shutdown(context.Background())
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	for want, r := range map[string]*pawlv1.WatchEventsRequest{
		"[0 1 2]": {}, "[1 2]": {Kinds: []string{"task.*", "breaker.opened"}}, "[0]": {Kinds: []string{"queue.paused"}},
		"[2]": {TaskId: task.NewID(2, 1, 1).String()},
	} {
		w, err := g.services.event.newWatcher(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(w.shards()); got != want {
			t.Errorf("%v asks shards %s, want %s", r, got, want)
		}
		w.close()
	}
}

// A stream for some kinds of events reads the shards where these happen.
func TestShardsOfEvents(t *testing.T) {
	g := newGateway(newFake(1, 2))
	for _, c := range []struct {
		filter events.Filter
		want   string
	}{
		{events.Filter{}, "[0 1 2]"}, {events.Filter{Kinds: []events.Kind{"queue.paused"}}, "[0]"}, {events.Filter{Kinds: []events.Kind{"task.succeeded"}}, "[1 2]"},
		{events.Filter{Kinds: []events.Kind{"task.succeeded", "queue.paused"}}, "[0 1 2]"}, {events.Filter{Kinds: []events.Kind{"queue.paused"}, Task: task.NewID(2, 1, 1)}, "[2]"},
	} {
		if got := fmt.Sprint((&watcher{g: &g.services.event, filter: c.filter}).shards()); got != c.want {
			t.Errorf("filter %+v: shards %s, want %s", c.filter, got, c.want)
		}
	}
}

// panicky is an Admin that panics.
type panicky struct{ administration.Admin }

func (panicky) Map(context.Context) *cluster.Map { panic("planted") }

// A stream whose handler panics ends with an error that does not reveal the panic.
func TestStreamsThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := serve(t, newFake())
		g.cfg.Admin = panicky{}
		g.wire()
		s, err := pawlv1.NewWorkerServiceClient(dial(t, l)).Work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&pawlv1.WorkRequest{Hello: hello("q"), Grant: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "planted") {
			t.Errorf("the stream ended with %v, want an internal error", err)
		}
	})
}

// An event is returned with the task, operation or other object that it is about.
func TestEventsAreShown(t *testing.T) {
	id := task.NewID(1, 1, 1)
	for _, c := range []struct {
		e    events.Event
		want *pawlv1.Event
	}{
		{events.Event{Kind: "task.succeeded", Task: id}, &pawlv1.Event{Kind: "task.succeeded", TaskId: id.String()}},
		{events.Event{Kind: "operation.done", Name: "o"}, &pawlv1.Event{Kind: "operation.done", OperationId: "o"}},
		{events.Event{Kind: "schedule.fired", Name: "s"}, &pawlv1.Event{Kind: "schedule.fired", Name: "s"}},
	} {
		got := eventProto(3, &c.e)
		if got.GetShard() != 3 || got.GetKind() != c.want.GetKind() || got.GetTaskId() != c.want.GetTaskId() || got.GetOperationId() != c.want.GetOperationId() || got.GetName() != c.want.GetName() {
			t.Errorf("eventProto(%+v) = %v", c.e, got)
		}
	}
	if line := newEventCursorLine(events.Places{1: {Index: 7}}); line.at(1) != (events.Place{Index: 7}) || line.at(2) != events.Unknown {
		t.Errorf("after a cursor the shards are read from %v and %v", line.at(1), line.at(2))
	}
	if line := newEventCursorLine(nil); line.at(2) != (events.Place{}) || line.text() != "" {
		t.Errorf("without a cursor a shard is read from %v, and the cursor is %q", line.at(2), line.text())
	}
	for _, reset := range []bool{false, true} {
		w, frame := &watcher{cursor: newEventCursorLine(nil)}, (*pawlv1.WatchEventsResponse)(nil)
		err := w.tell(shardPage{1, events.Page{Next: events.Place{Index: 9}, Reset: reset}}, func(r *pawlv1.WatchEventsResponse) error { frame = r; return nil })
		behind := newEventCursorLine(events.Places{1: {Index: 9}}).text()
		if err != nil || w.text() != behind || reset && (len(frame.GetEvents()) != 1 || frame.Events[0].Cursor != behind || frame.Cursor != behind) || !reset && frame != nil {
			t.Errorf("empty page, reset %t: cursor %q, want %q; frame %v (%v)", reset, w.text(), behind, frame, err)
		}
	}
	w := &watcher{cursor: newEventCursorLine(events.Places{1: {Index: 7}})}
	if at := w.text(); at == "" {
		t.Error("a stream of events has no cursor")
	}
	if w.digest = minDigest; w.text() != "" {
		t.Error("a digest has a cursor")
	}
}

// A stream of events ends when a frame can't be sent, whether it is the first, one after a cursor, an event or a heartbeat.
func TestEventStreamsEndWithASendThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		g := newGateway(f)
		defer g.Shutdown(context.Background())
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		f.events.happen(1, "a")
		start := ""
		stop := errors.New("enough")
		_ = g.services.event.Watch(ctx, &pawlv1.WatchEventsRequest{Kinds: []string{"task.*"}}, func() {}, func(r *pawlv1.WatchEventsResponse) error {
			if len(r.GetEvents()) == 0 {
				start = r.GetCursor()
				go func() { time.Sleep(time.Second); f.events.happen(1, "b") }()
				return nil
			}
			return stop
		})
		for what, c := range map[string]struct {
			cursor string
			nth    int // number of the frame that fails
			event  bool
			after  time.Duration
		}{"the first": {"", 1, false, 0}, "behind a cursor": {start, 2, false, 0}, "what happens": {"", 2, true, time.Second}, "a beat": {"", 2, false, eventBeat}} {
			sent, began, opened := 0, time.Now(), false
			if c.event {
				go func() { time.Sleep(time.Second); f.events.happen(1, "c") }()
			}
			err := g.services.event.Watch(ctx, &pawlv1.WatchEventsRequest{Cursor: c.cursor, Kinds: []string{"task.*"}}, func() { opened = true }, func(*pawlv1.WatchEventsResponse) error {
				if sent++; sent == c.nth {
					return stop
				}
				return nil
			})
			if took := time.Since(began); err != stop || sent != c.nth || !opened || took.Truncate(100*time.Millisecond) != c.after {
				t.Errorf("%s: %v after %d frames and %v, want %v", what, err, sent, took, c.after)
			}
		}
		close(f.draining)
		if err := g.services.event.Watch(ctx, &pawlv1.WatchEventsRequest{}, func() {}, func(*pawlv1.WatchEventsResponse) error { return nil }); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("Watch while the node stops: %v, want unavailable", err)
		}
		if n := g.services.event.watchers.InUse(); n != 0 {
			t.Errorf("%d streams are still counted", n)
		}
	})
}

// slowEvents takes a second to stop waiting.
type slowEvents struct{ rings *fakeEvents }

func (e slowEvents) Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error) {
	page, err := e.rings.Events(ctx, shard, q)
	if ctx.Err() != nil {
		time.Sleep(time.Second)
	}
	return page, err
}

// A stream of events returns only when its reads have ended.
func TestEventStreamsWaitForTheirReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		g := newGateway(f)
		defer g.Shutdown(context.Background())
		var lines strings.Builder
		g.cfg.Events, g.cfg.Logger = slowEvents{f.events}, slog.New(slog.NewTextHandler(&lines, nil))
		g.wire()
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		began := time.Now()
		_ = g.services.event.Watch(ctx, &pawlv1.WatchEventsRequest{}, func() {}, func(*pawlv1.WatchEventsResponse) error {
			synctest.Wait() // until they read
			return errPlanted
		})
		if took := time.Since(began); took != time.Second || lines.Len() > 0 {
			t.Errorf("Watch ended after %v, want %v; log is %s", took, time.Second, &lines)
		}
	})
}

// stillEvents is a shard that reports a change without a new place.
type stillEvents struct{ asked int }

func (e *stillEvents) Events(ctx context.Context, _ uint32, q events.Query) (events.Page, error) {
	switch e.asked++; e.asked {
	case 1:
		return events.Page{Next: events.Place{Index: 1}}, nil
	case 2:
		return events.Page{Next: q.After, Changed: true}, nil
	}
	<-ctx.Done()
	return events.Page{}, ctx.Err()
}

// A change is reported even if the place does not move.
func TestChangesInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(newFake(1))
		defer g.Shutdown(context.Background())
		g.cfg.Events = &stillEvents{}
		g.wire()
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		ctx, _ = callinfo.Begin(ctx, "grpc", "test")
		told := 0
		_ = g.services.event.Watch(ctx, &pawlv1.WatchEventsRequest{Digest: durationpb.New(minDigest), Kinds: []string{"task.*"}}, func() {}, func(r *pawlv1.WatchEventsResponse) error {
			told += len(r.GetEvents())
			return nil
		})
		if told != 1 {
			t.Errorf("%d changes were reported, want 1", told)
		}
	})
}

// panickyEvents reports the current place, and panics otherwise.
type panickyEvents struct{ rings *fakeEvents }

func (e panickyEvents) Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error) {
	if q.Wait > 0 {
		panic("planted")
	}
	return e.rings.Events(ctx, shard, q)
}

// A panic while a shard is read ends the stream that reads it, and is logged.
func TestEventStreamsThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, lines := newFake(1), &strings.Builder{}
		g := newGateway(f)
		defer g.Shutdown(context.Background())
		g.cfg.Events, g.cfg.Logger = panickyEvents{f.events}, slog.New(slog.NewTextHandler(lines, nil))
		g.wire()
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		began := time.Now()
		err := g.services.event.Watch(ctx, &pawlv1.WatchEventsRequest{Kinds: []string{"task.*"}}, func() {}, func(*pawlv1.WatchEventsResponse) error { return nil })
		if !errors.Is(err, context.Canceled) || time.Since(began) != 0 || strings.Count(lines.String(), "a stream of events failed with an internal error") != 1 {
			t.Errorf("Watch ended with %v after %v, log is %s", err, time.Since(began), lines)
		}
	})
}

// flickering is a set of shards that answer while light is true, and record when they were asked.
type flickering struct {
	rings *fakeEvents
	began time.Time
	asked []time.Duration
	light func(since time.Duration) bool
}

func (f *flickering) Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error) {
	since := time.Since(f.began)
	f.asked = append(f.asked, since)
	if !f.light(since) {
		return events.Page{}, errPlanted
	}
	return f.rings.Events(ctx, shard, q)
}

// A shard that doesn't answer is asked again after increasing pauses, which start over once it has answered.
func TestDarkShardsAreAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		g := newGateway(f)
		defer g.Shutdown(context.Background())
		shards := &flickering{rings: f.events, began: time.Now(), light: func(since time.Duration) bool { return since >= 9*time.Second && since < 12*time.Second }}
		g.cfg.Events = shards
		g.wire()
		ctx, leave := context.WithTimeout(t.Context(), 26*time.Second)
		defer leave()
		ctx, _ = callinfo.Begin(ctx, "grpc", "test")
		err := g.services.event.Watch(ctx, &pawlv1.WatchEventsRequest{Kinds: []string{"task.*"}}, func() {}, func(*pawlv1.WatchEventsResponse) error { return nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Watch ended with %v, want deadline exceeded", err)
		}
		var got []string
		for _, at := range shards.asked {
			got = append(got, fmt.Sprint(at.Milliseconds()))
		}
		// First it is asked for its place, then again with doubled pauses of up to 2 s. An answer takes at most 10 s.
		if want := "0 0 100 300 700 1500 3100 5100 7100 9100 9100 19100 19200 19400 19800 20600 22200 24200"; strings.Join(got, " ") != want {
			t.Errorf("asked at %s ms, want %s", got, want)
		}
	})
}

// A heartbeat is sent when nothing was sent for a while. Events that don't match don't delay it.
func TestBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		g := newGateway(f)
		defer g.Shutdown(context.Background())
		ctx, leave := context.WithTimeout(t.Context(), 61*time.Second)
		defer leave()
		ctx, _ = callinfo.Begin(ctx, "grpc", "test")
		go func() {
			pass(10 * time.Second)
			f.events.happen(1, "other")
			pass(15 * time.Second)
			f.events.happen(1, "a")
		}()
		began, got := time.Now(), ""
		_ = g.services.event.Watch(ctx, &pawlv1.WatchEventsRequest{Queue: "a", Kinds: []string{"task.*"}}, func() {}, func(r *pawlv1.WatchEventsResponse) error {
			got += fmt.Sprintf("%d at %v; ", len(r.GetEvents()), time.Since(began).Round(time.Second))
			return nil
		})
		if want := "0 at 0s; 0 at 15s; 1 at 25s; 0 at 40s; 0 at 55s; "; got != want {
			t.Errorf("frames %s, want %s", got, want)
		}
	})
	for what, c := range map[string]struct {
		digest  *durationpb.Duration
		happens func(f *fakeEvents)
	}{
		"a change": {durationpb.New(time.Second), func(f *fakeEvents) { f.happen(1, "a") }},
		"a reset":  {nil, func(f *fakeEvents) { f.ring(1).Close(); f.ring(1).Open() }},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(1)
			g := newGateway(f)
			defer g.Shutdown(context.Background())
			ctx, leave := context.WithTimeout(t.Context(), 31*time.Second)
			defer leave()
			ctx, _ = callinfo.Begin(ctx, "grpc", "test")
			go func() { time.Sleep(10 * time.Second); c.happens(f.events) }()
			began, got := time.Now(), ""
			_ = g.services.event.Watch(ctx, &pawlv1.WatchEventsRequest{Digest: c.digest, Kinds: []string{"task.*"}}, func() {}, func(r *pawlv1.WatchEventsResponse) error {
				got += fmt.Sprintf("%d at %v; ", len(r.GetEvents()), time.Since(began).Round(time.Second))
				return nil
			})
			if want := "0 at 0s; 1 at 10s; 0 at 25s; "; got != want {
				t.Errorf("with %s: frames %s, want %s", what, got, want)
			}
		})
	}
}
