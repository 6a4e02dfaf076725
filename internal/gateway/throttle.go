package gateway

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Refusals of wrong tokens are slowed down by the address that they come from: the first are answered at once, then so many a second. A
// caller with a good token never waits, whatever else comes from its address, which may be that of a proxy (docs/decisions/0061).
const (
	wrongAtOnce = 20                     // wrong tokens of an address that are refused at once
	wrongEvery  = 100 * time.Millisecond // between two of those that follow
	longestWait = 5 * time.Second        // for a refusal
	mostWaiting = 1000                   // refusals of a node; the next are answered at once
	mostSources = 10_000                 // addresses that are remembered; beyond them, some begin anew
)

// throttle slows down refusals. The zero throttle is ready. Its methods may be called from any goroutine.
type throttle struct {
	waiting atomic.Int64
	slowed  atomic.Uint64 // refusals that waited, since the start

	mu   sync.Mutex
	next map[netip.Prefix]time.Time // when an address would be even, if no more wrong tokens came from it
}

// wait returns when a wrong token from an address may be refused, or when ctx ends.
func (t *throttle) wait(ctx context.Context, address string) {
	ip, _ := netip.ParseAddr(address) // zero if it is none: all of those are one source
	delay := t.take(sourceNetwork(ip), time.Now())
	if delay <= 0 {
		return
	}
	if t.waiting.Add(1); t.waiting.Load() <= mostWaiting {
		t.slowed.Add(1)
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	t.waiting.Add(-1)
}

// take notes a wrong token, and says how long its refusal is to wait.
func (t *throttle) take(from netip.Prefix, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == nil {
		t.next = map[netip.Prefix]time.Time{}
	}
	next, known := t.next[from]
	if !known && len(t.next) >= mostSources {
		t.forget(now)
	}
	if next.Before(now) {
		next = now
	}
	next = next.Add(wrongEvery)
	delay := next.Sub(now) - wrongAtOnce*wrongEvery
	if delay > longestWait {
		delay, next = longestWait, now.Add(longestWait+wrongAtOnce*wrongEvery)
	}
	t.next[from] = next
	return delay
}

// forget makes room: for what is even, or else for any. It frees an eighth at least, so that a flood of addresses is not a scan of all for each.
func (t *throttle) forget(now time.Time) {
	for from, next := range t.next {
		if next.Before(now) {
			delete(t.next, from)
		}
	}
	for from := range t.next {
		if len(t.next) <= mostSources-mostSources/8 {
			return
		}
		delete(t.next, from)
	}
}

// sourceNetwork is what counts as one source of calls: an address, or of IPv6 the network of 64 bits, in which a machine has any number of
// addresses. It is zero for the zero address.
func sourceNetwork(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap()
	from, _ := ip.Prefix(min(ip.BitLen(), 64)) // fails only for the zero address
	return from
}
