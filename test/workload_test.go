package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
	"github.com/pawlq/pawl/test/history"
)

// workload is a set of producers, workers and disrupters whose calls are all recorded.
type workload struct {
	t       *testing.T
	cfg     load
	clients []*pawl.Client // the n-th of each kind uses the n-th client, and so on in turn
	patient *pawl.Client   // repeats unanswered calls: for the end
	rec     *history.Recorder
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	accepted, unknown atomic.Int64 // answered and unanswered enqueues
	acked             atomic.Int64

	mu     sync.Mutex
	recent []string      // recently accepted tasks
	zombie []*pawl.Claim // claims that their worker has forgotten for a while
}

// load configures a workload.
type load struct {
	addrs  []string // one per client; a server's, or a list of servers'
	queues []string
	pace   time.Duration // maximum pause of a producer between two enqueues; half of it on average
	// probe is the time between two enqueues that don't wait for each other's answers: they show how long there are none; 0: no probes.
	probe time.Duration
	// faultless: the servers are disturbed only in ways that an SDK client with its own retries does not notice.
	faultless bool
	// scattered: the queues are in several shards. Then the answer to a claim has the latest stamp of each shard that was
	// queried, which need not be that of the claim: its records have no stamp.
	scattered bool
}

const (
	producers  = 4
	workers    = 4
	disrupters = 3
	testLease  = 2 * time.Second
	// callTime is how long a call may take. A disrupter's call gets more, so that it is answered even though the server
	// was paused: such answers must not be stale.
	callTime    = 3 * time.Second
	disruptTime = 8 * time.Second
	// repeatTime is for how long an unanswered call is repeated, and repeatPause the pause before.
	repeatTime  = 2 * time.Second
	repeatPause = 50 * time.Millisecond
	// faultlessTime is for calls that must be answered.
	faultlessTime = time.Minute
	// serverPace keeps enqueues under way at any time, and leaves the CPUs to other tests.
	serverPace = 16 * time.Millisecond
)

// newWorkload loads one server.
func newWorkload(t *testing.T, addr string, queues ...string) *workload {
	return load{addrs: []string{addr}, queues: queues, pace: serverPace}.start(t)
}

func (cfg load) start(t *testing.T) *workload {
	w := &workload{t: t, cfg: cfg, rec: history.NewRecorder()}
	var opts []pawl.DialOptions
	if cfg.faultless {
		opts = append(opts, pawl.DialOptions{RetryFor: faultlessTime})
	}
	for _, addr := range cfg.addrs {
		w.clients = append(w.clients, dialRecorded(t, addr, opts...))
	}
	w.patient = dialRecorded(t, cfg.addrs[len(cfg.addrs)-1], pawl.DialOptions{RetryFor: startLimit})
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.run(0, producers, w.produce)
	w.run(producers, workers, w.work)
	w.run(producers+workers, disrupters, w.disrupt)
	if cfg.probe > 0 {
		w.running.Go(w.probe)
	}
	t.Cleanup(w.finish)
	return w
}

// run starts n of a kind, numbered from after.
func (w *workload) run(after, n int, one func(id int, c *pawl.Client)) {
	for k := range n {
		w.running.Go(func() { one(after+k+1, w.clients[k%len(w.clients)]) })
	}
}

// finish stops the load.
func (w *workload) finish() {
	w.stop()
	w.running.Wait()
}

// flow waits until calls of the load that begin from now on have been answered: w.accepted for enqueues, w.acked for acks.
func (w *workload) flow(what *atomic.Int64) {
	w.t.Helper()
	// Calls under way now may be counted in a moment: at most one per client.
	enough := what.Load() + producers + workers + 20
	eventually(w.t, "the load gets answers", startLimit, func() bool { return what.Load() > enough })
}

// limit returns how long a call may take.
func (w *workload) limit(usual time.Duration) time.Duration {
	if w.cfg.faultless {
		return faultlessTime
	}
	return usual
}

// repeat repeats a call until it is answered, for a while.
func (w *workload) repeat(r history.Record, do func(ctx context.Context, r *history.Record) error) history.Record {
	for began := time.Now(); ; {
		got, err := w.call(r, w.limit(callTime), do)
		if got.Code != history.Unknown {
			return got
		}
		if w.troubled(got, err) || time.Since(began) > repeatTime || !w.rest(repeatPause) {
			return got
		}
	}
}

// troubled fails the test if a call that must be answered was not.
func (w *workload) troubled(r history.Record, err error) bool {
	if w.cfg.faultless && r.Code == history.Unknown {
		w.t.Errorf("an SDK client got an error: %s: %v", r.Op, err)
		return true
	}
	return false
}

// rest pauses, and returns false when the load is to end.
func (w *workload) rest(d time.Duration) bool {
	select {
	case <-w.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (w *workload) produce(id int, c *pawl.Client) {
	for i := 0; w.ctx.Err() == nil; i++ {
		value := fmt.Sprintf(`"%d-%d"`, id, i)
		r := history.Record{Client: id, Queue: w.cfg.queues[i%len(w.cfg.queues)]}
		if i%3 == 0 {
			r.DelayUS = rand.Int64N(2_000_000)
		}
		if i%5 == 0 {
			r.Key = value
		}
		w.enqueue(c, r, value)
		if r.Key != "" && i%2 == 0 { // with another request id
			w.enqueue(c, r, value)
		}
		if w.cfg.pace > 0 {
			w.rest(rand.N(w.cfg.pace))
		}
	}
}

// The numbers in records of clients that are neither producers, workers nor disrupters.
const (
	prober = producers + workers + disrupters + 1 + iota
	burstID
)

// probe enqueues at a steady rate, whatever the outcomes, at each server in turn.
func (w *workload) probe() {
	for i := 0; w.rest(w.cfg.probe); i++ {
		value := fmt.Sprintf(`"probe-%d"`, i)
		w.running.Go(func() {
			w.enqueue(w.clients[i%len(w.clients)], history.Record{Client: prober, Queue: w.cfg.queues[0]}, value)
		})
	}
}

// Retries come soon, so that a failure does not delay the end of a test.
const maxAttempts = 20

func retries() []pawl.Option {
	return []pawl.Option{pawl.MaxAttempts(maxAttempts), pawl.Retry(pawltype.RetryPolicy{Initial: 50 * time.Millisecond, Factor: 1,
		Max: time.Second})}
}

// enqueue enqueues a task as a record says. The task is "" if there was no answer.
func (w *workload) enqueue(c *pawl.Client, r history.Record, value string) (task string) {
	r.Op, r.Payload, r.RequestID, r.MaxAttempts = history.Enqueue, history.HashPayload([]byte(value)), requestID(), maxAttempts
	opts := append(retries(), pawl.Queue(r.Queue), pawl.RequestID(r.RequestID))
	if r.DelayUS > 0 {
		opts = append(opts, pawl.In(time.Duration(r.DelayUS)*time.Microsecond))
	}
	if r.Key != "" {
		opts = append(opts, pawl.IdempotencyKey(r.Key))
	}
	got := w.repeat(r, func(ctx context.Context, r *history.Record) error {
		// Not batched implicitly: then the answer's stamps would be another call's.
		out, err := c.EnqueueBatch(ctx, []pawl.Item{{Args: pawl.RawTask{Type: "job", Payload: []byte(value)}, Options: opts}})
		if err = errors.Join(err, out[0].Err); err == nil {
			r.Task, r.State, r.Duplicate = out[0].Ref.ID, string(out[0].Ref.State), out[0].Ref.Duplicate
		}
		return err
	})
	if got.Code != history.OK {
		w.unknown.Add(1)
		return ""
	}
	w.accepted.Add(1)
	w.note(got.Task)
	return got.Task
}

// requestID returns either an id that the task's id is derived from, or one that the broker must remember.
func requestID() string {
	if rand.IntN(8) == 0 {
		return uuid.NewString()
	}
	return uuid.Must(uuid.NewV7()).String()
}

// maxRecent is how many tasks and claims are remembered for disrupters.
const maxRecent = 100

func (w *workload) note(task string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recent = append(w.recent[max(0, len(w.recent)-maxRecent+1):], task)
}

// backlog enqueues n tasks.
func (w *workload) backlog(queue string, n int) {
	w.t.Helper()
	items, records := make([]pawl.Item, n), make([]history.Record, n)
	for i := range items {
		value := []byte(fmt.Sprintf(`"%s-%d"`, queue, i))
		records[i].RequestID, records[i].Payload = requestID(), history.HashPayload(value)
		items[i] = pawl.Item{Args: pawl.RawTask{Type: "job", Payload: value},
			Options: append(retries(), pawl.Queue(queue), pawl.RequestID(records[i].RequestID))}
	}
	all, _, err := w.recorded(history.Record{Op: history.Enqueue, Queue: queue}, faultlessTime, func(ctx context.Context,
		_ *history.Record) error {
		answers, err := w.clients[0].EnqueueBatch(ctx, items)
		for i, a := range answers {
			if err = errors.Join(err, a.Err); err == nil {
				records[i].Task, records[i].State = a.Ref.ID, string(a.Ref.State)
			}
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range records {
		one := all
		one.Task, one.State, one.RequestID, one.Payload, one.MaxAttempts = r.Task, r.State, r.RequestID, r.Payload, maxAttempts
		w.rec.Add(one)
	}
}

func (w *workload) work(id int, c *pawl.Client) {
	for w.ctx.Err() == nil {
		for _, claim := range w.claim(id, c, time.Second, 1+rand.IntN(8)) {
			w.settle(id, c, claim)
		}
	}
}

// claim claims some tasks. An unanswered claim is usually repeated with its key; otherwise its tasks come back when the lease ends.
func (w *workload) claim(id int, c *pawl.Client, wait time.Duration, most int) (claimed []*pawl.Claim) {
	queues := w.order()
	ask := history.Record{Client: id, Op: history.Claim, Queue: strings.Join(queues, ","), Args: history.Args{ClaimKey: uuid.NewString()}}
	for again := true; again; {
		r, f, err := w.recorded(ask, w.limit(wait+callTime), func(ctx context.Context, _ *history.Record) (err error) {
			claimed, err = claims.New(c).Claim(ctx, claims.Request{Queues: queues, Max: most, Lease: testLease, Wait: wait, Worker: "w",
				Key: ask.ClaimKey})
			return err
		})
		again = r.Code == history.Unknown && !w.troubled(r, err) && rand.IntN(4) > 0 && w.rest(repeatPause)
		w.given(r, f, claimed)
	}
	return claimed
}

// given records what a claim got: a record for each task, with the stamp of its shard, or one record if it got none. A
// waiting claim with an empty answer may have got something after all, which the broker returned because the wait was
// over or it was about to stop. If its leader was replaced at that time, the lease has to end first. So the checker
// treats it as an unanswered claim.
func (w *workload) given(r history.Record, f *outcome, claimed []*pawl.Claim) {
	if len(claimed) == 0 {
		r.Answer = history.Answer{Code: history.Unknown}
		w.rec.Add(r)
	}
	for _, c := range claimed {
		at := f.of(c.ID)
		one := r
		one.Task, one.Token, one.Fence, one.Attempt = c.ID, c.Token, c.Fence, c.Attempt
		if one.Shard, one.Index, one.TimeUS = at.shard, at.index, at.time; w.cfg.scattered {
			one.Shard, one.Index, one.TimeUS = 0, 0, 0
		}
		one.Payload, one.LeaseUntilUS = history.HashPayload(c.Payload), micro(c.LeaseExpiresAt)
		w.rec.Add(one)
	}
}

// order returns the order in which queues are claimed from, which alternates so that none starves.
func (w *workload) order() pawl.Strict {
	queues := slices.Clone(w.cfg.queues)
	rand.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
	return queues
}

// settle ends a claim in one way or another, or forgets it: then a disrupter may find it.
func (w *workload) settle(id int, c *pawl.Client, claim *pawl.Claim) {
	switch n := rand.IntN(100); {
	case n < 75:
		w.end(id, c, history.Ack, claim)
	case n < 80:
		w.end(id, c, history.Extend, claim)
		w.end(id, c, history.Ack, claim)
	case n < 90:
		w.end(id, c, history.Fail, claim)
	case n < 95:
		w.end(id, c, history.Release, claim)
	default:
		w.mu.Lock()
		w.zombie = append(w.zombie[max(0, len(w.zombie)-maxRecent+1):], claim)
		w.mu.Unlock()
	}
}

// end ends a claim, and repeats that until it is answered.
func (w *workload) end(id int, c *pawl.Client, verb history.Op, claim *pawl.Claim) history.Record {
	r, do := verbOf(id, c, verb, claim)
	got := w.repeat(r, do)
	if got.Op == history.Ack && got.Code == history.OK {
		w.acked.Add(1)
	}
	return got
}

// verbOf returns a call about a claim, and its record.
func verbOf(id int, c *pawl.Client, verb history.Op, claim *pawl.Claim) (history.Record, func(context.Context, *history.Record) error) {
	r := history.Record{Client: id, Op: verb, Task: claim.ID, Token: claim.Token, Fence: claim.Fence}
	cause := errors.New("by chance")
	switch dice := rand.IntN(8); {
	case verb == history.Fail && dice == 0:
		r.Fall, cause = history.FallDead, pawl.DeadLetter(cause)
	case verb == history.Fail && dice == 1:
		r.Fall, cause = history.FallDiscard, pawl.Discard(cause)
	case verb == history.Release && dice < 4:
		r.DelayUS = 50_000
	}
	return r, func(ctx context.Context, r *history.Record) (err error) {
		var settled claims.Settled
		var leaseUntil time.Time
		switch verb {
		case history.Ack:
			err = claims.New(c).Ack(ctx, claim)
		case history.Fail:
			settled, err = claims.New(c).Fail(ctx, claim, cause)
		case history.Release:
			settled, err = claims.New(c).Release(ctx, claim, time.Duration(r.DelayUS)*time.Microsecond)
		case history.Extend:
			leaseUntil, err = claims.New(c).Extend(ctx, claim, claims.Extension{})
		}
		r.State, r.DueUS, r.LeaseUntilUS = string(settled.State), micro(settled.NextRunAt), micro(leaseUntil)
		if r.State == "ready" {
			r.DueUS = 0
		}
		return err
	}
}

// disruptPause is the maximum pause of a disrupter between two calls.
const disruptPause = 60 * time.Millisecond

// disrupt does what operators and confused workers do: it reads tasks, cancels some, and ends claims that others may have by now.
func (w *workload) disrupt(id int, c *pawl.Client) {
	for w.rest(rand.N(disruptPause)) {
		task, claim := w.pick()
		switch n := rand.IntN(10); {
		case task == "":
		case n == 0:
			r, err := w.cancel(id, c, task)
			w.troubled(r, err)
			if r.Code == history.Unknown { // a task that is not touched again is easier to check
				w.forget(task)
			}
		case n < 3 && claim != nil:
			r, do := verbOf(id, c, []history.Op{history.Ack, history.Fail, history.Release, history.Extend}[rand.IntN(4)], claim)
			r, err := w.call(r, w.limit(disruptTime), do)
			w.troubled(r, err)
		default:
			r, err := w.get(id, c, task)
			w.rec.Add(r)
			w.troubled(r, err)
		}
	}
}

// pick returns a recently accepted task and a forgotten claim, if there are any.
func (w *workload) pick() (task string, claim *pawl.Claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.recent); n > 0 {
		task = w.recent[rand.IntN(n)]
	}
	if n := len(w.zombie); n > 0 {
		i := rand.IntN(n)
		claim = w.zombie[i]
		w.zombie = slices.Delete(w.zombie, i, i+1)
	}
	return task, claim
}

func (w *workload) forget(task string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recent = slices.DeleteFunc(w.recent, func(t string) bool { return t == task })
}

func (w *workload) cancel(id int, c *pawl.Client, task string) (history.Record, error) {
	return w.call(history.Record{Client: id, Op: history.Cancel, Task: task}, w.limit(disruptTime), func(ctx context.Context,
		r *history.Record) error {
		info, err := admin.New(c).Tasks().Cancel(ctx, task)
		if err == nil {
			see(r, info)
		}
		return err
	})
}

// get reads a task. The record is not recorded yet.
func (w *workload) get(id int, c *pawl.Client, task string) (history.Record, error) {
	r, _, err := w.recorded(history.Record{Client: id, Op: history.Get, Task: task}, w.limit(disruptTime), func(ctx context.Context,
		r *history.Record) error {
		info, err := c.Task(ctx, task)
		if err == nil {
			see(r, info)
		}
		return err
	})
	return r, err
}
