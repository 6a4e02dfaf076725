package admission

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// MemoryPool is an amount of memory, in bytes, shared by concurrent users, who wait while too little is free. Its methods may be
// called from any goroutine.
type MemoryPool struct {
	all  *semaphore.Weighted
	size int64

	mu    sync.Mutex
	taken int64
	most  int64                     // high-water mark of taken
	of    map[string]*namespacePool // the namespaces that hold or wait for some
}

type namespacePool struct {
	*semaphore.Weighted
	users int
}

// NewMemoryPool returns a pool of size bytes.
func NewMemoryPool(size int64) *MemoryPool {
	return &MemoryPool{all: semaphore.NewWeighted(size), size: size, of: map[string]*namespacePool{}}
}

// PerNamespace returns how much a namespace may hold.
func (r *MemoryPool) PerNamespace() int64 { return r.size / 2 }

// Reserve waits for n bytes. It fails only if ctx ends first; otherwise the caller must call Release.
//
// A caller that holds some and waits for more of the same pool may deadlock: reserve everything at once, or from several pools in a
// fixed order.
func (r *MemoryPool) Reserve(ctx context.Context, ns string, n int64) (*Reservation, error) {
	own := r.enter(ns)
	if err := own.Acquire(ctx, n); err != nil { // first: a caller that waits for its namespace's share holds nothing of the total
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

// InUse returns how many bytes are held now, and the most that ever were.
func (r *MemoryPool) InUse() (now, most int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken, r.most
}

// Reservation is reserved memory of a pool. It must not be used concurrently. A nil Reservation holds nothing.
type Reservation struct {
	pool *MemoryPool
	own  *namespacePool
	ns   string
	n    int64
}

// Shrink gives back all but n bytes, if more are held. A negative n counts as 0.
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

// Release gives back everything.
func (h *Reservation) Release() {
	if h == nil || h.own == nil {
		return
	}
	h.Shrink(0)
	h.pool.leave(h.ns)
	h.own = nil
}
