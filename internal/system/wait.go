package system

import (
	"context"
	"sync"
	"time"
)

// MaxAsking bounds the calls that run concurrently. All shards of a cluster can be asked, or changed, at once: none waits for others that
// hang.
const MaxAsking = 65

// Each calls fn for 0 to n-1, up to MaxAsking concurrently, and waits for all.
func Each(n int, fn func(i int)) {
	var all sync.WaitGroup
	room := make(chan struct{}, MaxAsking)
	for i := range n {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			fn(i)
		})
	}
	all.Wait()
}

// Sleep waits for d, or until ctx is done.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
