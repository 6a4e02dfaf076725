package admission

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// Waiters get a pool's memory in turn, a namespace up to half of it, and released memory goes to those who wait.
func TestMemoryPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewMemoryPool(100)
		wants := func(what string, now, most int64) {
			t.Helper()
			if n, m := r.InUse(); n != now || m != most {
				t.Errorf("%s: %d bytes in use, %d at the peak, want %d and %d", what, n, m, now, most)
			}
		}
		take := func(ns string, n int64) chan *Reservation {
			got := make(chan *Reservation, 1)
			go func() {
				h, err := r.Reserve(t.Context(), ns, n)
				if err != nil {
					t.Error(err)
				}
				got <- h
			}()
			synctest.Wait()
			return got
		}
		waits := func(what string, got chan *Reservation) {
			t.Helper()
			synctest.Wait()
			if len(got) != 0 {
				t.Errorf("%s: the reservation was granted, want it to wait", what)
			}
		}

		a := <-take("a", 50)
		own := take("a", 1)
		waits("more than half of it for one namespace", own)
		b := <-take("b", 40)
		all := take("c", 20)
		waits("more than there is", all)
		wants("two have some", 90, 90)

		a.Shrink(60)
		wants("nothing is given back to have more", 90, 90)
		a.Shrink(30)
		c, more := <-all, <-own
		wants("when some is given back", 91, 91)
		for _, h := range []*Reservation{a, a, b, c, more, nil} { // also twice
			h.Shrink(-1)
			h.Release()
		}
		wants("in the end", 0, 91)
		if len(r.of) != 0 {
			t.Errorf("%d namespaces are still tracked after everything was released", len(r.of))
		}
	})
}

// A caller that gives up waiting keeps nothing.
func TestCancelledWaitKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewMemoryPool(100)
		a, _ := r.Reserve(t.Context(), "a", 40)
		b, _ := r.Reserve(t.Context(), "b", 40)
		for _, ns := range []string{"a", "c"} { // one for its namespace's half, one for the total
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := r.Reserve(ctx, ns, 30)
				failed <- err
			}()
			synctest.Wait()
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: Reserve = %v, want context.Canceled", ns, err)
			}
		}
		if len(r.of) != 2 || r.of["a"].users != 1 {
			t.Errorf("%d namespaces are tracked, want 2; namespace a has %d users, want 1", len(r.of), r.of["a"].users)
		}
		a.Release()
		b.Release()
		if len(r.of) != 0 {
			t.Errorf("%d namespaces are still tracked after everything was released", len(r.of))
		}
		for _, ns := range []string{"a", "b"} {
			if _, err := r.Reserve(t.Context(), ns, 50); err != nil {
				t.Errorf("%s could not reserve all of its half: %v", ns, err)
			}
		}
	})
}

// A caller whose wait is cancelled leaves its namespace the whole of its half.
func TestPoolIsWholeAfterCancelledWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewMemoryPool(100)
		for ns, n := range map[string]int64{"a": 50, "b": 30, "c": 1} {
			if _, err := r.Reserve(t.Context(), ns, n); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if _, err := r.Reserve(ctx, "c", 30); err == nil {
				t.Error("Reserve granted memory that was not available")
			}
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !r.of["c"].TryAcquire(49) {
			t.Error("the namespace lost the share of the caller whose wait was cancelled")
		}
	})
}

// A caller may hold a quarter of the pool, which leaves its namespace as much again, and one that does not wait gets nothing before those
// who do.
func TestPoolIsSharedByCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewMemoryPool(100)
		try := func(what, ns, caller string, n int64, want bool) *Reservation {
			t.Helper()
			h := r.TryReserveFor(ns, caller, n)
			if got := h != nil; got != want {
				t.Errorf("%s: granted = %v, want %v", what, got, want)
			}
			return h
		}
		one := try("a quarter", "a", "x", 25, true)
		try("more than a quarter for one caller", "a", "x", 1, false)
		two := try("another caller", "a", "y", 25, true)
		try("more than half for one namespace", "a", "z", 1, false)
		three := try("the caller of the same name of another namespace", "b", "x", 20, true)
		if n, _ := r.InUse(); n != 70 || one.Size() != 25 {
			t.Errorf("%d bytes in use, %d by the first, want 70 and 25", n, one.Size())
		}
		waiting := make(chan *Reservation, 1)
		go func() {
			h, err := r.ReserveFor(t.Context(), "a", "x", 10)
			if err != nil {
				t.Error(err)
			}
			waiting <- h
		}()
		synctest.Wait()
		one.Shrink(20)
		try("what another call of the caller waits for", "a", "x", 1, false)
		two.Shrink(20)
		one.Shrink(15)
		four := <-waiting
		for _, h := range []*Reservation{one, two, three, four} {
			h.Release()
		}
		if n, _ := r.InUse(); n != 0 || len(r.of) != 0 {
			t.Errorf("%d bytes and %d parts are still in use", n, len(r.of))
		}
	})
}
