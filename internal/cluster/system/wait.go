package system

import (
	"context"
	"sync"
	"time"
)

// MaxAsking bounds the shards that are asked, or changed, concurrently.
const MaxAsking = 8

// Each calls fn for 0 to n-1, a few concurrently, and waits for all.
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
