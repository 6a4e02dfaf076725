package statistics

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/task"
)

// Sharing reads figures for which all nodes are asked once for all viewers of the web UI who want them at the same time,
// or up to sharedFor later: its pages refresh themselves. Other callers read for themselves: they may have changed
// something since a read began.
type Sharing struct {
	mu    sync.Mutex
	reads map[string]*sharedRead
}

// sharedFor is how long a page may show what was read for another. A page refreshes once a second at most, so the
// refresh after an event does not get what was read for the same page before it.
const sharedFor = time.Second / 2

type sharedRead struct {
	done  chan struct{} // closed when value and err are set
	until time.Time     // for how long pages show it; zero: it is still being read. Guarded by Sharing.mu
	value any
	err   error
}

// share returns what read returns, or what it returned to another viewer with the same rights; what identifies the
// figures within a namespace. A read that has begun is completed even if its viewer goes away.
func share[T any](ctx context.Context, s *Sharing, what string, read func(context.Context) (T, error)) (T, error) {
	if s == nil {
		return read(ctx)
	}
	call := callinfo.Of(ctx)
	if iface, _ := callinfo.Source(ctx, call); iface != task.InterfaceUI {
		return read(ctx)
	}
	key := fmt.Sprintf("%q %d %t %#v %s", call.Namespace, call.Began.UnixNano(), call.Principal.InAll(), call.Principal.Queues, what)
	s.mu.Lock()
	r := s.reads[key]
	if r == nil || !r.until.IsZero() && !time.Now().Before(r.until) {
		if s.reads == nil {
			s.reads = map[string]*sharedRead{}
		}
		r = &sharedRead{done: make(chan struct{})}
		s.reads[key] = r
		s.mu.Unlock()
		r.err = parallel.Safely(func() (err error) {
			r.value, err = read(context.WithoutCancel(ctx))
			return err
		})
		s.end(key, r)
	} else {
		s.mu.Unlock()
		select {
		case <-r.done:
		case <-ctx.Done():
			return *new(T), ctx.Err()
		}
	}
	value, _ := r.value.(T)
	return value, r.err
}

// end lets the others have what was read, and forgets it when it is too old.
func (s *Sharing) end(key string, r *sharedRead) {
	s.mu.Lock()
	if r.until = time.Now().Add(sharedFor); r.err != nil {
		r.until = time.Now()
	}
	s.mu.Unlock()
	close(r.done)
	time.AfterFunc(sharedFor, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.reads[key] == r {
			delete(s.reads, key)
		}
	})
}
