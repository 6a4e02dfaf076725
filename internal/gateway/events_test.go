package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/gateway/administration"
)

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
		f.events.Happen(1, "before")
		l := subscribe(t, f, "", "")
		f.events.Happen(1, "a", "b")
		l.expect("what happens", "task.dead 1 a")
		behind := l.last
		l.expect("what happens", "task.dead 1 b")
		f.events.Happen(2, "c")
		l.expect("in another shard", "task.dead 2 c")
		f.events.Happen(0, "d")
		l.expect("in the system shard", "task.dead 0 d")
		began := time.Now()
		l.expect("when nothing happens", "", "")
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("two heartbeats took %v", took)
		}
		last := l.last
		l.end()
		if got := l.head.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("Content-Type = %q", got)
		}

		f.events.Happen(1, "e")
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
		f.events.Happen(1, "a", "x", "b")
		again.expect("of a queue", "task.dead 1 x")
		again.end()
	})
}

// A caller that asks for the events of a queue beyond its token gets an error, rather than waiting forever.
func TestEventsOfInvisibleQueues(t *testing.T) {
	k := newTokenSet()
	k.add("post", auth.Rights{Namespace: "team", Roles: auth.Observe, Queues: []string{"mail*"}})
	g := lockedGateway(t, k)
	conn := dialGateway(t, g)
	s, err := pawlv1.NewEventServiceClient(conn).WatchEvents(with(t.Context(), k.secret["post"], ""),
		&pawlv1.WatchEventsRequest{Queue: new("pay")})
	if err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "mail*") {
		t.Errorf("gRPC: %v, want permission denied", err)
	}
	if w := knock(g, "GET", "/api/v1/events?queue=pay", k.secret["post"], ""); w.Code != http.StatusForbidden ||
		!strings.Contains(w.Body.String(), "mail*") {
		t.Errorf("REST: %d %s, want permission denied", w.Code, w.Body)
	}
}

// panicky is an Admin that panics.
type panicky struct{ administration.Admin }

func (panicky) Map(context.Context) *cluster.Map { panic("planted") }

// A stream whose handler panics ends with an error that does not reveal the panic.
func TestPanickingStreams(t *testing.T) {
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
