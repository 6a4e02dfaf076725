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
	most  int64            // high-water mark of taken
	of    map[string]*part // the namespaces, and their callers, that hold or wait for some
}

// part is what one namespace may hold, or one caller of it.
type part struct {
	*semaphore.Weighted
	name  string
	users int
}

// NewMemoryPool returns a pool of size bytes.
func NewMemoryPool(size int64) *MemoryPool {
	return &MemoryPool{all: semaphore.NewWeighted(size), size: size, of: map[string]*part{}}
}

// PerNamespace returns how much a namespace may hold.
func (r *MemoryPool) PerNamespace() int64 { return r.size / 2 }

// PerCaller returns how much one caller of a namespace may hold.
func (r *MemoryPool) PerCaller() int64 { return r.size / 4 }

// Reserve waits for n bytes. It fails only if ctx ends first; otherwise the caller must call Release.
//
// A caller that holds some and waits for more of the same pool may deadlock: reserve everything at once, or from several pools in a
// fixed order.
func (r *MemoryPool) Reserve(ctx context.Context, ns string, n int64) (*Reservation, error) {
	return r.reserve(n, func(s *semaphore.Weighted) error { return s.Acquire(ctx, n) }, r.enter(ns, r.PerNamespace()))
}

// ReserveFor is Reserve for one of a namespace's callers.
func (r *MemoryPool) ReserveFor(ctx context.Context, ns, caller string, n int64) (*Reservation, error) {
	return r.reserve(n, func(s *semaphore.Weighted) error { return s.Acquire(ctx, n) }, r.enterFor(ns, caller)...)
}

// TryReserveFor is ReserveFor without waiting; nil: too little is free, or others wait.
func (r *MemoryPool) TryReserveFor(ns, caller string, n int64) *Reservation {
	h, _ := r.reserve(n, func(s *semaphore.Weighted) error {
		if !s.TryAcquire(n) {
			return context.DeadlineExceeded
		}
		return nil
	}, r.enterFor(ns, caller)...)
	return h
}

// reserve takes n bytes of some parts and then of the total: a caller that waits for its part holds nothing of the total.
func (r *MemoryPool) reserve(n int64, acquire func(*semaphore.Weighted) error, parts ...*part) (*Reservation, error) {
	h := &Reservation{pool: r, parts: parts}
	for i, p := range parts {
		if err := acquire(p.Weighted); err != nil {
			giveBack(parts[:i], n)
			h.Release()
			return nil, err
		}
	}
	if err := acquire(r.all); err != nil {
		giveBack(parts, n)
		h.Release()
		return nil, err
	}
	h.n = n
	r.count(n)
	return h, nil
}

func giveBack(parts []*part, n int64) {
	for _, p := range parts {
		p.Release(n)
	}
}

func (r *MemoryPool) enterFor(ns, caller string) []*part {
	return []*part{r.enter(ns+"\x00"+caller, r.PerCaller()), r.enter(ns, r.PerNamespace())}
}

func (r *MemoryPool) enter(name string, size int64) *part {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.of[name]
	if p == nil {
		p = &part{Weighted: semaphore.NewWeighted(size), name: name}
		r.of[name] = p
	}
	p.users++
	return p
}

func (r *MemoryPool) leave(parts []*part) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range parts {
		if p.users--; p.users == 0 {
			delete(r.of, p.name)
		}
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
	pool  *MemoryPool
	parts []*part
	n     int64
}

// Size returns how many bytes are held.
func (h *Reservation) Size() int64 { return h.n }

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
	giveBack(h.parts, less)
}

// Release gives back everything.
func (h *Reservation) Release() {
	if h == nil || h.parts == nil {
		return
	}
	h.Shrink(0)
	h.pool.leave(h.parts)
	h.parts = nil
}
