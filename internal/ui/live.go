package ui

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
	"github.com/pawlq/pawl/pawltype"
)

// watch is what a page shows, as far as events tell of it: one that matches means that the page is to be asked for anew. Fields that are
// set must all match; the zero watch is all of the namespace.
type watch struct {
	Queue, Type, Task string
	Kinds             []admin.EventKind
}

// deadKinds are how dead letters and poison come and go; endKinds are how tasks end.
var (
	deadKinds = []admin.EventKind{admin.EventDead, admin.EventPoisoned, admin.EventDiscarded, admin.EventCancelled, admin.EventReplayed}
	endKinds  = append([]admin.EventKind{admin.EventSucceeded}, deadKinds...)
)

const (
	// slowBeat is how often a page is asked for anew though nothing happened: ages, rates and what others do change by time alone.
	slowBeat = 10 * time.Second
	// quickBeat is that of pages of which no event tells.
	quickBeat = 4 * time.Second

	// maxLive bounds the streams of a node. One namespace has half of them.
	maxLive = 500
	// fullBeat is how often a page asks that gets none. There may be many: they must not cost more than those that have one.
	fullBeat = 30 * time.Second
	// livePace is how often all streams of a node together may tell of changes, in a second: a page costs about 5 ms, and a hundred that
	// are open must cost the broker no more than ten.
	livePace = 10
	// liveGap is how long a stream is silent after it told of a change, at least.
	liveGap = time.Second
	// liveBreath is how often a stream says something when nothing happens, liveWrite how long a browser may take for it.
	liveBreath = 15 * time.Second
	liveWrite  = 30 * time.Second
)

// gapOf is how long each of n streams is silent after it told of a change.
func gapOf(n int) time.Duration {
	return max(liveGap, time.Duration(n)*time.Second/livePace)
}

// address is that of the stream of a watch, below the base.
func (w *watch) address() string {
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

// liveFilter is the inverse of address.
func liveFilter(q url.Values) admin.EventFilter {
	f := admin.EventFilter{Queue: q.Get("queue"), Type: q.Get("type"), TaskID: q.Get("task"), Digest: liveGap}
	if kinds := q.Get("kind"); kinds != "" {
		for _, k := range strings.Split(kinds, ",") {
			f.Kinds = append(f.Kinds, admin.EventKind(k))
		}
	}
	return f
}

// live is the streams of a node.
type live struct {
	slots *admission.Slots
	end   chan struct{} // closed when they are to end
}

// follow answers with server-sent events: hello at the beginning, changed when the page is to be asked for anew, gone when the stream
// ends for good, as the token has; full, with the seconds after which to ask by the clock, when there are too many. Scripts are told nothing of
// what has another status.
func (u *UI) follow(w http.ResponseWriter, r *http.Request) {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		http.Error(w, "only pages of this server follow what happens here", http.StatusForbidden)
		return
	}
	client, leave, err := u.visitors.client(of(r))
	if err != nil {
		http.Error(w, "this server is stopping", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // or a proxy would keep events back
	s := &liveStream{UI: u, w: w, r: r, conn: http.NewResponseController(w), changed: make(chan struct{}, 1), ended: make(chan error, 1)}
	namespace, err := s.namespace(client)
	if err != nil {
		_ = s.gone()
		return
	}
	if ok, _ := u.live.slots.TryAcquire(namespace); !ok {
		_ = s.say(fmt.Sprintf("event: full\ndata: %d\n\n", int(fullBeat.Seconds())))
		return
	}
	defer u.live.slots.Release(namespace)
	go s.read(client, liveFilter(r.URL.Query()))
	s.write()
}

// liveStream is one page's stream. Read feeds it until the request ends.
type liveStream struct {
	*UI
	w       http.ResponseWriter
	r       *http.Request
	conn    *http.ResponseController
	changed chan struct{} // has one when something happened that the page was not told of
	ended   chan error
}

// namespace is that of the stream, as the API has it: an address may name any.
func (s *liveStream) namespace(client *pawl.Client) (string, error) {
	ctx, cancel := context.WithTimeout(s.r.Context(), callTime)
	defer cancel()
	me, err := admin.New(client).Access().WhoAmI(ctx)
	if err != nil {
		return "", err
	}
	return me.Namespace, nil
}

func (s *liveStream) read(client *pawl.Client, f admin.EventFilter) {
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

func (s *liveStream) write() {
	said := s.say("event: hello\ndata: 1\n\n")
	breath := time.NewTicker(liveBreath)
	defer breath.Stop()
	var rest <-chan time.Time // set while the stream is silent
	for said == nil {
		changed := s.changed
		if rest != nil {
			changed = nil
		}
		select {
		case <-changed:
			said = s.say("event: changed\ndata: 1\n\n")
			rest = time.After(gapOf(s.live.slots.InUse()))
		case <-rest:
			rest = nil
		case <-breath.C:
			said = s.say(": nothing\n\n")
		case err := <-s.ended:
			if s.r.Context().Err() == nil && !errors.Is(err, pawltype.ErrClosed) {
				_ = s.gone()
			}
			return
		case <-s.live.end:
			return
		case <-s.r.Context().Done():
			return
		}
	}
}

// gone ends a stream. The page finds out why by asking.
func (s *liveStream) gone() error { return s.say("event: gone\ndata: 1\n\n") }

func (s *liveStream) say(text string) error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(liveWrite)) // not on connections in memory
	if _, err := io.WriteString(s.w, text); err != nil {
		return err
	}
	return s.conn.Flush()
}
