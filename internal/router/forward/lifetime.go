package forward

import (
	"context"
	"sync"
	"time"
)

// Lifetime says until when this node works, and holds what runs in the background until then.
type Lifetime struct {
	draining func() <-chan struct{}
	work     sync.WaitGroup // of Go
	ctx      context.Context
	stop     context.CancelFunc
	stay     context.Context // done when this node is about to stop
}

func (l *Lifetime) begin(draining func() <-chan struct{}) {
	l.draining = draining
	l.ctx, l.stop = context.WithCancel(context.Background())
	stay, leave := context.WithCancel(l.ctx)
	l.stay = stay
	l.work.Go(func() {
		defer leave()
		select {
		case <-l.Draining():
		case <-l.ctx.Done():
		}
	})
}

// Close ends searches for leaders, and all that Go has started. No call may begin after it.
func (l *Lifetime) Close() {
	l.stop()
	l.work.Wait()
}

// Go runs a function that ends when Context is done. Close waits for it.
func (l *Lifetime) Go(run func()) { l.work.Go(run) }

// Context is done at Close.
func (l *Lifetime) Context() context.Context { return l.ctx }

// UntilDrain returns a context for a wait at another node, which must not delay the end of this one.
func (l *Lifetime) UntilDrain(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(l.stay, cancel)
	return ctx, func() { forget(); cancel() }
}

// Draining returns a channel that is closed when this node is about to stop.
func (l *Lifetime) Draining() <-chan struct{} { return l.draining() }

// IsDraining reports whether this node is about to stop.
func (l *Lifetime) IsDraining() bool { return l.stay.Err() != nil }

// Sleep waits for d, or until ctx is done, or until Close.
func (l *Lifetime) Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-l.ctx.Done():
	}
}
