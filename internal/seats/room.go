package seats

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Room is memory, counted in bytes, for what runs at once. Who finds none waits. Its methods may be called from any goroutine.
type Room struct {
	all  *semaphore.Weighted
	size int64

	mu    sync.Mutex
	taken int64
	most  int64               // that was ever taken
	of    map[string]*ownRoom // the namespaces that hold or want some
}

type ownRoom struct {
	*semaphore.Weighted
	users int
}

// NewRoom has room for so many bytes.
func NewRoom(size int64) *Room {
	return &Room{all: semaphore.NewWeighted(size), size: size, of: map[string]*ownRoom{}}
}

// Each is how much a namespace may have.
func (r *Room) Each() int64 { return r.size / 2 }

// Take waits for n bytes. An error means that ctx has ended first; without one the caller must call Give.
//
// Who holds some and waits for more of the same room may wait forever: take all at once, or take from several rooms in a fixed order.
func (r *Room) Take(ctx context.Context, ns string, n int64) (*Held, error) {
	own := r.enter(ns)
	if err := own.Acquire(ctx, n); err != nil { // first, so that who waits for its own holds nothing of all
		r.leave(ns)
		return nil, err
	}
	if err := r.all.Acquire(ctx, n); err != nil {
		own.Release(n)
		r.leave(ns)
		return nil, err
	}
	r.count(n)
	return &Held{room: r, own: own, ns: ns, n: n}, nil
}

func (r *Room) enter(ns string) *ownRoom {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.of[ns]
	if own == nil {
		own = &ownRoom{Weighted: semaphore.NewWeighted(r.Each())}
		r.of[ns] = own
	}
	own.users++
	return own
}

func (r *Room) leave(ns string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[ns].users--; r.of[ns].users == 0 {
		delete(r.of, ns)
	}
}

func (r *Room) count(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken += n
	r.most = max(r.most, r.taken)
}

// Taken is how many bytes are held, and how many were at most.
func (r *Room) Taken() (now, most int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken, r.most
}

// Held is room that was taken. One goroutine at a time uses it. The nil Held is none.
type Held struct {
	room *Room
	own  *ownRoom
	ns   string
	n    int64
}

// Shrink gives back all but n bytes, if more are held; less than none are none.
func (h *Held) Shrink(n int64) {
	n = max(n, 0)
	if h == nil || h.n <= n {
		return
	}
	less := h.n - n
	h.n = n
	h.room.count(-less) // before others can take it
	h.room.all.Release(less)
	h.own.Release(less)
}

// Give gives back what is held.
func (h *Held) Give() {
	if h == nil || h.own == nil {
		return
	}
	h.Shrink(0)
	h.room.leave(h.ns)
	h.own = nil
}
