package access

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
)

// The rates of namespaces are enforced at each node separately: they protect the node that decodes and routes. A bucket holds one
// second's worth, but at least one payload of the largest size.

// rates are the buckets of the namespaces that have any.
type rates struct {
	payload int // the largest, in bytes

	mu      sync.Mutex
	of      map[string]*ratesOf
	refused map[refusedBy]int64
}

type ratesOf struct {
	requests, bytes *rate.Limiter // nil: not used yet
}

// refusedBy is a namespace and the quota that refused something.
type refusedBy struct {
	ns    string
	quota task.Quota
}

func newRates(payload int) *rates {
	return &rates{payload: payload, of: map[string]*ratesOf{}, refused: map[refusedBy]int64{}}
}

// TakeBytes takes what a task sends from its namespace's rates. The call itself counts as the request for its first task.
func (g *Guard) TakeBytes(ctx context.Context, calls int, size int64) error {
	ns := callinfo.Namespace(ctx)
	return g.Rates.Take(ns, g.auth.Quotas(ns), calls, int(size))
}

// TakeGroup does that for the members of a group, which are admitted all or none.
func (g *Guard) TakeGroup(ctx context.Context, members []task.Spec) error {
	size := int64(0)
	for i := range members {
		size += members[i].Size()
	}
	return g.TakeBytes(ctx, max(len(members)-1, 0), size)
}

// Take takes tokens for some calls and bytes of a namespace, or refuses them.
func (r *rates) Take(ns string, q task.Quotas, calls, bytes int) error {
	if q.Requests == 0 && q.Bytes == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.of[ns]
	if b == nil {
		b = &ratesOf{}
		r.of[ns] = b
	}
	now := time.Now()
	if err := r.takeFrom(&b.requests, now, ns, task.QuotaRequests, q.Requests, max(q.Requests, 1), calls); err != nil {
		return err
	}
	return r.takeFrom(&b.bytes, now, ns, task.QuotaBytes, q.Bytes, max(q.Bytes, int64(r.payload)), bytes)
}

// takeFrom takes from one bucket. A bucket that is new, or whose rate has changed, is full.
func (r *rates) takeFrom(bucket **rate.Limiter, now time.Time, ns string, quota task.Quota, limit, burst int64, n int) error {
	if limit == 0 || n == 0 {
		return nil
	}
	if *bucket == nil || (*bucket).Limit() != rate.Limit(limit) {
		*bucket = rate.NewLimiter(rate.Limit(limit), int(burst))
	}
	l := *bucket
	n = min(n, int(burst)) // a task larger than the bucket, because of its follow-ups, takes all of it
	if l.AllowN(now, n) {
		return nil
	}
	r.refused[refusedBy{ns, quota}]++
	wait := time.Duration((float64(n) - l.TokensAt(now)) / float64(limit) * float64(time.Second))
	return &task.Error{Code: task.CodeRateLimited, Reason: string(quota), RetryAfter: max(wait, time.Millisecond),
		Message: fmt.Sprintf("namespace %q: more than its %s of %d on this node", ns, quota, limit)}
}

// RefusedByRate returns how often a rate of a namespace has refused something at this node.
func (g *Guard) RefusedByRate(ns string, quota task.Quota) int64 {
	g.Rates.mu.Lock()
	defer g.Rates.mu.Unlock()
	return g.Rates.refused[refusedBy{ns, quota}]
}
