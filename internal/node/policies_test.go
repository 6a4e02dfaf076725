package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/pawltype"
)

const (
	mostRunning = 6 // of the limited queue, in two equal parts
	mostOfAKey  = 2
	someLease   = 5 * time.Second
	brokenHold  = 5 * time.Second // how long the breaker holds its type
)

var someRate = admin.RateLimit{Limit: 20, Period: 10 * time.Second, Burst: 4}

// Whichever leaders die, and while a shard has none for longer than its leases last: no more tasks run than the limits allow, a
// unique key has one task, a breaker stays open until its type works, and once everything is done nothing is held.
func TestPoliciesSurviveElections(t *testing.T) {
	bySameGoroutines(t, "TestOperationsSurviveElections")
	synctest.Test(t, func(t *testing.T) {
		w := newTwoShards(t)
		p := &policies{twoShards: w, held: map[string]map[string]time.Time{}, known: map[pawltype.OnConflict][]string{}}
		p.place("limited", admin.QueueSettings{MaxAttempts: 1000, Lease: someLease,
			QueueLimits: admin.QueueLimits{MaxRunning: mostRunning}, PerKey: admin.QueueLimits{MaxRunning: mostOfAKey}}, 1, 2)
		p.place("rated", admin.QueueSettings{MaxAttempts: 1000, Lease: someLease, QueueLimits: admin.QueueLimits{Rate: someRate}}, 1, 2)
		p.place("unique", admin.QueueSettings{MaxAttempts: 1000, Lease: someLease}, 1, 2)
		p.place("broken", admin.QueueSettings{MaxAttempts: 1000, Lease: someLease, Retry: pawltype.RetryPolicy{Initial: time.Second,
			Max: time.Second},
			Breaker: &admin.Breaker{MinAttempts: 4, FailureRate: 75, Hold: brokenHold, MaxHold: brokenHold, Probes: 2}}, 2)
		p.keys = p.twoKeysEach()
		for i := range 36 {
			p.enqueue("limited", i, pawl.Key(p.keys[i%len(p.keys)]))
			p.enqueue("rated", i)
		}
		for i := range 12 {
			p.enqueue("broken", i)
		}
		ctx, stop := context.WithCancel(t.Context())
		var workers, producers sync.WaitGroup
		for _, queue := range []string{"limited", "limited", "limited", "limited", "rated", "rated", "unique", "unique"} {
			workers.Go(func() { p.work(ctx, queue) })
		}
		workers.Go(func() { p.tryBroken(ctx) })
		producing, enough := context.WithCancel(ctx)
		for _, mode := range modes {
			producers.Go(func() { p.produce(producing, mode) })
		}

		p.until("the breaker is open", p.opened)
		w.loseShard2()
		pass(2 * someLease)
		w.healShard2()
		p.stillOpen()
		for _, shard := range []uint32{2, 1, 2} {
			pass(2 * time.Second)
			if shard == 1 {
				p.works.Store(true)
				p.healed = time.Now()
			}
			w.crashLeader(shard, func() {})
			p.stillOpen()
			w.until("three voters each", w.replicated(3))
		}
		enough()
		producers.Wait()
		for _, queue := range []string{"limited", "rated", "unique", "broken"} {
			p.inTheEnd("all tasks have ended", p.ended(queue))
		}
		stop()
		workers.Wait()
		p.limitsHeld()
		p.keysWereUnique()
		p.breakerHeld()
		w.sound()
		p.slotsAreFree()
	})
}

// policies is a set of workers and producers, and what they know together.
type policies struct {
	*twoShards
	keys   []string    // of the limited queue
	works  atomic.Bool // whether the broken type works
	healed time.Time   // when it began to

	mu    sync.Mutex
	held  map[string]map[string]time.Time  // by key: the claims that workers hold, by token, and until when
	known map[pawltype.OnConflict][]string // by unique key: the tasks that enqueues have returned, oldest first
	asked []conflict
	open  *admin.BreakerStatus // as it was when it opened
}

// conflict is an enqueue refused because of another task's unique key.
type conflict struct {
	task string
	at   time.Time // when the call began
}

func (p *policies) enqueue(queue string, n int, opts ...pawl.Option) {
	p.t.Helper()
	args := pawl.RawTask{Type: queue, Payload: []byte(strconv.Itoa(n))}
	if _, err := p.client.Enqueue(p.t.Context(), args, append(opts, pawl.Queue(queue))...); err != nil {
		p.t.Fatal(err)
	}
}

// twoKeysEach finds two keys in each shard, so that both limits matter there: of the four tasks that the keys would run, three may.
func (p *policies) twoKeysEach() (keys []string) {
	found := map[uint32]int{}
	for i := 0; len(keys) < 4; i++ {
		key := fmt.Sprint("k", i)
		ref, err := p.client.Enqueue(p.t.Context(), pawl.RawTask{Type: "limited", Payload: []byte("0")}, pawl.Queue("limited"),
			pawl.Key(key))
		if err != nil {
			p.t.Fatal(err)
		}
		id, err := task.ParseID(ref.ID)
		if err != nil {
			p.t.Fatal(err)
		}
		if shard := id.Shard(); found[shard] < 2 {
			found[shard]++
			keys = append(keys, key)
		}
	}
	return keys
}

// work claims tasks of a queue and ends them, in one of the possible ways, until ctx ends.
func (p *policies) work(ctx context.Context, queue string) {
	for ctx.Err() == nil {
		got, err := claims.New(p.client).Claim(ctx, claims.Request{Queues: pawl.Strict{queue}, Max: 2, Wait: 5 * time.Second, Worker: "w"})
		if err != nil && ctx.Err() == nil {
			p.t.Errorf("claim from %q: %v", queue, err)
			return
		}
		for _, c := range got {
			p.hold(c)
		}
		pass(time.Second)
		for _, c := range got {
			if err := p.settle(c); err != nil && !errors.Is(err, pawltype.ErrStaleClaim) {
				p.t.Errorf("task %s of queue %q: %v", c.ID, queue, err)
			}
		}
	}
}

// hold records a claim from its worker's point of view: until the worker starts to end it, or its lease is over. The broker may
// keep it longer.
func (p *policies) hold(c *pawl.Claim) {
	if c.Queue != "limited" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, most := range map[string]int{"": mostRunning, c.Key: mostOfAKey} {
		if p.held[key] == nil {
			p.held[key] = map[string]time.Time{}
		}
		maps.DeleteFunc(p.held[key], func(_ string, until time.Time) bool { return !time.Now().Before(until) })
		if p.held[key][c.Token] = c.LeaseExpiresAt; len(p.held[key]) > most {
			p.t.Errorf("of key %q workers hold %v, %d are allowed", key, p.held[key], most)
		}
	}
}

// settle ends a claim. What comes next depends on the task and on how often it was claimed, so each is acked eventually.
func (p *policies) settle(c *pawl.Claim) (err error) {
	n, err := strconv.Atoi(string(c.Payload))
	if err != nil {
		return err
	}
	how := (n + int(c.Fence)) % 8
	if how == 2 {
		return nil // its lease is to be lost
	}
	p.mu.Lock()
	delete(p.held[""], c.Token)
	delete(p.held[c.Key], c.Token)
	p.mu.Unlock()
	switch claimed := claims.New(p.client); {
	case how == 0:
		_, err = claimed.Release(p.t.Context(), c, 0)
	case how == 1:
		_, err = claimed.Fail(p.t.Context(), c, pawl.RetryIn(500*time.Millisecond, errors.New("by plan")))
	case how == 3 && c.Queue == "unique":
		_, err = claimed.Fail(p.t.Context(), c, pawl.DeadLetter(errors.New("by plan")))
	default:
		err = claimed.Ack(p.t.Context(), c)
	}
	return err
}

// tryBroken runs the failing tasks until they work.
func (p *policies) tryBroken(ctx context.Context) {
	mux := pawl.NewMux()
	mux.HandleFunc("broken", func(context.Context, *pawl.Claim) error {
		if !p.works.Load() {
			return errors.New("broken")
		}
		return nil
	})
	cfg := pawl.WorkerConfig{Queues: pawl.Strict{"broken"}, Concurrency: 4, Name: "w", Logger: slog.New(slog.DiscardHandler)}
	if err := pawl.NewWorker(p.client, mux, cfg).Run(ctx); err != nil {
		p.t.Error(err)
	}
}

// modes are the conflict modes of unique keys, each with a key of its name.
var modes = []pawltype.OnConflict{pawltype.OnConflictKeep, pawltype.OnConflictReject, pawltype.OnConflictReplace,
	pawltype.OnConflictKeepLast}

// produce enqueues tasks with one unique key, more than there can be, and cancels some, until ctx ends.
func (p *policies) produce(ctx context.Context, mode pawltype.OnConflict) {
	var known []string
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		ref, err := p.client.Enqueue(p.t.Context(), pawl.RawTask{Type: "unique", Payload: []byte(strconv.Itoa(n))}, pawl.Queue("unique"),
			pawl.Unique(pawltype.UniqueOpts{Key: string(mode), OnConflict: mode}))
		switch {
		case mode == pawltype.OnConflictReject && errors.Is(err, pawltype.ErrConflict):
			p.note(known[len(known)-1], began)
		case err != nil:
			p.t.Errorf("%s: %v", mode, err)
			return
		case !slices.Contains(known, ref.ID):
			known = append(known, ref.ID)
		case ref.ID != known[len(known)-1]:
			p.t.Errorf("%s: the key is held by %s, and %s came later", mode, ref.ID, known[len(known)-1])
		default:
			p.note(ref.ID, began)
		}
		if n%7 == 6 {
			_, err := admin.New(p.client).Tasks().Cancel(p.t.Context(), known[len(known)-1])
			if err != nil && !errors.Is(err, pawltype.ErrWrongState) {
				p.t.Errorf("%s: %v", mode, err)
			}
		}
		pass(1100 * time.Millisecond)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[mode] = known
}

func (p *policies) note(id string, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, conflict{id, began})
}

// opened waits until the breaker is open, and remembers it.
func (p *policies) opened() error {
	q, err := admin.New(p.client).Queues().Get(p.t.Context(), "broken")
	if err == nil && q.BreakersOpen == 0 {
		err = errors.New("it is closed")
	}
	if err == nil {
		p.open = &q.Breakers[0]
	}
	return err
}

// stillOpen fails the test unless the breaker has stayed open while its type does not work.
func (p *policies) stillOpen() {
	p.t.Helper()
	if p.works.Load() {
		return
	}
	q, err := admin.New(p.client).Queues().Get(p.t.Context(), "broken")
	if err != nil || q.BreakersOpen != 1 || !q.Breakers[0].Since.Equal(p.open.Since) || q.Depth.Held == 0 {
		p.t.Errorf("the queue is %+v, %v, its breaker was %+v", q, err, p.open)
	}
}

// span is a period of time.
type span struct{ from, to time.Time }

// mostAtOnce returns the maximum number of overlapping spans. A span that ends when another begins does not overlap it.
func mostAtOnce(spans []span) (most int) {
	type step struct {
		at time.Time
		by int
	}
	var steps []step
	for _, s := range spans {
		steps = append(steps, step{s.from, +1}, step{s.to, -1})
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	now := 0
	for _, s := range steps {
		now += s.by
		most = max(most, now)
	}
	return most
}

// claimSpans returns the periods in which a task was claimed, according to the broker.
func claimSpans(info *pawltype.Task) (spans []span) {
	for _, a := range info.AttemptLog {
		spans = append(spans, span{a.StartedAt, a.EndedAt})
	}
	return spans
}

// limitsHeld fails the test if more was claimed or started than allowed, or if the limits were never reached.
func (p *policies) limitsHeld() {
	byKey := map[string][]span{}
	for _, info := range p.succeeded("limited") {
		for _, s := range claimSpans(info) {
			byKey[""] = append(byKey[""], s)
			byKey[info.Key] = append(byKey[info.Key], s)
		}
	}
	for key, spans := range byKey {
		want := mostOfAKey
		if key == "" {
			want = mostRunning
		}
		if n := mostAtOnce(spans); n > want || n < want && (key == "" || slices.Contains(p.keys, key)) {
			p.t.Errorf("of key %q %d tasks were claimed at once, want %d", key, n, want)
		}
	}
	var starts []time.Time
	for _, info := range p.succeeded("rated") {
		for _, s := range claimSpans(info) {
			starts = append(starts, s.from)
		}
	}
	slices.SortFunc(starts, time.Time.Compare)
	for i, from := range starts {
		for j, to := range starts[i:] {
			tokens := float64(someRate.Burst) + float64(someRate.Limit)*float64(to.Sub(from)+time.Millisecond)/float64(someRate.Period)
			if float64(j+1) > tokens {
				p.t.Fatalf("%d tasks started from %s to %s, for which there were %.2f tokens", j+1, from, to, tokens)
			}
		}
	}
}

// succeeded returns the tasks of a queue, all of which must have succeeded.
func (p *policies) succeeded(queue string) []*pawltype.Task {
	all := p.tasks(queue)
	for _, info := range all {
		if info.State != pawltype.StateSucceeded {
			p.t.Errorf("task %s of queue %q is %s (%s)", info.ID, queue, info.State, info.Reason)
		}
	}
	return all
}

// keysWereUnique fails the test unless each key had at most one live task at a time (with keep_last one more that waited), and
// every reported conflict was true.
func (p *policies) keysWereUnique() {
	infos, n := map[string]*pawltype.Task{}, 0
	for _, info := range p.tasks("unique") {
		infos[info.ID] = info
	}
	for mode, known := range p.known {
		var lives, runs []span
		for _, id := range known {
			lives = append(lives, span{infos[id].CreatedAt, infos[id].EndedAt})
			runs = append(runs, claimSpans(infos[id])...)
		}
		want := 1
		if mode == pawltype.OnConflictKeepLast {
			want = 2
		}
		if l, r := mostAtOnce(lives), mostAtOnce(runs); l != want || r != 1 || len(known) < 5 {
			p.t.Errorf("%s: of %d tasks %d lived and %d ran at once", mode, len(known), l, r)
		}
		n += len(known)
	}
	if n != len(infos) {
		p.t.Errorf("producers were told of %d tasks, there are %d", n, len(infos))
	}
	for _, c := range p.asked {
		if ended := infos[c.task].EndedAt; ended.Add(time.Millisecond).Before(c.at) {
			p.t.Errorf("task %s, which ended at %s, was in the way at %s", c.task, ended, c.at)
		}
	}
	for _, mode := range modes {
		ref, err := p.client.Enqueue(p.t.Context(), pawl.RawTask{Type: "unique"}, pawl.Queue("unique"),
			pawl.Unique(pawltype.UniqueOpts{Key: string(mode), OnConflict: pawltype.OnConflictReject}))
		if err != nil || ref.Duplicate {
			p.t.Errorf("in the end key %q is not free: %v", mode, err)
		}
	}
}

// breakerHeld fails the test unless one task at a time was tried while the breaker was open, each a hold after one that failed, and
// it is closed now.
func (p *policies) breakerHeld() {
	var tries []pawltype.Attempt
	for _, info := range p.succeeded("broken") {
		for _, a := range info.AttemptLog {
			if a.StartedAt.After(p.open.Since) && a.StartedAt.Before(p.healed) {
				tries = append(tries, a)
			}
		}
	}
	slices.SortFunc(tries, func(a, b pawltype.Attempt) int { return a.StartedAt.Compare(b.StartedAt) })
	for i := 1; i < len(tries); i++ {
		before, free := tries[i-1], tries[i-1].EndedAt
		if before.Outcome != pawltype.OutcomeLeaderless {
			free = free.Add(brokenHold)
		}
		if tries[i].StartedAt.Before(free) {
			p.t.Errorf("while the breaker was open a task was tried at %s, one before it %+v", tries[i].StartedAt, before)
		}
	}
	if len(tries) < 3 {
		p.t.Errorf("while the breaker was open %d tasks were tried", len(tries))
	}
	if q, err := admin.New(p.client).Queues().Get(p.t.Context(), "broken"); err != nil || q.BreakersOpen > 0 {
		p.t.Errorf("in the end the queue is %+v, %v", q, err)
	}
}

// slotsAreFree fails the test unless the limited queue can run as many tasks as it may.
func (p *policies) slotsAreFree() {
	for i := range 2 * mostOfAKey * len(p.keys) {
		p.enqueue("limited", i, pawl.Key(p.keys[i%len(p.keys)]))
	}
	n := 0
	for range 4 { // one claim may be answered by one shard
		got, err := claims.New(p.client).Claim(p.t.Context(), claims.Request{Queues: pawl.Strict{"limited"}, Max: 100, Wait: time.Second,
			Lease: time.Minute})
		if err != nil {
			p.t.Fatal(err)
		}
		n += len(got)
	}
	if n != mostRunning {
		p.t.Errorf("in the end the queue runs %d tasks at once, want %d", n, mostRunning)
	}
}
