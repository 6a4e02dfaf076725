package watch

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// systemShard has the events of queues.
	systemShard = 0
	// heartbeat is how often a stream sends a frame when nothing happens.
	heartbeat = 15 * time.Second
	// longPoll is how long a shard is asked to wait for the next event.
	longPoll = 10 * time.Second
	// shardLook is how often a stream looks for new shards.
	shardLook = 5 * time.Second
	// readRetryPause is the shortest pause before a shard that did not answer is asked again, readRetryPauseMax the longest.
	readRetryPause    = 100 * time.Millisecond
	readRetryPauseMax = 2 * time.Second
	// firstRead bounds the first request to each shard.
	firstRead = 2 * time.Second
)

// watcher is one stream of events: one goroutine per shard reads, the stream's own sends.
type watcher struct {
	g      *Service
	ctx    context.Context
	stop   context.CancelFunc
	filter events.Filter
	digest time.Duration // 0: events are sent
	pulse  uint64        // of a digest
	cursor *cursorLine
	pages  chan shardPage
	reads  sync.WaitGroup
}

type shardPage struct {
	shard uint32
	page  events.Page
}

// newWatcher validates the request. The caller must call close.
func (g *Service) newWatcher(ctx context.Context, r *pawlv1.WatchEventsRequest) (*watcher, error) {
	f, err := filterOf(ctx, r, g.Limits)
	if err != nil {
		return nil, err
	}
	places, err := placesOf(r.GetCursor())
	if err != nil {
		return nil, err
	}
	digest, err := digestOf(r)
	if err != nil {
		return nil, err
	}
	switch ok, own := g.Streams.TryAcquire(f.Namespace); {
	case own:
		return nil, task.Unavailable(longPoll, "namespace %q has %d streams of events open at this node, the maximum", f.Namespace,
			g.Streams.PerNamespace())
	case !ok:
		return nil, task.Unavailable(longPoll, "%d streams of events are open at this node, the maximum", MaxStreams)
	}
	w := &watcher{g: g, filter: f, digest: digest, cursor: newCursorLine(places), pages: make(chan shardPage)}
	if digest > 0 {
		w.pulse = rand.Uint64() | 1 // not 0
	}
	w.ctx, w.stop = context.WithCancel(ctx)
	return w, nil
}

// query returns the query for what happened after a place.
func (w *watcher) query(after events.Place, wait time.Duration) events.Query {
	return events.Query{Filter: w.filter, After: after, Wait: wait, Pulse: w.pulse}
}

func (w *watcher) close() {
	w.stop()
	w.reads.Wait()
	w.g.Streams.Release(w.filter.Namespace)
}

// shards returns the shards in which events that match the filter may happen.
func (w *watcher) shards() []uint32 {
	if w.filter.Task != (task.ID{}) {
		return []uint32{w.filter.Task.Shard()}
	}
	queues := func(k events.Kind) bool { return strings.HasPrefix(string(k), "queue.") }
	if len(w.filter.Kinds) > 0 && !slices.ContainsFunc(w.filter.Kinds, queues) {
		return w.g.Cluster.Shards()
	}
	if len(w.filter.Kinds) > 0 && !slices.ContainsFunc(w.filter.Kinds, func(k events.Kind) bool { return !queues(k) }) {
		return []uint32{systemShard}
	}
	return append([]uint32{systemShard}, w.g.Cluster.Shards()...)
}

// run sends frames until the caller is gone or the server stops, which is no error. The first frame confirms that everything from
// now on will be sent.
func (w *watcher) run(send func(*pawlv1.WatchEventsResponse) error) error {
	first := w.begin()
	if err := send(&pawlv1.WatchEventsResponse{Cursor: w.text()}); err != nil {
		return err
	}
	for _, p := range first {
		if err := w.sendPage(p, send); err != nil {
			return err
		}
	}
	beat, look := time.NewTimer(heartbeat), time.NewTicker(shardLook)
	defer beat.Stop()
	defer look.Stop()
	for {
		select {
		case p := <-w.pages:
			if err := w.sendPage(p, send); err != nil {
				return err
			}
			if len(p.page.Events) == 0 && !p.page.Reset && !p.page.Changed {
				continue // nothing to report
			}
		case <-beat.C:
			if err := send(&pawlv1.WatchEventsResponse{Cursor: w.text()}); err != nil {
				return err
			}
		case <-look.C:
			w.readNew()
			continue
		case <-w.g.Broker.Draining():
			return nil
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
		beat.Reset(heartbeat)
	}
}

// begin gets the current place of each shard, so that nothing is missed from now on, and starts reading. A shard that does not
// answer is read from when it does, starting with a reset.
func (w *watcher) begin() (first []shardPage) {
	shards := w.shards()
	pages := make([]events.Page, len(shards))
	ctx, cancel := context.WithTimeout(w.ctx, firstRead)
	defer cancel()
	errs := parallel.Each(len(shards), func(i int) (err error) {
		pages[i], err = w.g.Source.Events(ctx, shards[i], w.query(w.cursor.at(shards[i]), 0))
		return err
	})
	for i, shard := range shards {
		switch {
		case errs[i] != nil:
			pages[i].Next = w.cursor.at(shard)
			if pages[i].Next == (events.Place{}) {
				pages[i].Next = events.Unknown
			}
		case len(pages[i].Events) > 0 || pages[i].Reset:
			first = append(first, shardPage{shard, pages[i]})
		default:
			w.cursor.set(shard, pages[i].Next)
		}
		w.read(shard, pages[i].Next)
	}
	return first
}

// readNew reads shards added since.
func (w *watcher) readNew() {
	for _, shard := range w.shards() {
		if !w.cursor.reads[shard] {
			w.read(shard, events.Unknown)
		}
	}
}

// read reads a shard from a place on, until the stream ends. A panic ends this stream only.
func (w *watcher) read(shard uint32, from events.Place) {
	w.cursor.reads[shard] = true
	w.reads.Go(func() {
		if err := parallel.Safely(func() error { w.follow(shard, from); return nil }); err != nil {
			w.g.Log.Error("a stream of events failed with an internal error", "shard", shard, "error", err)
			w.stop()
		}
	})
}

func (w *watcher) follow(shard uint32, from events.Place) {
	pause := readRetryPause
	for w.ctx.Err() == nil {
		page, err := w.g.Source.Events(w.ctx, shard, w.query(from, longPoll))
		if err != nil {
			w.pause(pause)
			pause = min(2*pause, readRetryPauseMax)
			continue
		}
		pause = readRetryPause
		if page.Next == from && !page.Changed {
			continue
		}
		from = page.Next
		select {
		case w.pages <- shardPage{shard, page}:
		case <-w.ctx.Done():
		}
		if page.Changed {
			w.pause(w.digest)
		}
	}
}

func (w *watcher) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.ctx.Done():
	}
}

// sendPage sends a page's events, and advances the cursor.
func (w *watcher) sendPage(p shardPage, send func(*pawlv1.WatchEventsResponse) error) error {
	frame := &pawlv1.WatchEventsResponse{}
	if p.page.Reset {
		w.cursor.set(p.shard, p.page.Next)
		frame.Events = append(frame.Events, &pawlv1.Event{Kind: kindReset, Shard: p.shard, Cursor: w.text(),
			Reason: "earlier events of the shard may be missing: read the current state"})
	}
	if p.page.Changed {
		frame.Events = append(frame.Events, &pawlv1.Event{Kind: kindChanged, Shard: p.shard})
	}
	for i := range p.page.Events {
		e := &p.page.Events[i]
		w.cursor.set(p.shard, events.Place{Era: p.page.Next.Era, Index: e.Index, Number: e.Number})
		out := protoOf(p.shard, e)
		out.Cursor = w.cursor.text()
		frame.Events = append(frame.Events, out)
	}
	w.cursor.set(p.shard, p.page.Next)
	if len(frame.Events) == 0 {
		return nil
	}
	frame.Cursor = w.text()
	return send(frame)
}

// text returns the cursor of the stream. A digest has none, because nothing is kept for it while it is disconnected.
func (w *watcher) text() string {
	if w.digest > 0 {
		return ""
	}
	return w.cursor.text()
}

// Kinds of events that come from no task or queue: one asks a reader to reload the state, the other is that of a digest.
const (
	kindReset   = "reset"
	kindChanged = "changed"
)

func protoOf(shard uint32, e *events.Event) *pawlv1.Event {
	p := &pawlv1.Event{Kind: string(e.Kind), Time: apiproto.WallProto(e.At), Queue: e.Queue, Type: e.Type, Key: e.Key,
		State: apiproto.StateProto(e.State), Attempt: apiproto.Int32Of(e.Attempt), Worker: e.Worker, Reason: e.Reason, Error: e.Error,
		Count: e.Count, Shard: shard, Index: e.Index}
	switch {
	case e.Task != task.ID{}:
		p.TaskId = e.Task.String()
	case strings.HasPrefix(p.Kind, "operation."):
		p.OperationId = e.Name
	default:
		p.Name = e.Name
	}
	return p
}
