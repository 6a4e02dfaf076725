package events

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// heart is a reader with a pulse.
type heart struct {
	t  *testing.T
	r  *Ring
	q  Query
	at Place
}

func (h *heart) feel(wait time.Duration) string {
	h.t.Helper()
	q := h.q
	q.After, q.Wait = h.at, wait
	page, err := h.r.Read(context.Background(), q)
	switch {
	case errors.Is(err, ErrClosed):
		return "closed"
	case err != nil:
		h.t.Fatal(err)
	case len(page.Events) > 0:
		h.t.Errorf("a pulse returned events: %+v", page)
	}
	h.at = page.Next
	switch {
	case page.Reset:
		return "reset"
	case page.Changed:
		return "changed"
	}
	return "quiet"
}

func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Ring{}
		r.Open()
		h := &heart{t: t, r: r, q: Query{Filter: all, Pulse: 1}}
		other := &heart{t: t, r: r, q: Query{Filter: Filter{Namespace: "default", Queue: "other"}, Pulse: 2}}
		expect := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		happen(r, 1, "before")
		expect("the first look", h.feel(0), "quiet")
		expect("the first look of another", other.feel(0), "quiet")
		expect("nothing happens", h.feel(time.Second), "quiet")
		happen(r, 2, "a")
		happen(r, 3, "b", "c")
		before := h.at
		expect("much happened", h.feel(0), "changed")
		expect("and is told once", h.feel(time.Second), "quiet")
		expect("what nobody asked for", other.feel(time.Second), "quiet")
		h.at = before
		expect("an answer that was lost", h.feel(0), "changed")
		if len(r.entries) != 0 || r.armed.Load() {
			t.Errorf("%d entries are kept although only pulses are read", len(r.entries))
		}

		began := time.Now()
		time.AfterFunc(time.Second, func() { happen(r, 4, "d") })
		expect("while it waits", h.feel(time.Minute), "changed")
		if took := time.Since(began); took != time.Second+pulseGather {
			t.Errorf("the change was reported after %v", took)
		}
		happen(r, 5, "e")
		if r.Committed(6) != Look {
			t.Error("Committed does not ask for events, although the other reader waits for them")
		}
		time.Sleep(2 * pulseKept)
		happen(r, 7, "f")
		if len(r.pulses) != 0 || r.waitingPulses.Load() != 0 || r.Committed(8) != None {
			t.Errorf("after all readers left %d pulses are kept, %d of them waiting", len(r.pulses), r.waitingPulses.Load())
		}
		expect("who comes back", h.feel(0), "reset")
		expect("and then", h.feel(time.Second), "quiet")

		time.AfterFunc(time.Second, r.Open) // as the same leader: the ring stays open
		expect("no other era", h.feel(2*time.Second), "quiet")
		time.AfterFunc(time.Second, func() { r.Close(); r.Open() })
		expect("another era while it waits", h.feel(time.Minute), "reset")
		time.AfterFunc(time.Second, r.Close)
		expect("the end while it waits", h.feel(time.Minute), "closed")
		if len(r.pulses) != 0 || r.waitingPulses.Load() != 0 {
			t.Errorf("after the era ended %d pulses are kept, %d of them waiting", len(r.pulses), r.waitingPulses.Load())
		}
	})
}

// TestNoPulseIsLost has readers that read now and then while much happens: each learns of a change up to the last event.
func TestNoPulseIsLost(t *testing.T) {
	r := &Ring{}
	r.Open()
	const last = 3000
	var readers, ready sync.WaitGroup
	for n := range uint64(8) {
		ready.Add(1)
		readers.Go(func() {
			q := Query{Filter: all, Pulse: n + 1}
			page, err := r.Read(context.Background(), q)
			ready.Done()
			q.Wait = time.Minute // none waits in vain
			for err == nil && !(page.Changed && page.Next.Index == last) {
				if q.After = page.Next; rand.IntN(4) == 0 && page.Changed {
					q.After.Index-- // as if the answer had been lost
				}
				if page, err = r.Read(context.Background(), q); err == nil && !page.Changed {
					t.Errorf("reader %d got no change after %d", n, q.After.Index)
					return
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	ready.Wait()
	for i := range uint64(last) {
		happen(r, i+1, "x")
	}
	readers.Wait()
	if got := r.waitingPulses.Load(); int(got) > len(r.pulses) || got < 0 {
		t.Errorf("%d pulses are waiting, of %d", got, len(r.pulses))
	}
}
