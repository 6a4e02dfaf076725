package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/pawltype"
)

// Watch selects the events that change what a page shows: a matching event means that the page must be refreshed.
// Fields that are set must all match; the zero watch matches every event in the namespace.
type Watch struct {
	Queue, Type, Task string
	Kinds             []admin.EventKind
}

// DeadKinds are the events by which dead letters and poison come and go; EndKinds are those by which tasks end.
var (
	DeadKinds = []admin.EventKind{admin.EventDead, admin.EventPoisoned, admin.EventDiscarded, admin.EventCancelled, admin.EventReplayed}
	EndKinds  = append([]admin.EventKind{admin.EventSucceeded}, DeadKinds...)
)

const (
	// maxLive is the maximum number of streams of a node. One namespace gets at most half of them.
	maxLive = 500
	// fullRefresh is how often a page without a stream is refreshed. There may be many, and they must not cost more
	// than pages with a stream.
	fullRefresh = 30 * time.Second
	// maxNoticesPerSecond is the maximum number of change notices per second of all streams of a node together. A refresh
	// costs about 5 ms, and a hundred open pages must cost the broker no more than ten.
	maxNoticesPerSecond = 10
	// noticeGap is the minimum time between two change notices of a stream.
	noticeGap = time.Second
	// keepAliveEvery is the interval of keep-alives. liveWrite is how long a browser may take to receive a message.
	keepAliveEvery = 15 * time.Second
	liveWrite      = 30 * time.Second
	// identifyTime is how long a stream waits for the visitor's identity.
	identifyTime = 20 * time.Second
)

// gapOf returns the time between two change notices of each of n streams.
func gapOf(n int) time.Duration {
	return max(noticeGap, time.Duration(n)*time.Second/maxNoticesPerSecond)
}

// Address returns the path of a watch's stream, below the base.
func (w *Watch) Address() string {
	q := url.Values{}
	kinds := make([]string, len(w.Kinds))
	for i, k := range w.Kinds {
		kinds[i] = string(k)
	}
	for name, value := range map[string]string{"queue": w.Queue, "type": w.Type, "task": w.Task, "kind": strings.Join(kinds, ",")} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return "/live?" + q.Encode()
}

// filterOf is the inverse of address.
func filterOf(q url.Values) admin.EventFilter {
	f := admin.EventFilter{Queue: q.Get("queue"), Type: q.Get("type"), TaskID: q.Get("task"), Digest: noticeGap}
	if kinds := q.Get("kind"); kinds != "" {
		for _, k := range strings.Split(kinds, ",") {
			f.Kinds = append(f.Kinds, admin.EventKind(k))
		}
	}
	return f
}

// Streams are the streams of a node.
type Streams struct {
	clients  *visitor.Clients
	sessions *visitor.Sessions
	slots    *admission.Slots
	end      chan struct{} // closed to end all streams
}

// NewStreams returns streams that call the API with the clients of visitors.
func NewStreams(of *visitor.Clients, sessions *visitor.Sessions) *Streams {
	return &Streams{clients: of, sessions: sessions, slots: admission.NewSlots(maxLive), end: make(chan struct{})}
}

// Close ends all streams. It must be called only once.
func (s *Streams) Close() { close(s.end) }

// ServeHTTP serves server-sent events: hello at the start; changed when the page must be refreshed; gone when the stream ends permanently,
// for example because the token was revoked or the session has ended; full, with the refresh interval in seconds, when there are too many
// streams. Scripts don't see a response with another status.
func (all *Streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		http.Error(w, "only pages of this server can follow its events", http.StatusForbidden)
		return
	}
	client, leave, err := all.clients.Client(visitor.Of(r))
	if err != nil {
		http.Error(w, "this server is stopping", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // otherwise a proxy might buffer events
	s := &stream{of: all, w: w, r: r, conn: http.NewResponseController(w), changed: make(chan struct{}, 1), ended: make(chan error, 1)}
	namespace, err := s.namespace(client)
	if err != nil {
		_ = s.gone()
		return
	}
	if ok, _ := all.slots.TryAcquire(namespace); !ok {
		_ = s.sendEvent(fmt.Sprintf("event: full\ndata: %d\n\n", int(fullRefresh.Seconds())))
		return
	}
	defer all.slots.Release(namespace)
	go s.read(client, filterOf(r.URL.Query()))
	s.write()
}

// stream is a page's stream. read feeds it until the request ends.
type stream struct {
	of      *Streams
	w       http.ResponseWriter
	r       *http.Request
	conn    *http.ResponseController
	changed chan struct{} // holds a value if something happened that the page does not know yet
	ended   chan error
}

// namespace returns the stream's namespace according to the API: the one in the URL can be anything.
func (s *stream) namespace(client *pawl.Client) (string, error) {
	ctx, cancel := context.WithTimeout(s.r.Context(), identifyTime)
	defer cancel()
	me, err := admin.New(client).Access().WhoAmI(ctx)
	if err != nil {
		return "", err
	}
	return me.Namespace, nil
}

func (s *stream) read(client *pawl.Client, f admin.EventFilter) {
	for _, err := range admin.New(client).Events(s.r.Context(), f) {
		if err != nil {
			s.ended <- err
			return
		}
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

func (s *stream) write() {
	err := s.sendEvent("event: hello\ndata: 1\n\n")
	keepAlive := time.NewTicker(keepAliveEvery)
	defer keepAlive.Stop()
	var rest <-chan time.Time // set while the stream must not send
	for err == nil {
		changed := s.changed
		if rest != nil {
			changed = nil
		}
		select {
		case <-changed:
			err = s.sendEvent("event: changed\ndata: 1\n\n")
			rest = time.After(gapOf(s.of.slots.InUse()))
		case <-rest:
			rest = nil
		case <-keepAlive.C:
			if !s.of.sessions.Lasts(s.r) {
				_ = s.gone()
				return
			}
			err = s.sendEvent(": nothing\n\n")
		case ended := <-s.ended:
			if s.r.Context().Err() == nil && !errors.Is(ended, pawltype.ErrClosed) {
				_ = s.gone()
			}
			return
		case <-s.of.end:
			return
		case <-s.r.Context().Done():
			return
		}
	}
}

// gone ends a stream permanently. The page finds out the reason when it refreshes.
func (s *stream) gone() error { return s.sendEvent("event: gone\ndata: 1\n\n") }

func (s *stream) sendEvent(text string) error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(liveWrite)) // not supported by in-memory connections
	if _, err := io.WriteString(s.w, text); err != nil {
		return err
	}
	return s.conn.Flush()
}
