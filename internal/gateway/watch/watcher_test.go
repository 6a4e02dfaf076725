package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/watch/watchtest"
	"github.com/pawlq/pawl/internal/task"
)

// Nothing is missed silently: there is a reset for a shard with a new leader, for one that did not answer at first, and for a new one.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWorld(1, 2)
		f.rings.SetDark(2, true)
		l := f.subscribe(t, &pawlv1.WatchEventsRequest{Kinds: []string{"task.dead"}})
		f.rings.Happen(1, "a")
		l.expect("of the other shard", "task.dead 1 a")
		f.rings.SetDark(2, false)
		l.expect("of one that comes late", "reset 2")
		f.rings.Happen(2, "b")
		l.expect("behind the reset", "task.dead 2 b")
		f.rings.ChangeLeader(1)
		l.expect("of one with another leader", "reset 1")
		f.shards.set(1, 2, 3)
		l.expect("of one that is new", "reset 3")
		f.rings.Happen(3, "c")
		l.expect("in it", "task.dead 3 c")
		last := l.cursor
		l.end()
		f.rings.SetDark(1, true)
		l = f.subscribe(t, &pawlv1.WatchEventsRequest{Kinds: []string{"task.dead"}, Cursor: last})
		f.rings.Happen(1, "d")
		f.rings.SetDark(1, false)
		l.expect("of one that comes late, behind a cursor", "task.dead 1 d")
		last = l.cursor
		l.end()
		f.rings.ChangeLeader(1)
		l = f.subscribe(t, &pawlv1.WatchEventsRequest{Kinds: []string{"task.dead"}, Cursor: last})
		l.expect("of one that has had another leader since its cursor", "reset 1")
		l.end()
	})
}

// A digest reports that something happened, but not what, and no more often than requested.
func TestDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWorld(1, 2)
		l := f.subscribe(t, &pawlv1.WatchEventsRequest{Digest: durationpb.New(2 * time.Second), Queue: new("a"), Kinds: []string{"task.*"}})
		for range 10 {
			f.rings.Happen(1, "a", "b")
		}
		began := time.Now()
		l.expect("what happens", "changed 1")
		f.rings.Happen(1, "a")
		l.expect("what happens next", "changed 1")
		if took := time.Since(began); took < 2*time.Second || took > 3*time.Second {
			t.Errorf("two digests came within %v, want at least 2s", took)
		}
		f.rings.Happen(2, "b")
		f.rings.Happen(0, "a")
		l.expect("what was not asked for", "")
		f.rings.Happen(2, "a")
		l.expect("in another shard", "changed 2")
		f.rings.ChangeLeader(2)
		l.expect("of one with another leader", "reset 2")
		began = time.Now()
		f.rings.Happen(2, "a")
		l.expect("behind a reset, at once", "changed 2")
		if took := time.Since(began); took >= time.Second {
			t.Errorf("after a reset the digest came after %v", took)
		}
		if l.cursor != "" {
			t.Errorf("a digest has the cursor %q", l.cursor)
		}
		l.end()
	})
}

// A reader that doesn't read delays no other, and gets a reset when it reads again.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWorld(1)
		l := f.subscribe(t, &pawlv1.WatchEventsRequest{})
		many := make([]string, 1000)
		for i := range many {
			many[i] = strings.Repeat("q", 200)
		}
		for range 100 { // more than a ring holds, in no time
			f.rings.Happen(1, many...)
		}
		for {
			if got := l.next(); strings.HasPrefix(got, "reset") {
				break
			} else if got == "end" {
				t.Fatal("the stream ended without a reset")
			}
		}
		f.rings.Happen(1, "a")
		l.expect("behind the reset", "task.dead 1 a")
		close(f.draining)
		l.expect("when the server stops", "end")
		l.end()
	})
}

// Shards that have no matching events are not asked.
func TestShardsWithoutMatchesAreNotAsked(t *testing.T) {
	f := newWorld(1, 2)
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	for want, r := range map[string]*pawlv1.WatchEventsRequest{
		"[0 1 2]": {}, "[1 2]": {Kinds: []string{"task.*", "breaker.opened"}}, "[0]": {Kinds: []string{"queue.paused"}},
		"[2]": {TaskId: new(task.NewID(2, 1, 1).String())},
	} {
		w, err := f.newWatcher(ctx, r)
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
func TestShardsByKind(t *testing.T) {
	f := newWorld(1, 2)
	for _, c := range []struct {
		filter events.Filter
		want   string
	}{
		{events.Filter{}, "[0 1 2]"}, {events.Filter{Kinds: []events.Kind{"queue.paused"}}, "[0]"},
		{events.Filter{Kinds: []events.Kind{"task.succeeded"}}, "[1 2]"},
		{events.Filter{Kinds: []events.Kind{"task.succeeded", "queue.paused"}},
			"[0 1 2]"}, {events.Filter{Kinds: []events.Kind{"queue.paused"}, Task: task.NewID(2, 1, 1)}, "[2]"},
	} {
		if got := fmt.Sprint((&watcher{g: &f.Service, filter: c.filter}).shards()); got != c.want {
			t.Errorf("filter %+v: shards %s, want %s", c.filter, got, c.want)
		}
	}
}

// An event is returned with the task, operation or other object that it is about.
func TestEventsAreEncoded(t *testing.T) {
	id := task.NewID(1, 1, 1)
	for _, c := range []struct {
		e    events.Event
		want *pawlv1.Event
	}{
		{events.Event{Kind: "task.succeeded", Task: id}, &pawlv1.Event{Kind: "task.succeeded", TaskId: id.String()}},
		{events.Event{Kind: "operation.done", Name: "o"}, &pawlv1.Event{Kind: "operation.done", OperationId: "o"}},
		{events.Event{Kind: "schedule.fired", Name: "s"}, &pawlv1.Event{Kind: "schedule.fired", Name: "s"}},
	} {
		got := protoOf(3, &c.e)
		if got.GetShard() != 3 || got.GetKind() != c.want.GetKind() || got.GetTaskId() != c.want.GetTaskId() ||
			got.GetOperationId() != c.want.GetOperationId() || got.GetName() != c.want.GetName() {
			t.Errorf("protoOf(%+v) = %v", c.e, got)
		}
	}
	if line := newCursorLine(events.Places{1: {Index: 7}}); line.at(1) != (events.Place{Index: 7}) || line.at(2) != events.Unknown {
		t.Errorf("after a cursor the shards are read from %v and %v", line.at(1), line.at(2))
	}
	if line := newCursorLine(nil); line.at(2) != (events.Place{}) || line.text() != "" {
		t.Errorf("without a cursor a shard is read from %v, and the cursor is %q", line.at(2), line.text())
	}
	for _, reset := range []bool{false, true} {
		w, frame := &watcher{cursor: newCursorLine(nil)}, (*pawlv1.WatchEventsResponse)(nil)
		err := w.sendPage(shardPage{1, events.Page{Next: events.Place{Index: 9}, Reset: reset}}, func(r *pawlv1.WatchEventsResponse) error {
			frame = r
			return nil
		})
		behind := newCursorLine(events.Places{1: {Index: 9}}).text()
		if err != nil || w.text() != behind || reset && (len(frame.GetEvents()) != 1 || frame.Events[0].Cursor != behind ||
			frame.Cursor != behind) || !reset && frame != nil {
			t.Errorf("empty page, reset %t: cursor %q, want %q; frame %v (%v)", reset, w.text(), behind, frame, err)
		}
	}
	w := &watcher{cursor: newCursorLine(events.Places{1: {Index: 7}})}
	if at := w.text(); at == "" {
		t.Error("a stream of events has no cursor")
	}
	if w.digest = minDigest; w.text() != "" {
		t.Error("a digest has a cursor")
	}
}

// A stream of events ends when a frame can't be sent, whether it is the first, one after a cursor, an event or a heartbeat.
func TestFailedSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWorld(1)
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		f.rings.Happen(1, "a")
		start := ""
		stop := errors.New("enough")
		_ = f.Watch(ctx, &pawlv1.WatchEventsRequest{Kinds: []string{"task.*"}}, func() {}, func(r *pawlv1.WatchEventsResponse) error {
			if len(r.GetEvents()) == 0 {
				start = r.GetCursor()
				go func() { time.Sleep(time.Second); f.rings.Happen(1, "b") }()
				return nil
			}
			return stop
		})
		for what, c := range map[string]struct {
			cursor string
			nth    int // number of the frame that fails
			event  bool
			after  time.Duration
		}{"the first": {"", 1, false, 0}, "behind a cursor": {start, 2, false, 0}, "what happens": {"", 2, true, time.Second},
			"a beat": {"", 2, false, heartbeat}} {
			sent, began, opened := 0, time.Now(), false
			if c.event {
				go func() { time.Sleep(time.Second); f.rings.Happen(1, "c") }()
			}
			err := f.Watch(ctx, &pawlv1.WatchEventsRequest{Cursor: c.cursor, Kinds: []string{"task.*"}}, func() { opened = true },
				func(*pawlv1.WatchEventsResponse) error {
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
		if err := f.Watch(ctx, &pawlv1.WatchEventsRequest{}, func() {}, func(*pawlv1.WatchEventsResponse) error {
			return nil
		}); !errors.Is(err,
			task.ErrUnavailable) {
			t.Errorf("Watch while the node stops: %v, want unavailable", err)
		}
		if n := f.Streams.InUse(); n != 0 {
			t.Errorf("%d streams are still counted", n)
		}
	})
}

// slowEvents takes a second to stop waiting.
type slowEvents struct{ rings *watchtest.Rings }

func (e slowEvents) Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error) {
	page, err := e.rings.Events(ctx, shard, q)
	if ctx.Err() != nil {
		time.Sleep(time.Second)
	}
	return page, err
}

// A stream of events returns only when its reads have ended.
func TestWatchWaitsForItsReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWorld(1)
		var lines strings.Builder
		f.Source, f.Log = slowEvents{f.rings}, slog.New(slog.NewTextHandler(&lines, nil))
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		began := time.Now()
		_ = f.Watch(ctx, &pawlv1.WatchEventsRequest{}, func() {}, func(*pawlv1.WatchEventsResponse) error {
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
		f := newWorld(1)
		f.Source = &stillEvents{}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		ctx, _ = callinfo.Begin(ctx, "grpc", "test")
		told := 0
		_ = f.Watch(ctx, &pawlv1.WatchEventsRequest{Digest: durationpb.New(minDigest), Kinds: []string{"task.*"}}, func() {},
			func(r *pawlv1.WatchEventsResponse) error {
				told += len(r.GetEvents())
				return nil
			})
		if told != 1 {
			t.Errorf("%d changes were reported, want 1", told)
		}
	})
}

// panickyEvents reports the current place, and panics otherwise.
type panickyEvents struct{ rings *watchtest.Rings }

func (e panickyEvents) Events(ctx context.Context, shard uint32, q events.Query) (events.Page, error) {
	if q.Wait > 0 {
		panic("planted")
	}
	return e.rings.Events(ctx, shard, q)
}

// A panic while a shard is read ends the stream that reads it, and is logged.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, lines := newWorld(1), &strings.Builder{}
		f.Source, f.Log = panickyEvents{f.rings}, slog.New(slog.NewTextHandler(lines, nil))
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		began := time.Now()
		err := f.Watch(ctx, &pawlv1.WatchEventsRequest{Kinds: []string{"task.*"}}, func() {}, func(*pawlv1.WatchEventsResponse) error {
			return nil
		})
		if !errors.Is(err, context.Canceled) || time.Since(began) != 0 ||
			strings.Count(lines.String(), "a stream of events failed with an internal error") != 1 {
			t.Errorf("Watch ended with %v after %v, log is %s", err, time.Since(began), lines)
		}
	})
}

// flickering is a set of shards that answer while light is true, and record when they were asked.
type flickering struct {
	rings *watchtest.Rings
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
func TestSilentShardsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWorld(1)
		shards := &flickering{rings: f.rings, began: time.Now(), light: func(since time.Duration) bool {
			return since >= 9*time.Second &&
				since < 12*time.Second
		}}
		f.Source = shards
		ctx, leave := context.WithTimeout(t.Context(), 26*time.Second)
		defer leave()
		ctx, _ = callinfo.Begin(ctx, "grpc", "test")
		err := f.Watch(ctx, &pawlv1.WatchEventsRequest{Kinds: []string{"task.*"}}, func() {}, func(*pawlv1.WatchEventsResponse) error {
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Watch ended with %v, want deadline exceeded", err)
		}
		var got []string
		for _, at := range shards.asked {
			got = append(got, fmt.Sprint(at.Milliseconds()))
		}
		// First it is asked for its place, then again with doubled pauses of up to 2 s. An answer takes at most 10 s.
		if want := "0 0 100 300 700 1500 3100 5100 7100 9100 9100 19100 19200 19400 19800 20600 22200 24200"; strings.Join(got,
			" ") != want {
			t.Errorf("asked at %s ms, want %s", got, want)
		}
	})
}

// A heartbeat is sent when nothing was sent for a while. Events that don't match don't delay it.
func TestBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWorld(1)
		ctx, leave := context.WithTimeout(t.Context(), 61*time.Second)
		defer leave()
		ctx, _ = callinfo.Begin(ctx, "grpc", "test")
		go func() {
			time.Sleep(10 * time.Second)
			f.rings.Happen(1, "other")
			time.Sleep(15 * time.Second)
			f.rings.Happen(1, "a")
		}()
		began, got := time.Now(), ""
		_ = f.Watch(ctx, &pawlv1.WatchEventsRequest{Queue: new("a"), Kinds: []string{"task.*"}}, func() {},
			func(r *pawlv1.WatchEventsResponse) error {
				got += fmt.Sprintf("%d at %v; ", len(r.GetEvents()), time.Since(began).Round(time.Second))
				return nil
			})
		if want := "0 at 0s; 0 at 15s; 1 at 25s; 0 at 40s; 0 at 55s; "; got != want {
			t.Errorf("frames %s, want %s", got, want)
		}
	})
	for what, c := range map[string]struct {
		digest  *durationpb.Duration
		happens func(f *watchtest.Rings)
	}{
		"a change": {durationpb.New(time.Second), func(f *watchtest.Rings) { f.Happen(1, "a") }},
		"a reset":  {nil, func(f *watchtest.Rings) { f.ChangeLeader(1) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newWorld(1)
			ctx, leave := context.WithTimeout(t.Context(), 31*time.Second)
			defer leave()
			ctx, _ = callinfo.Begin(ctx, "grpc", "test")
			go func() { time.Sleep(10 * time.Second); c.happens(f.rings) }()
			began, got := time.Now(), ""
			_ = f.Watch(ctx, &pawlv1.WatchEventsRequest{Digest: c.digest, Kinds: []string{"task.*"}}, func() {},
				func(r *pawlv1.WatchEventsResponse) error {
					got += fmt.Sprintf("%d at %v; ", len(r.GetEvents()), time.Since(began).Round(time.Second))
					return nil
				})
			if want := "0 at 0s; 1 at 10s; 0 at 25s; "; got != want {
				t.Errorf("with %s: frames %s, want %s", what, got, want)
			}
		})
	}
}

// A caller that comes back with the cursor of an event gets those behind it, and what happens from then on.
func TestCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWorld(1)
		l := f.subscribe(t, &pawlv1.WatchEventsRequest{Kinds: []string{"task.*"}})
		f.rings.Happen(1, "a", "b", "c")
		l.expect("what happens", "task.dead 1 a")
		first := l.cursor
		l.expect("what happens", "task.dead 1 b")
		second := l.cursor
		l.end()
		l = f.subscribe(t, &pawlv1.WatchEventsRequest{Kinds: []string{"task.*"}, Cursor: second})
		l.expect("behind the second", "task.dead 1 c")
		f.rings.Happen(1, "d")
		l.expect("then", "task.dead 1 d")
		l.end()
		l = f.subscribe(t, &pawlv1.WatchEventsRequest{Kinds: []string{"task.*"}, Cursor: first})
		l.expect("behind the first", "task.dead 1 b", "task.dead 1 c", "task.dead 1 d")
		l.end()
	})
}
