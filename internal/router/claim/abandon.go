package claim

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// maxAbandoned bounds the claims with lost answers that are looked after at a time. Those of others are held until their leases end.
	maxAbandoned = 100_000
	// maxAbandonKeys bounds the claims that one call abandons.
	maxAbandonKeys = 1000
	// abandonMin and abandonMax bound how long to try: as long as the lease, after which the tasks are free.
	abandonMin = 10 * time.Second
	abandonMax = 10 * time.Minute
	// abandonPause is the pause between two attempts, in addition to the search for the leader that each involves.
	abandonPause = time.Second
)

// abandons are the claims whose answers were lost. A goroutine for each of their shards abandons as many as it can with one call: a node
// that stops has thousands that wait.
type abandons struct {
	forward *forward.Forwarder
	log     *slog.Logger

	mu      sync.Mutex
	byShard map[uint32][]lostClaim // a shard has an entry while its goroutine runs
	all     int
}

// lostClaim is what nobody has received of a claim.
type lostClaim struct {
	key   claimKeyName
	until time.Time // when its lease ends
}

// claimKeyName is the key of a claim in a shard.
type claimKeyName struct{ Namespace, Key string }

type abandonArgs struct {
	Shard uint32
	Keys  []claimKeyName
}

// TargetShard implements verb.Sharded.
func (q *abandonArgs) TargetShard() uint32 { return q.Shard }

type abandonAnswer struct {
	Tasks  int   // that were given back
	Failed []int // the indexes of the keys to try again
}

// Abandon gives back, in the background, what a claim of unknown outcome may have got. The claim must have a key that will not be used
// again.
func (c *Claims) Abandon(shard uint32, call broker.ClaimCall) {
	lease := call.Lease
	if lease == 0 {
		lease = task.DefaultSettings().Lease
	}
	until := time.Now().Add(min(max(lease, abandonMin), abandonMax))
	c.abandoned.add(shard, lostClaim{claimKeyName{call.Namespace, call.ClaimKey}, until})
}

func (a *abandons) add(shard uint32, lost lostClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all >= maxAbandoned {
		a.log.Warn("a claim whose answer was lost waits for the end of its leases: too many are looked after", "shard", shard)
		return
	}
	a.all++
	if a.byShard == nil {
		a.byShard = map[uint32][]lostClaim{}
	}
	if a.byShard[shard] == nil {
		a.forward.Life.Go(func() { a.run(shard) })
	}
	a.byShard[shard] = append(a.byShard[shard], lost)
}

// run abandons the claims of a shard until there are none.
func (a *abandons) run(shard uint32) {
	life := a.forward.Life.Context()
	for {
		keys, until := a.next(shard)
		if len(keys) == 0 {
			return
		}
		ctx, cancel := context.WithDeadline(life, until)
		answer, err := forward.Call(ctx, a.forward, abandonClaims, shard, abandonArgs{shard, keys})
		if answer.Tasks > 0 {
			a.log.Info("claims whose answer was lost were given back", "shard", shard, "tasks", answer.Tasks)
		}
		a.drop(shard, len(keys), func(i int) bool { return err == nil && !slices.Contains(answer.Failed, i) })
		if err != nil || len(answer.Failed) > 0 {
			a.forward.Life.Sleep(ctx, abandonPause)
		}
		cancel()
		if life.Err() != nil {
			return
		}
	}
}

// next returns the first claims of a shard, and when the last of their leases ends. Those whose leases have ended are forgotten. Without
// claims, the shard's goroutine is done.
func (a *abandons) next(shard uint32) (keys []claimKeyName, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, all := time.Now(), len(a.byShard[shard])
	left := slices.DeleteFunc(a.byShard[shard], func(l lostClaim) bool { return !now.Before(l.until) })
	if ended := all - len(left); ended > 0 {
		a.all -= ended
		a.log.Info("claims whose answers were lost wait for the end of their leases", "shard", shard, "claims", ended)
	}
	if len(left) == 0 {
		delete(a.byShard, shard)
		return nil, until
	}
	a.byShard[shard] = left
	for _, l := range left[:min(len(left), maxAbandonKeys)] {
		keys = append(keys, l.key)
		if l.until.After(until) {
			until = l.until
		}
	}
	return keys, until
}

// drop forgets those of the first n claims of a shard that are done. The others move to the end, so that they don't hold up the rest.
func (a *abandons) drop(shard uint32, n int, done func(i int) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	lost, again := a.byShard[shard], []lostClaim(nil)
	for i, l := range lost[:n] {
		if !done(i) {
			again = append(again, l)
		}
	}
	a.byShard[shard] = append(slices.Delete(lost, 0, n), again...)
	a.all -= n - len(again)
}

func (a *abandons) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all
}

// abandonHere finds what claim keys got, by claiming from no queue, and releases it. Finding claims marks them as repeated, so that
// GiveBack would be refused; but nobody else has the keys. If all keys fail, it returns an error, which may say which node leads the shard.
func (c *Claims) abandonHere(ctx context.Context, a abandonArgs) (answer abandonAnswer, err error) {
	served := make([]*servedClaim, len(a.Keys))
	for i, k := range a.Keys {
		served[i] = c.served.cancel(claimID{a.Shard, k.Namespace, k.Key})
	}
	released, errs := make([]int, len(a.Keys)), make([]error, len(a.Keys))
	var calls sync.WaitGroup
	for i, k := range a.Keys {
		calls.Go(func() {
			if s := served[i]; s != nil {
				if <-s.ended; !s.got {
					return // it was waiting here all the time
				}
			}
			released[i], errs[i] = c.release(ctx, a.Shard, k)
		})
	}
	calls.Wait()
	for i := range a.Keys {
		if errs[i] != nil {
			answer.Failed = append(answer.Failed, i)
		} else {
			answer.Tasks += released[i]
		}
	}
	if len(answer.Failed) == len(a.Keys) {
		return abandonAnswer{}, errors.Join(errs...)
	}
	return answer, nil
}

func (c *Claims) release(ctx context.Context, shard uint32, k claimKeyName) (int, error) {
	got, err := c.claimHere(ctx, Claiming{Shard: shard, Call: broker.ClaimCall{Namespace: k.Namespace, ClaimKey: k.Key,
		Max: task.MaxClaim}})
	if err != nil || len(got.Out) == 0 {
		return 0, err
	}
	calls := make([]broker.Settle, len(got.Out))
	for i, t := range got.Out {
		calls[i] = broker.Settle{Verb: broker.Release, Hold: broker.Hold{Namespace: t.Namespace, ID: t.ID, Token: t.Token}}
	}
	return len(got.Out), c.settleHere(ctx, shard, calls)
}
