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
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/task"
)

// A claim over several shards can't be a single claim, because no shard knows what the others have, and asking all of them in
// parallel would claim too much. So they are asked one after the other, in the order of the claim, without waiting. If none has a
// task, the claim watches all of them, and asks again when one reports a task. The parts of a spread queue are asked in random
// order, after those that drain, and starting with the one that has just reported a task.
//
// A shard that hangs must not hold up the others: after askTime the next one is asked. The late answer counts in a later pass: if it did
// not, claims would get nothing from shards that are slow for a while. What comes too late even for that is given back.

const (
	// askTime is how long a pass waits for one shard.
	askTime = 500 * time.Millisecond
	// failTime is how long a shard may take to fail without being left out.
	failTime = 100 * time.Millisecond
	// watchRetryPause is when shards that did not answer are asked again.
	watchRetryPause = time.Second
)

// manyClaim is a claim over several shards.
type manyClaim struct {
	g    *claims
	call broker.ClaimCall
	lost lostParts
	late map[uint32]*partCall // by shard
	claimPass
}

// claimPass is one pass over the shards.
type claimPass struct {
	places   [][]uint32    // one per queue
	answered map[place]int // how many calls of each have ended, also if they were from an earlier pass
	leftOut  map[uint32]bool
	got      []broker.Claimed
	bytes    int
	failed   error // from a shard that did not answer
	served   bool  // whether any shard answered
}

func newClaimPass(places [][]uint32) claimPass {
	return claimPass{places: places, answered: map[place]int{}, leftOut: map[uint32]bool{}}
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
	m := &manyClaim{g: g, call: c, lost: lostParts{}, late: map[uint32]*partCall{}}
	for awaited := false; ; {
		m.claimPass = newClaimPass(places)
		if c.Weighted {
			m.weighted(ctx)
		} else {
			m.strict(ctx)
		}
		left := time.Until(deadline)
		if len(m.late) > 0 && !awaited { // a claim that doesn't wait would get nothing from slow shards
			left, awaited = max(left, askTime), true
		}
		switch {
		case len(m.got) > 0:
			m.leave(true)
			return m.got, nil
		case ctx.Err() != nil:
			m.leave(false)
			return nil, ctx.Err()
		case left <= 0 || g.isDraining():
			m.leave(m.served)
			if !m.served {
				return nil, m.failed // a retry with the same key finds what was claimed
			}
			return nil, nil
		}
		places = askFirst(places, m.awaitAny(ctx, left))
	}
}

// leave gives back what the claim is answered without. If it has failed, its caller may repeat it with its key.
func (m *manyClaim) leave(answered bool) {
	if answered {
		m.g.abandon(m.lost)
	}
	for _, p := range m.late {
		p.cancel()
		m.g.releases.Go(func() {
			<-p.done
			if p.err == nil {
				m.g.giveBack(p.got)
			} else if answered && p.isLost() {
				m.g.broker.Abandon(p.shard, p.call)
			}
		})
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
	at := place{from, shard}
	p := m.late[shard]
	switch {
	case p == nil && m.g.slow.leavesOut(shard):
		m.leftOut[shard] = true
		m.failed = errLeftOut(shard)
		return 0
	case p == nil:
		p = m.start(ctx, at, to, most)
		if !p.await() {
			m.late[shard] = p
			m.g.slow.note(shard, true)
			m.failed = errLate(shard)
			return 0
		}
	case p.place != at || !p.isDone() || len(m.got) > 0: // together they might be more than the claim asks for
		m.failed = errLate(shard)
		return 0
	default:
		delete(m.late, shard)
	}
	m.answered[at]++
	if ctx.Err() == nil { // it says nothing about the shard if its caller has left
		m.g.slow.note(shard, p.err != nil && p.took > failTime)
	}
	callinfo.Note(ctx, p.stamp)
	part := lostPart{shard, p.call.ClaimKey}
	if p.err != nil {
		m.failed = p.err
		if p.isLost() {
			m.lost[part] = p.call
		}
		return 0
	}
	m.served = true
	delete(m.lost, part)
	for i := range p.got {
		m.bytes += p.got[i].Weight()
	}
	m.got = append(m.got, p.got...)
	return len(p.got)
}

// partCall is a call of ClaimNow.
type partCall struct {
	place
	call   broker.ClaimCall
	cancel context.CancelFunc
	done   chan struct{} // closed at its end; only then the fields below may be read
	took   time.Duration
	got    []broker.Claimed
	stamp  broker.Stamp
	err    error
}

// start starts to claim from the queues from that of a place up to to.
func (m *manyClaim) start(ctx context.Context, at place, to, most int) *partCall {
	c := m.call
	c.Queues, c.Weighted, c.Max, c.MaxBytes = c.Queues[at.queue:to], false, most, c.MaxBytes-m.bytes
	c.ClaimKey = partKey(m.call.ClaimKey, at.queue, m.answered[at])
	p := &partCall{place: at, call: c, done: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(ctx)
	go func() {
		defer close(p.done)
		defer p.cancel()
		began := time.Now()
		p.err = parallel.Safely(func() (err error) {
			p.got, p.stamp, err = m.g.broker.ClaimNow(ctx, at.shard, c)
			return err
		})
		p.took = time.Since(began)
	}()
	return p
}

// await waits for the end of the call, and reports whether it came within askTime.
func (p *partCall) await() bool {
	t := time.NewTimer(askTime)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

// wait waits for the end of the call or of ctx.
func (p *partCall) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *partCall) isDone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// isLost reports whether the call may have claimed tasks that nobody else gives back: without a key, the router does.
func (p *partCall) isLost() bool {
	return p.call.ClaimKey != "" && errors.Is(p.err, broker.ErrUnknown)
}

func errLate(shard uint32) error {
	return task.Unavailable(watchRetryPause, "shard %d has not answered within %v", shard, askTime)
}

func errLeftOut(shard uint32) error {
	return task.Unavailable(watchRetryPause, "shard %d is left out for a moment: it failed or has not answered within %v", shard, askTime)
}

// slowShards are the shards that have cost a claim time and given it nothing. Claims over several shards leave them out for a while.
type slowShards struct {
	mu    sync.Mutex
	until map[uint32]time.Time
}

func (s *slowShards) leavesOut(shard uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.until[shard])
}

func (s *slowShards) note(shard uint32, slow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !slow:
		delete(s.until, shard)
	case s.until == nil:
		s.until = map[uint32]time.Time{}
		fallthrough
	default:
		s.until[shard] = time.Now().Add(watchRetryPause)
	}
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
	parallel.Each(len(all), func(i int) error {
		if g.slow.leavesOut(all[i].shard) {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
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

// awaitAny waits until one of the shards has a task for the claim or has answered late, or wait has passed, or it is time to ask again. It
// returns the shard; 0: none.
func (m *manyClaim) awaitAny(ctx context.Context, wait time.Duration) uint32 {
	g := m.g
	ctx, cancel := context.WithTimeout(ctx, wait)
	byShard := map[uint32][]broker.Share{}
	for i, shards := range m.places {
		for _, shard := range shards {
			byShard[shard] = append(byShard[shard], m.call.Queues[i])
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
		if m.leftOut[shard] {
			answers <- answer{shard, errLeftOut(shard)}
			continue
		}
		part, late := m.call, m.late[shard]
		part.Queues = queues
		watches.Go(func() {
			answers <- answer{shard, parallel.Safely(func() error {
				if late != nil {
					return late.wait(ctx)
				}
				return g.broker.Await(ctx, shard, part)
			})}
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
