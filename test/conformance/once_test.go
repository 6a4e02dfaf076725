package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// onceAPI is the part of an API for effects that must happen once.
type onceAPI interface {
	// Begin returns the state of the key.
	Begin(ctx context.Context, h hold, key string) (onceAnswer, error)
	// Finish with a TTL of 0 omits it.
	Finish(ctx context.Context, h hold, key, result string, ttl span) (keptUntil time.Time, err error)
	Abandon(ctx context.Context, h hold, key string) (state string, err error)
}

type onceAnswer struct {
	State      string
	Result     string
	KeptUntil  time.Time
	Holder     string // task id
	Worker     string
	Fence      int64
	RetryAfter span
}

func (d *direct) once(ctx context.Context, h hold, c broker.OnceCall) (broker.OnceAnswer, error) {
	var err error
	c.Hold.Namespace = namespace
	if c.Hold.ID, err = parseID(h.ID); err != nil {
		return broker.OnceAnswer{}, err
	}
	if c.Hold.Token, err = task.ParseToken(h.Token); err != nil {
		return broker.OnceAnswer{}, refused(err)
	}
	a, _, err := d.broker.Once(ctx, c)
	if err != nil {
		return a, refused(err)
	}
	return a, nil
}

var onceStates = map[broker.OnceState]string{broker.OnceRun: "run", broker.OnceDone: "done", broker.OnceHeld: "held",
	broker.OnceFree: "free"}

func (d *direct) Begin(ctx context.Context, h hold, key string) (onceAnswer, error) {
	a, err := d.once(ctx, h, broker.OnceCall{Verb: broker.OnceBegin, Key: key})
	if err != nil {
		return onceAnswer{}, err
	}
	out := onceAnswer{State: onceStates[a.State], Result: string(a.Result), KeptUntil: when(a.Until), RetryAfter: span(a.RetryAfter)}
	if a.State == broker.OnceHeld {
		out.Holder, out.Worker, out.Fence = a.Holder.ID.String(), a.Holder.Worker, int64(a.Holder.Fence)
	}
	return out, nil
}

func (d *direct) Finish(ctx context.Context, h hold, key, result string, ttl span) (time.Time, error) {
	if ttl == 0 {
		ttl = span(task.DefaultOnceTTL)
	}
	a, err := d.once(ctx, h, broker.OnceCall{Verb: broker.OnceFinish, Key: key, Result: []byte(result), TTL: ttl.std()})
	return when(a.Until), err
}

func (d *direct) Abandon(ctx context.Context, h hold, key string) (string, error) {
	a, err := d.once(ctx, h, broker.OnceCall{Verb: broker.OnceAbandon, Key: key})
	return onceStates[a.State], err
}

func (d *rest) Begin(ctx context.Context, h hold, key string) (onceAnswer, error) {
	var a struct {
		State     string          `json:"state"`
		Result    json.RawMessage `json:"result"`
		KeptUntil time.Time       `json:"kept_until"`
		Holder    struct {
			ID     string `json:"task_id"`
			Worker string `json:"worker"`
			Fence  int64  `json:"fence"`
		} `json:"holder"`
		RetryAfter span `json:"retry_after"`
	}
	err := d.call(ctx, "POST", taskPath(h.ID, "/once/begin"), fields{"claim_token": h.Token, "key": key}, &a)
	return onceAnswer{a.State, string(a.Result), a.KeptUntil, a.Holder.ID, a.Holder.Worker, a.Holder.Fence, a.RetryAfter}, err
}

func (d *rest) Finish(ctx context.Context, h hold, key, result string, ttl span) (time.Time, error) {
	var a struct {
		KeptUntil time.Time `json:"kept_until"`
	}
	body := fields{"claim_token": h.Token, "key": key}.with(result != "", "result", json.RawMessage(result)).with(ttl != 0, "ttl", ttl)
	err := d.call(ctx, "POST", taskPath(h.ID, "/once/finish"), body, &a)
	return a.KeptUntil, err
}

func (d *rest) Abandon(ctx context.Context, h hold, key string) (string, error) {
	var a struct {
		State string `json:"state"`
	}
	err := d.call(ctx, "POST", taskPath(h.ID, "/once/abandon"), fields{"claim_token": h.Token, "key": key}, &a)
	return a.State, err
}

func (d *rpc) Begin(ctx context.Context, h hold, key string) (onceAnswer, error) {
	a, err := ask(ctx, d.worker.BeginOnce, &pawlv1.BeginOnceRequest{TaskId: h.ID, ClaimToken: h.Token, Key: key})
	if err != nil {
		return onceAnswer{}, err
	}
	return onceAnswer{word(a.GetState(), "ONCE_STATE_"), string(a.GetResult()), timeOf(a.GetKeptUntil()),
		a.GetHolder().GetTaskId(), a.GetHolder().GetWorker(), a.GetHolder().GetFence(), span(a.GetRetryAfter().AsDuration())}, nil
}

func (d *rpc) Finish(ctx context.Context, h hold, key, result string, ttl span) (time.Time, error) {
	a, err := ask(ctx, d.worker.FinishOnce, &pawlv1.FinishOnceRequest{TaskId: h.ID, ClaimToken: h.Token, Key: key, Result: []byte(result),
		Ttl: spanProto(ttl)})
	return timeOf(a.GetKeptUntil()), err
}

func (d *rpc) Abandon(ctx context.Context, h hold, key string) (string, error) {
	a, err := ask(ctx, d.worker.AbandonOnce, &pawlv1.AbandonOnceRequest{TaskId: h.ID, ClaimToken: h.Token, Key: key})
	if err != nil {
		return "", err
	}
	return word(a.GetState(), "ONCE_STATE_"), nil
}

func (d *sdk) Begin(ctx context.Context, h hold, key string) (onceAnswer, error) {
	a, err := claims.New(d.client).BeginOnce(ctx, h.claim(), key)
	return onceAnswer{string(a.State), string(a.Result), a.KeptUntil, a.Holder.TaskID, a.Holder.Worker, a.Holder.Fence, span(a.RetryAfter)},
		refusedBySDK(err)
}

func (d *sdk) Finish(ctx context.Context, h hold, key, result string, ttl span) (time.Time, error) {
	until, err := claims.New(d.client).FinishOnce(ctx, h.claim(), key, []byte(result), ttl.std())
	return until, refusedBySDK(err)
}

func (d *sdk) Abandon(ctx context.Context, h hold, key string) (string, error) {
	s, err := claims.New(d.client).AbandonOnce(ctx, h.claim(), key)
	return string(s), refusedBySDK(err)
}

func (d *roundRobin) Begin(ctx context.Context, h hold, key string) (onceAnswer, error) {
	return d.next().Begin(ctx, h, key)
}
func (d *roundRobin) Finish(ctx context.Context, h hold, key, result string, ttl span) (time.Time, error) {
	return d.next().Finish(ctx, h, key, result, ttl)
}
func (d *roundRobin) Abandon(ctx context.Context, h hold, key string) (string, error) {
	return d.next().Abandon(ctx, h, key)
}

func (w *world) begin(c claim, key string) onceAnswer {
	w.Helper()
	return ok[onceAnswer](w)(w.api.Begin(w.ctx(), c.hold(), key))
}

func (w *world) finish(c claim, key, result string, ttl span) time.Time {
	w.Helper()
	return ok[time.Time](w)(w.api.Finish(w.ctx(), c.hold(), key, result, ttl))
}

func TestOnce(t *testing.T) {
	run := onceAnswer{State: "run"}
	tellAll(t, []story{
		{name: "an effect happens once, and its result is returned to all", tell: func(w *world) {
			w.fill(2, spec{})
			a, b := w.claim(), w.claimBy("w2")
			is(w, "the first", w.begin(a, "order-7"), run)
			is(w, "the first again", w.begin(a, "order-7"), run)
			is(w, "the second", w.begin(b, "order-7"), onceAnswer{State: "held", Holder: a.ID, Worker: "w1", Fence: 1, RetryAfter: second})
			is(w, "another key", w.begin(b, "order-8"), run)
			until := w.at(day)
			is(w, "how long it is kept", w.finish(a, "order-7", `{"id":7}`, 0), until)
			is(w, "a repeat", w.finish(a, "order-7", `{"id":8}`, hour), until)
			w.ack(a)
			is(w, "the second then", w.begin(b, "order-7"), onceAnswer{State: "done", Result: `{"id":7}`, KeptUntil: until})
			is(w, "without a result", w.finish(b, "order-8", "", 365*day), w.at(365*day))
			is(w, "the second again", w.begin(b, "order-8"), onceAnswer{State: "done", KeptUntil: w.at(365 * day)})
		}},
		{name: "an abandoned key can be begun again", tell: func(w *world) {
			w.fill(2, spec{})
			a, b := w.claim(), w.claimBy("w2")
			w.begin(a, "k")
			is(w, "by another", ok[string](w)(w.api.Abandon(w.ctx(), b.hold(), "k")), "free")
			is(w, "it is held on", w.begin(b, "k").State, "held")
			is(w, "by its holder", ok[string](w)(w.api.Abandon(w.ctx(), a.hold(), "k")), "free")
			is(w, "then", w.begin(b, "k"), run)
			w.finish(b, "k", "", minute)
			is(w, "what is done", ok[string](w)(w.api.Abandon(w.ctx(), b.hold(), "k")), "done")
			w.pass(minute)
			is(w, "after its time", w.begin(w.again(b), "k"), run)
		}},
		{name: "a held key is released with its claim", tell: func(w *world) {
			w.fill(2, spec{MaxAttempts: 9})
			a, b := w.claim(), w.claimBy("w2")
			w.begin(a, "k")
			w.fail(a, failing{RetryIn: hour})
			is(w, "after a failure", w.begin(b, "k"), run)
			w.pass(30 * second)
			b = w.claimBy("w3")
			is(w, "after a lost lease", w.begin(b, "k"), run)
			w.release(b, 0)
			b = w.claim()
			is(w, "after a release", w.begin(b, "k"), run)
			ok[view](w)(w.api.Cancel(w.ctx(), b.ID))
			w.pass(hour)
			is(w, "after a cancellation", w.begin(w.claim(), "k"), run)
		}},
		{name: "only the holder of a key can finish it", tell: func(w *world) {
			w.fill(2, spec{})
			a, b := w.claim(), w.claimBy("w2")
			wrong := refusal{Code: "wrong_state", Field: "key"}
			_, err := w.api.Finish(w.ctx(), a.hold(), "k", "", 0)
			w.refused("what nobody began", err, wrong)
			w.begin(a, "k")
			_, err = w.api.Finish(w.ctx(), b.hold(), "k", "", 0)
			w.refused("what another began", err, wrong)
			w.pass(30 * second)
			again := w.claimBy("w3")
			gone := refusal{Code: "stale_claim", Reason: "reclaimed", State: "claimed", Holder: "w3"}
			if again.ID != a.ID {
				again = w.claimBy("w3")
			}
			_, err = w.api.Finish(w.ctx(), a.hold(), "k", "", 0)
			w.refused("finish by a claim that has ended", err, gone)
			_, err = w.api.Begin(w.ctx(), a.hold(), "k")
			w.refused("begin by one", err, gone)
			_, err = w.api.Abandon(w.ctx(), a.hold(), "k")
			w.refused("abandon by one", err, gone)
			_, err = w.api.Begin(w.ctx(), hold{a.ID, b.Token}, "k")
			w.refused("begin by the token of another", err, refusal{Code: "not_found"})
		}},
		{gateway: true, name: "a bad key, result or time is refused", tell: func(w *world) {
			w.enqueue(spec{})
			c := w.claim()
			for _, key := range []string{"", "a\x00b", strings.Repeat("k", 257)} {
				_, err := w.api.Begin(w.ctx(), c.hold(), key)
				w.refused("a key", err, refusal{Code: "invalid_argument", Field: "key"})
			}
			w.begin(c, "k")
			for _, ttl := range []span{millisecond, 366 * day} {
				_, err := w.api.Finish(w.ctx(), c.hold(), "k", "", ttl)
				w.refused("a time", err, refusal{Code: "invalid_argument", Field: "ttl"})
			}
			_, err := w.api.Finish(w.ctx(), c.hold(), "k", `"`+strings.Repeat("x", 64<<10-1)+`"`, 0)
			w.refused("a large result", err, refusal{Code: "payload_too_large", Field: "result"})
			w.finish(c, "k", `"`+strings.Repeat("x", 64<<10-2)+`"`, 0)
		}},
	})
}

// again claims a task again if its lease has ended.
func (w *world) again(c claim) claim {
	w.Helper()
	for _, next := range w.claims(from("default").most(9)) {
		if next.ID == c.ID {
			return next
		}
	}
	return c
}

// effects are what workers do, by once key, while the slots of their queue move.
type effects struct {
	*testing.T
	rpc *rpc

	mu       sync.Mutex
	running  map[string]hold // who is doing it
	lapses   map[hold]time.Time
	finished map[string]int
	found    int // number of keys found done
	held     int
	moves    int
}

// Wherever the slots of keys and tasks move, and however claims end, no key is finished twice, none is begun while
// another live claim has it, and none is begun again after it is done.
func TestOnceWhileSlotsMove(t *testing.T) {
	const keys, leastMoves = 20, 5
	dir := t.TempDir()
	for seed := range seeds(1, 2) {
		synctest.Test(t, func(t *testing.T) {
			h := build(t, movingShards, dir)
			m := &moving{T: t, h: h, rpc: newRPC(t, h), seed: seed}
			e := &effects{T: t, rpc: m.rpc, running: map[string]hold{}, lapses: map[hold]time.Time{}, finished: map[string]int{}}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			_, err := h.router.Queues.Place(ctx, namespace, "hot")
			must(t, err)
			_, err = h.router.Queues.Spread(ctx, task.Author{}, namespace, "hot", queues.SpreadTarget{Shards: []uint32{1, 2, 3}})
			must(t, err)
			for n := range 3 * keys {
				_, err := m.rpc.producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "t", Queue: new("hot"),
					Payload: fmt.Append(nil, n%keys), MaxAttempts: 1000}})
				must(t, err)
			}
			var others sync.WaitGroup
			others.Go(func() { e.move(ctx, h, m.rand(3, 0)) })
			for n := range 6 {
				others.Go(func() { e.work(ctx, m.rand(7, n), fmt.Sprint("w", n)) })
			}
			for range 600 {
				time.Sleep(time.Minute)
				e.mu.Lock()
				done := len(e.finished) == keys && e.moves >= leastMoves
				e.mu.Unlock()
				if done {
					break
				}
			}
			time.Sleep(10 * time.Minute) // late tasks find the key done
			stop()
			others.Wait()
			t.Logf("seed %d: %d moves, %d of %d keys finished; found done %d times, held %d times", seed, e.moves, len(e.finished),
				keys, e.found, e.held)
			if len(e.finished) != keys || e.found == 0 || e.moves < leastMoves {
				t.Errorf("seed %d: the test did too little, or not all keys were finished", seed)
			}
		})
	}
}

// move keeps moving the slots.
func (e *effects) move(ctx context.Context, h *testNode, rnd *rand.Rand) {
	for ctx.Err() == nil {
		shards := rnd.Perm(movingShards)[:1+rnd.IntN(movingShards)]
		onto := make([]uint32, len(shards))
		for i, s := range shards {
			onto[i] = uint32(s + dataShard)
		}
		if _, err := h.router.Queues.Spread(ctx, task.Author{}, namespace, "hot", queues.SpreadTarget{Shards: onto}); err == nil {
			e.mu.Lock()
			e.moves++
			e.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(time.Minute)):
		}
	}
}

// work runs the tasks' effects, and ends claims in all ways.
func (e *effects) work(ctx context.Context, rnd *rand.Rand, worker string) {
	for ctx.Err() == nil {
		lease := time.Duration(5+rnd.IntN(30)) * time.Second
		r, err := e.rpc.worker.Claim(ctx, &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: "hot"}}, Lease: durationpb.New(lease),
			Wait: durationpb.New(30 * time.Second), Worker: worker})
		if err != nil {
			continue
		}
		for _, c := range r.GetTasks() {
			h := hold{c.GetTaskId(), c.GetClaimToken()}
			key := string(c.GetPayload())
			e.mu.Lock()
			e.lapses[h] = c.GetLeaseExpiresAt().AsTime()
			e.mu.Unlock()
			if !e.begin(ctx, h, key) {
				_, _ = e.rpc.Release(ctx, h, span(1+rnd.IntN(60))*second)
				continue
			}
			time.Sleep(rand.N(20 * time.Second))
			e.end(ctx, rnd.IntN(6), h, key)
		}
	}
}

// begin reports whether the claim is to run the effect.
func (e *effects) begin(ctx context.Context, h hold, key string) bool {
	asked := time.Now()
	a, err := e.rpc.Begin(ctx, h, key)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err != nil:
		return false
	case a.State == "done":
		e.found++
		return false
	case a.State == "held":
		e.held++
		return false
	}
	if e.finished[key] > 0 {
		e.Errorf("key %s was begun again after it was finished", key)
	}
	if by, taken := e.running[key]; taken && asked.Before(e.lapses[by]) {
		e.Errorf("key %s was begun although %v holds it until %s, at %s", key, by, e.lapses[by], asked)
	}
	e.running[key] = h
	return true
}

// end ends a claim that may have a key's effect in progress, or lets its lease end.
func (e *effects) end(ctx context.Context, how int, h hold, key string) {
	leave := func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.running[key] == h {
			delete(e.running, key)
		}
	}
	switch how {
	case 0: // a crash
	case 1:
		leave()
		_, _ = e.rpc.Fail(ctx, h, failing{RetryIn: minute})
	case 2:
		leave()
		_, _ = e.rpc.Release(ctx, h, 0)
	case 3:
		leave()
		_, _ = e.rpc.Abandon(ctx, h, key)
	default:
		_, err := e.rpc.Finish(ctx, h, key, key, 365*day)
		if err != nil {
			return
		}
		e.mu.Lock()
		if e.finished[key]++; e.finished[key] > 1 {
			e.Errorf("key %s was finished twice", key)
		}
		e.mu.Unlock()
		leave()
	}
}
