package admission

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// MemoryPool is an amount of memory, in bytes, for what runs at once. Who finds too little waits. Its methods may be called from any goroutine.
type MemoryPool struct {
	all  *semaphore.Weighted
	size int64

	mu    sync.Mutex
	taken int64
	most  int64                     // that was ever taken
	of    map[string]*namespacePool // the namespaces that hold or want some
}

type namespacePool struct {
	*semaphore.Weighted
	users int
}

// NewMemoryPool makes a pool of so many bytes.
func NewMemoryPool(size int64) *MemoryPool {
	return &MemoryPool{all: semaphore.NewWeighted(size), size: size, of: map[string]*namespacePool{}}
}

// PerNamespace is how much a namespace may have.
func (r *MemoryPool) PerNamespace() int64 { return r.size / 2 }

// Reserve waits for n bytes. An error means that ctx has ended first; without one the caller must call Release.
//
// Who holds some and waits for more of the same pool may wait forever: reserve all at once, or from several pools in a fixed order.
func (r *MemoryPool) Reserve(ctx context.Context, ns string, n int64) (*Reservation, error) {
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
	return &Reservation{pool: r, own: own, ns: ns, n: n}, nil
}

func (r *MemoryPool) enter(ns string) *namespacePool {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.of[ns]
	if own == nil {
		own = &namespacePool{Weighted: semaphore.NewWeighted(r.PerNamespace())}
		r.of[ns] = own
	}
	own.users++
	return own
}

func (r *MemoryPool) leave(ns string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[ns].users--; r.of[ns].users == 0 {
		delete(r.of, ns)
	}
}

func (r *MemoryPool) count(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken += n
	r.most = max(r.most, r.taken)
}

// InUse is how many bytes are held, and how many were at most.
func (r *MemoryPool) InUse() (now, most int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken, r.most
}

// Reservation is memory of a pool that is reserved. One goroutine at a time uses it. The nil Reservation is of no memory.
type Reservation struct {
	pool *MemoryPool
	own  *namespacePool
	ns   string
	n    int64
}

// Shrink gives back all but n bytes, if more are held; less than none are none.
func (h *Reservation) Shrink(n int64) {
	n = max(n, 0)
	if h == nil || h.n <= n {
		return
	}
	less := h.n - n
	h.n = n
	h.pool.count(-less) // before others can take it
	h.pool.all.Release(less)
	h.own.Release(less)
}

// Release gives back what is held.
func (h *Reservation) Release() {
	if h == nil || h.own == nil {
		return
	}
	h.Shrink(0)
	h.pool.leave(h.ns)
	h.own = nil
}
