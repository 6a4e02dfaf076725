package access

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/gateway/listen"
)

// Refusals of wrong tokens are throttled by source address: the first ones are answered immediately, then a few per second. A
// caller with a valid token never waits, whatever else comes from its address, which may be that of a proxy (docs/decisions/0061).
const (
	wrongAtOnce = 20                     // wrong tokens of an address that are refused immediately
	wrongEvery  = 100 * time.Millisecond // interval between later ones
	longestWait = 5 * time.Second        // of a refusal
	maxWaiting  = 1000                   // refusals of a node; further ones are answered immediately
	maxSources  = 10_000                 // addresses remembered; beyond them, some start over
)

// throttle delays refusals. The zero value is ready to use. Its methods may be called from any goroutine.
type throttle struct {
	waiting atomic.Int64
	slowed  atomic.Uint64 // refusals delayed since the start

	mu   sync.Mutex
	next map[netip.Prefix]time.Time // when an address will have made up for its wrong tokens
}

// wait returns when a wrong token from an address may be refused, or when ctx ends.
func (t *throttle) wait(ctx context.Context, address string) {
	ip, _ := netip.ParseAddr(address) // zero if it is not an IP address: all of those are one source
	delay := t.delayFor(listen.SourceNetwork(ip), time.Now())
	if delay <= 0 {
		return
	}
	if t.waiting.Add(1) <= maxWaiting {
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

// delayFor records a wrong token, and returns how long to delay its refusal.
func (t *throttle) delayFor(from netip.Prefix, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == nil {
		t.next = map[netip.Prefix]time.Time{}
	}
	next, known := t.next[from]
	if !known && len(t.next) >= maxSources {
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

// forget makes room: it drops addresses whose time has passed, or else arbitrary ones. It frees at least an eighth, so that a flood
// of addresses does not scan all of them each time.
func (t *throttle) forget(now time.Time) {
	for from, next := range t.next {
		if next.Before(now) {
			delete(t.next, from)
		}
	}
	for from := range t.next {
		if len(t.next) <= maxSources-maxSources/8 {
			return
		}
		delete(t.next, from)
	}
}
