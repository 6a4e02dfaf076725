package events

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

var all = Filter{Namespace: "default"}

// happen feeds the ring with events that have these reasons.
func happen(r *Ring, index uint64, reasons ...string) {
	interest := r.Committed(index)
	if interest == None {
		return
	}
	var events []Event
	for _, reason := range reasons {
		events = append(events, Event{Kind: TaskDead, Namespace: "default", Queue: "q", Reason: reason})
	}
	r.Add(index, interest, events)
}

// read reads without waiting, and returns the reasons in one line.
func read(t *testing.T, r *Ring, f Filter, after Place) (string, Place) {
	t.Helper()
	page, err := r.Read(context.Background(), Query{Filter: f, After: after})
	if err != nil {
		t.Fatal(err)
	}
	return line(page), page.Next
}

func line(p Page) string {
	var all []string
	if p.Reset {
		all = append(all, "reset")
	}
	for _, e := range p.Events {
		all = append(all, e.Reason)
	}
	return strings.Join(all, " ")
}

func TestRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expect := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		r := &Ring{}
		if _, err := r.Read(t.Context(), Query{}); !errors.Is(err, ErrClosed) {
			t.Errorf("Read of a ring that was never opened: %v, want ErrClosed", err)
		}
		r.Open()
		happen(r, 5, "before")
		got, at := read(t, r, all, Place{})
		expect("a new reader", got, "")
		happen(r, 6, "a", "b")
		happen(r, 8, "c")
		got, next := read(t, r, all, at)
		expect("what happened", got, "a b c")
		got, _ = read(t, r, all, next)
		expect("behind it", got, "")
		got, _ = read(t, r, all, Place{at.Era, 6, 1})
		expect("behind the first of an entry", got, "b c")
		got, next = read(t, r, Filter{Namespace: "other"}, at)
		expect("of another namespace", got, "")
		happen(r, 9, "d")
		got, _ = read(t, r, all, next)
		expect("behind what did not matter", got, "d")
		got, next = read(t, r, all, Unknown)
		expect("from nowhere", got, "reset")
		happen(r, 10, "e")
		got, _ = read(t, r, all, next)
		expect("behind a reset", got, "e")

		// A reader that comes back soon gets everything, one that comes back late a reset; without readers nothing is kept.
		time.Sleep(keptFor - time.Second)
		happen(r, 11, "f")
		got, next = read(t, r, all, Place{at.Era, 10, wholeEntry})
		expect("soon", got, "f")
		time.Sleep(keptFor + time.Second)
		happen(r, 12, "g")
		happen(r, 13, "h")
		if len(r.entries) != 0 || r.Committed(13) != None {
			t.Errorf("%d entries are kept without a reader", len(r.entries))
		}
		got, _ = read(t, r, all, next)
		expect("late", got, "reset")

		// The next term knows nothing of the events before it.
		_, at = read(t, r, all, Place{})
		r.Close()
		if _, err := r.Read(t.Context(), Query{}); !errors.Is(err, ErrClosed) {
			t.Errorf("Read of a closed ring: %v, want ErrClosed", err)
		}
		r.Open()
		got, _ = read(t, r, all, at)
		expect("after a change of leaders", got, "reset")
	})
}

func TestRingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Ring{}
		r.Open()
		answers := make(chan string, 1)
		ask := func(wait time.Duration) {
			go func() {
				page, err := r.Read(context.Background(), Query{Filter: all, Wait: wait})
				answers <- fmt.Sprint(line(page), " ", err)
			}()
			synctest.Wait()
		}
		ask(time.Minute)
		began := time.Now()
		happen(r, 1, "a")
		time.Sleep(gatherTime / 2)
		happen(r, 2, "b")
		if got := <-answers; got != "a b <nil>" || time.Since(began) != gatherTime {
			t.Errorf("a waiting reader got %q after %v", got, time.Since(began))
		}
		ask(time.Second)
		if got := <-answers; got != " <nil>" {
			t.Errorf("a reader got %q when nothing happened", got)
		}
		ask(time.Hour)
		r.Close()
		if got := <-answers; !strings.Contains(got, "not led") {
			t.Errorf("a waiting reader got %q when the leader's term ended", got)
		}
	})
}

// Excess events are dropped, the oldest first, and readers that have not read them get a reset.
func TestRingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Ring{}
		r.Open()
		_, at := read(t, r, all, Place{})
		long := strings.Repeat("x", 1000)
		for i := range uint64(40) {
			happen(r, i+1, slices.Repeat([]string{long}, 1000)...)
		}
		if r.bytes > maxBytes || len(r.entries) < 5 {
			t.Errorf("the ring keeps %d bytes in %d entries", r.bytes, len(r.entries))
		}
		if got, _ := read(t, r, all, at); got != "reset" {
			t.Errorf("a reader whose place was dropped got %d bytes, want a reset", len(got))
		}
		page, err := r.Read(t.Context(), Query{Filter: all, After: Place{at.Era, 38, wholeEntry}})
		if err != nil || len(page.Events) > pageEvents || len(page.Events)*1200 > 2*pageBytes || page.Reset {
			t.Errorf("one page has %d events, %v", len(page.Events), err)
		}
		for next, n := page.Next, len(page.Events); ; {
			page, err := r.Read(t.Context(), Query{Filter: all, After: next})
			if err != nil || page.Reset {
				t.Fatal(page.Reset, err)
			}
			if n += len(page.Events); len(page.Events) == 0 {
				if n != 2000 {
					t.Errorf("%d events in all pages, want 2000", n)
				}
				break
			}
			next = page.Next
		}
		time.Sleep(time.Minute)
		read(t, r, all, Place{})
		happen(r, 100, "young")
		time.Sleep(maxAge - time.Second)
		_, _ = read(t, r, all, Place{})
		happen(r, 101, "younger")
		if len(r.entries) != 2 {
			t.Errorf("%d entries too many are kept beyond their time", len(r.entries)-2)
		}
	})
}

// Readers that come and go, with a ring that is fed and changes hands, see each event once, in order, or a reset.
func TestReadersMissNothing(t *testing.T) {
	r := &Ring{}
	r.Open()
	ctx, stop := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	for n := range 8 {
		readers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(n), 1))
			var at Place
			last, known := -1, false
			for ctx.Err() == nil {
				page, err := r.Read(ctx, Query{Filter: all, After: at, Wait: time.Duration(rnd.IntN(3)) * time.Millisecond})
				if err != nil {
					continue
				}
				if page.Reset || at == (Place{}) {
					known = false
				}
				for i, e := range page.Events {
					var got int
					fmt.Sscan(e.Reason, &got)
					if known && got != last+1 || got <= last {
						t.Errorf("reader %d: got event %d after %d", n, got, last)
					}
					last, known = got, true
					at = Place{page.Next.Era, e.Index, e.Number}
					if rnd.IntN(20) == 0 && i < len(page.Events)-1 {
						page.Next = at // as if the connection broke here
						break
					}
				}
				at = page.Next
			}
		})
	}
	next := 0
	for index := range uint64(3000) {
		if index%500 == 499 {
			r.Close()
			r.Open()
		}
		var reasons []string
		for range 1 + next%5 {
			reasons = append(reasons, fmt.Sprint(next))
			next++
		}
		happen(r, index+1, reasons...)
	}
	stop()
	readers.Wait()
}

func TestFilter(t *testing.T) {
	e := Event{Kind: TaskDead, Namespace: "default", Queue: "mail", Type: "welcome", Task: task.NewID(1, 1, 1)}
	for _, c := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true}, {Filter{Queue: "mail"}, true}, {Filter{Queue: "sms"}, false}, {Filter{Type: "welcome"}, true},
		{Filter{Type: "x"}, false}, {Filter{Task: e.Task}, true}, {Filter{Task: task.NewID(1, 1, 2)}, false},
		{Filter{Kinds: []Kind{TaskDead}},
			true}, {Filter{Kinds: []Kind{"task.*"}}, true},
		{Filter{Kinds: []Kind{"queue.*", TaskClaimed}}, false}, {Filter{Scope: task.Scope{Queues: []string{"m*"}}}, true},
		{Filter{Scope: task.Scope{Queues: []string{"s*"}}}, false},
	} {
		c.f.Namespace = "default"
		if got := c.f.matches(&e); got != c.want {
			t.Errorf("%+v matches: %v, want %v", c.f, got, c.want)
		}
	}
	e.At = time.Unix(7, 0)
	for since, want := range map[int64]bool{6: true, 7: true, 8: false} {
		if got := (&Filter{Namespace: "default", Since: time.Unix(since, 0)}).matches(&e); got != want {
			t.Errorf("an event at second 7 matches a filter since %d: %v, want %v", since, got, want)
		}
	}
	nowhere := Event{Kind: OperationDone, Namespace: "default"}
	if (&Filter{Namespace: "default", Scope: task.Scope{Queues: []string{"*"}}}).matches(&nowhere) {
		t.Error("an event without a queue is visible within a scope of queues")
	}
	for kind, ok := range map[Kind]bool{"task.dead": true, "task.*": true, "*": false, "task.": false, "task.d*": false,
		"": false, "x.*": false} {
		if err := CheckKinds("kind", []Kind{kind}); (err == nil) != ok {
			t.Errorf("CheckKinds(%q) = %v", kind, err)
		}
	}
	if CheckKinds("kind", make([]Kind, maxKinds+1)) == nil {
		t.Error("CheckKinds accepted too many kinds")
	}
}

func TestCursor(t *testing.T) {
	p := Places{0: {3, 1 << 40, wholeEntry}, 7: {1<<32 - 1, 0, 0}, 300: {5, 12, 3}}
	got, err := DecodePlaces(p.Encode())
	if err != nil || fmt.Sprint(got) != fmt.Sprint(p) {
		t.Errorf("%v was decoded as %v, %v", p, got, err)
	}
	for _, bad := range [][]byte{{1}, {1, 0, 0, 0, 1}, {0xff}, {1, 0, 0, 0, 0, 1, 1}, slices.Concat(Places{1: {3, 1, 1}}.Encode(),
		Places{1: {3, 1, 1}}.Encode())} {
		if _, err := DecodePlaces(bad); err == nil {
			t.Errorf("DecodePlaces accepted %v", bad)
		}
	}
}

func FuzzDecodePlaces(f *testing.F) {
	f.Add(Places{0: {3, 1 << 40, wholeEntry}}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePlaces(b)
		if err != nil {
			return
		}
		if again, err := DecodePlaces(p.Encode()); err != nil || fmt.Sprint(again) != fmt.Sprint(p) {
			t.Errorf("%v was decoded again as %v, %v", p, again, err)
		}
	})
}

// The cost of an entry of ten events to the shard's loop: without readers, and with fifty.
func BenchmarkAdd(b *testing.B) {
	for _, readers := range []int{0, 1, 50} {
		b.Run(fmt.Sprint(readers, " readers"), func(b *testing.B) {
			r := &Ring{}
			r.Open()
			ctx, stop := context.WithCancel(context.Background())
			var reading sync.WaitGroup
			for range readers {
				reading.Go(func() {
					var at Place
					for ctx.Err() == nil {
						page, err := r.Read(ctx, Query{Filter: Filter{Namespace: "default", Queue: "none"}, After: at, Wait: time.Second})
						if err != nil {
							return
						}
						at = page.Next
					}
				})
			}
			for readers > 0 && !r.armed.Load() {
				time.Sleep(time.Millisecond)
			}
			index := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				index++
				if interest := r.Committed(index); interest != None {
					events := make([]Event, 10)
					for i := range events {
						events[i] = Event{Kind: TaskClaimed, Namespace: "default", Queue: "q", Type: "job"}
					}
					r.Add(index, interest, events)
				}
			}
			stop()
			reading.Wait()
		})
	}
}
