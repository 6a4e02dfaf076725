package gateway

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
)

// A claim over several shards can't be a single claim, because no shard knows what the others have, and asking all of them in
// parallel would claim too much. So they are asked one after the other, in the order of the claim, without waiting. If none has a
// task, the claim watches all of them, and asks again when one reports a task. The parts of a spread queue are asked in random
// order, after those that drain, and starting with the one that has just reported a task.

// manyClaim is one pass of a claim over several shards.
type manyClaim struct {
	g      *claims
	call   broker.ClaimCall
	places [][]uint32    // one per queue
	asked  map[place]int // how often each was asked
	got    []broker.Claimed
	bytes  int
	failed error // from a shard that did not answer
	served bool  // whether any shard answered
	lost   lostParts
}

// lostParts are the calls of a claim that got no answer but may have claimed tasks. Repeating a call with its key, in a later pass,
// returns what the first one claimed.
type lostParts map[lostPart]broker.ClaimCall

type lostPart struct {
	shard uint32
	key   string
}

// abandon releases what nobody will ask for again, because the claim is answered without it.
func (g *claims) abandon(lost lostParts) {
	for p, c := range lost {
		g.broker.Abandon(p.shard, c)
	}
}

// place is a queue of a claim, by index, in a shard.
type place struct {
	queue int
	shard uint32
}

// takeMany is take over several shards. Shards that don't answer are skipped, unless none answers.
func (g *claims) takeMany(ctx context.Context, c broker.ClaimCall, places [][]uint32, wait time.Duration) ([]broker.Claimed, error) {
	deadline := time.Now().Add(wait)
	if again := g.reclaim(ctx, c, places); len(again) > 0 {
		return again, nil
	}
	lost := lostParts{}
	for {
		m := &manyClaim{g: g, call: c, places: places, asked: map[place]int{}, lost: lost}
		if c.Weighted {
			m.weighted(ctx)
		} else {
			m.strict(ctx)
		}
		left := time.Until(deadline)
		switch {
		case len(m.got) > 0:
			g.abandon(lost)
			return m.got, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case left <= 0 || g.isDraining():
			if !m.served {
				return nil, m.failed // a retry with the same key finds what was claimed
			}
			g.abandon(lost)
			return nil, nil
		}
		places = askFirst(places, g.awaitAny(ctx, c, places, left))
	}
}

// askFirst moves a shard to the front of the places of queues that have several; 0: none.
func askFirst(places [][]uint32, shard uint32) [][]uint32 {
	places = slices.Clone(places)
	for i, shards := range places {
		if at := slices.Index(shards, shard); at > 0 {
			places[i] = slices.Concat(shards[at:at+1], shards[:at], shards[at+1:])
		}
	}
	return places
}

// full reports whether the claim has as many bytes as it may.
func (m *manyClaim) full() bool { return m.bytes >= m.call.MaxBytes }

// strict asks queue after queue, with consecutive queues in the same shard in one call.
func (m *manyClaim) strict(ctx context.Context) {
	for from := 0; from < len(m.places); {
		to := from + 1
		for to < len(m.places) && slices.Equal(m.places[to], m.places[from]) && len(m.places[to]) == 1 {
			to++
		}
		m.askParts(ctx, from, to, m.call.Max-len(m.got))
		from = to
	}
}

// askParts claims from the queues [from, to), which are in the same shards, until there are enough.
func (m *manyClaim) askParts(ctx context.Context, from, to, most int) (taken int) {
	for _, shard := range m.places[from] {
		if taken >= most || m.full() {
			break
		}
		taken += m.ask(ctx, from, to, shard, most-taken)
	}
	return taken
}

// weighted asks each queue for its share. What a queue lacks is taken from the others, which are asked again.
func (m *manyClaim) weighted(ctx context.Context) {
	turn := m.g.shares.Begin(m.call)
	got := make([]int, len(m.places))
	empty := make([]bool, len(m.places))
	defer turn.End(got, empty)
	for asking := true; asking && !m.full(); {
		asking = false
		want := turn.Plan(got, empty, m.call.Max)
		for i, n := range want {
			if n = min(n-got[i], m.call.Max-len(m.got)); n <= 0 { // a plan may want less of a queue than the previous one
				continue
			}
			asking = true
			taken := m.askParts(ctx, i, i+1, n)
			got[i] += taken
			empty[i] = taken < n && !m.full()
		}
	}
}

// ask claims from the queues [from, to) in one shard.
func (m *manyClaim) ask(ctx context.Context, from, to int, shard uint32, most int) (taken int) {
	c := m.call
	c.Queues, c.Weighted, c.Max, c.MaxBytes = c.Queues[from:to], false, most, c.MaxBytes-m.bytes
	at := place{from, shard}
	c.ClaimKey = partKey(m.call.ClaimKey, from, m.asked[at])
	m.asked[at]++
	got, stamp, err := m.g.broker.ClaimNow(ctx, shard, c)
	callinfo.Note(ctx, stamp)
	part := lostPart{shard, c.ClaimKey}
	if err != nil {
		m.failed = err
		if c.ClaimKey != "" && errors.Is(err, broker.ErrUnknown) { // without a key the router releases it
			m.lost[part] = c
		}
		return 0
	}
	m.served = true
	delete(m.lost, part)
	for i := range got {
		m.bytes += got[i].Weight()
	}
	m.got = append(m.got, got...)
	return len(got)
}

// partKey returns the claim key of one of several calls, so that a shard doesn't take it for a retry of another.
func partKey(key string, queue, nth int) string {
	if key == "" {
		return ""
	}
	return key + "\x00" + strconv.Itoa(queue) + "\x00" + strconv.Itoa(nth)
}

// reclaim returns the claims that an earlier call with the same claim key got. Asked for no queues, a shard returns only those. A
// queue was asked again only if it had returned as much as it was asked for. What a shard that does not answer holds becomes ready again
// when its leases end.
func (g *claims) reclaim(ctx context.Context, c broker.ClaimCall, places [][]uint32) (again []broker.Claimed) {
	if c.ClaimKey == "" {
		return nil
	}
	var all []place
	for i, shards := range places {
		for _, shard := range shards {
			all = append(all, place{i, shard})
		}
	}
	var mu sync.Mutex
	fanout.Each(len(all), func(i int) error {
		for nth := 0; ; nth++ {
			part := c
			part.Queues, part.Weighted, part.ClaimKey = nil, false, partKey(c.ClaimKey, all[i].queue, nth)
			got, at, err := g.broker.Claim(ctx, all[i].shard, part, 0)
			callinfo.Note(ctx, at)
			if err != nil || len(got) == 0 {
				return err
			}
			mu.Lock()
			again = append(again, got...)
			mu.Unlock()
		}
	})
	return again
}

// watchRetryPause is when shards that did not answer are asked again.
const watchRetryPause = time.Second

// awaitAny waits until one of the shards has a task for the claim, or wait has passed, or it is time to ask again. It returns the
// shard; 0: none.
func (g *claims) awaitAny(ctx context.Context, c broker.ClaimCall, places [][]uint32, wait time.Duration) uint32 {
	ctx, cancel := context.WithTimeout(ctx, wait)
	byShard := map[uint32][]broker.Share{}
	for i, shards := range places {
		for _, shard := range shards {
			byShard[shard] = append(byShard[shard], c.Queues[i])
		}
	}
	type answer struct {
		shard uint32
		err   error
	}
	answers := make(chan answer, len(byShard))
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	for shard, queues := range byShard {
		part := c
		part.Queues = queues
		watches.Go(func() {
			answers <- answer{shard, fanout.Safely(func() error { return g.broker.Await(ctx, shard, part) })}
		})
	}
	var rest <-chan time.Time // starts once a shard did not answer
	for {
		select {
		case a := <-answers:
			if a.err == nil {
				return a.shard
			}
			if rest == nil {
				rest = time.After(watchRetryPause)
			}
		case <-rest:
			return 0
		case <-ctx.Done():
			return 0
		case <-g.broker.Draining():
			return 0
		}
	}
}

func (g *claims) isDraining() bool {
	select {
	case <-g.broker.Draining():
		return true
	default:
		return false
	}
}
