package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltest"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// TestBroker: the real broker's responses pass, even when the network loses some, and so the model describes Pawl.
func TestBroker(t *testing.T) {
	var all []Record
	for _, loss := range []float64{0, 0.03} {
		t.Run(fmt.Sprint("loss ", loss), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClientSet(t, loss)
				c.work(t)
				final, dead := c.end(t)
				o := Options{Final: final, Drained: true, DeadLetters: dead, Began: c.rec.Began(), ClockBound: 500 * time.Millisecond}
				records := c.rec.Records()
				r := Check(records, o)
				if !r.OK() {
					t.Fatal(r)
				}
				t.Log(r)
				all = append(all, records...)
			})
		})
	}
	happened(t, all)
}

// happened fails if the load was too tame to prove anything.
func happened(t *testing.T, records []Record) {
	t.Helper()
	seen := map[string]int{}
	for i := range records {
		r := &records[i]
		seen[strings.TrimRight(fmt.Sprintf("%s %s %s", r.Op, r.Code, r.Reason), " ")]++
		if r.Duplicate {
			seen["duplicate"]++
		}
	}
	for _, what := range []string{"duplicate", "ack refused expired", "ack refused reclaimed", "ack refused cancelled",
		"ack refused completed", "enqueue refused conflict", "cancel refused wrong_state", "retry ok", "retry refused wrong_state",
		"run_now ok", "discard ok", "extend ok", "release ok"} {
		if seen[what] == 0 {
			t.Errorf("no call had the outcome %q: %v", what, seen)
		}
	}
}

// clientSet is a set of clients of one broker that record what they see.
type clientSet struct {
	client *pawl.Client
	rec    *Recorder
	loss   float64

	mu    sync.Mutex
	tasks []string
	given []*pawl.Claim
}

// outcome is what happened to a call on its way, filled in by the interceptor.
type outcome struct {
	lost  bool
	shard uint32
	index uint64
	time  int64
}

type outcomeKey struct{}

func newClientSet(t *testing.T, loss float64) *clientSet {
	c := &clientSet{rec: NewRecorder(), loss: loss}
	c.client = pawltest.New(t).Client(t, pawl.DialOptions{RetryFor: -1, GRPC: []grpc.DialOption{grpc.WithUnaryInterceptor(c.intercept)}})
	return c
}

// intercept reads the stamps of a response, and decides randomly whether to lose it, after a delay.
func (c *clientSet) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	var trailer metadata.MD
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Trailer(&trailer))...)
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	f, ok := ctx.Value(outcomeKey{}).(*outcome)
	if !ok || len(trailer.Get("pawl-index")) == 0 {
		return err
	}
	f.lost = rand.Float64() < c.loss
	shard, _ := strconv.ParseUint(trailer.Get("pawl-shard")[0], 10, 32)
	f.shard = uint32(shard)
	f.index, _ = strconv.ParseUint(trailer.Get("pawl-index")[0], 10, 64)
	at, _ := time.Parse(time.RFC3339Nano, trailer.Get("pawl-time")[0])
	f.time = micro(at)
	return err
}

func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// call makes a call, completes its record and records it. ok is false for an unanswered call.
func (c *clientSet) call(t *testing.T, r Record, do func(context.Context, *Record) error) (Record, bool) {
	r, f := c.begin(r)
	err := do(context.WithValue(context.Background(), outcomeKey{}, f), &r)
	r = c.judge(t, r, f, err)
	c.rec.Add(r)
	return r, r.Code != Unknown
}

func (c *clientSet) begin(r Record) (Record, *outcome) {
	r.CallNS = c.rec.Now()
	r.Seq = int(r.CallNS)
	return r, &outcome{}
}

// judge sets the outcome of a call.
func (c *clientSet) judge(t *testing.T, r Record, f *outcome, err error) Record {
	r.ReturnNS = c.rec.Now()
	if f.lost {
		return Record{Client: r.Client, Seq: r.Seq, CallNS: r.CallNS, ReturnNS: r.ReturnNS, Op: r.Op, Task: r.Task,
			Token: r.Token, Fence: r.Fence, Queue: r.Queue, Payload: r.Payload, Args: r.Args, Answer: Answer{Code: Unknown}}
	}
	r.Shard, r.Index, r.TimeUS, r.Code = f.shard, f.index, f.time, OK
	var refusal *pawltype.Error
	switch {
	case err == nil:
	case !errors.As(err, &refusal):
		t.Errorf("%s: %v", r.Op, err)
	default:
		r.Code, r.Reason, r.State = Refused, Reason(refusal.Code), string(refusal.State)
		if refusal.Code == "stale_claim" {
			r.Reason, r.State = Reason(refusal.Reason), ""
		}
	}
	return r
}

const (
	clientCount    = 12
	callsPerClient = 150
	clientLease    = time.Second
)

func (c *clientSet) work(t *testing.T) {
	var all sync.WaitGroup
	for id := range clientCount {
		all.Go(func() {
			for range callsPerClient {
				time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
				switch p := rand.IntN(100); {
				case p < 20:
					c.produce(t, id)
				case p < 65:
					for _, claim := range c.claim(t, id, 1+rand.IntN(3)) {
						c.settle(t, id, claim)
					}
				default:
					c.disrupt(t, id)
				}
			}
		})
	}
	all.Wait()
}

func (c *clientSet) produce(t *testing.T, id int) {
	request := uuid.Must(uuid.NewV7())
	if rand.IntN(4) == 0 {
		request = uuid.New() // a UUID of another version: the broker keeps a separate record for it
	}
	payload := fmt.Sprintf("%q", request)
	r := Record{Client: id, Op: Enqueue, Queue: "q", Args: Args{RequestID: request.String(), MaxAttempts: 1 + rand.IntN(3)}}
	opts := []pawl.Option{pawl.Queue("q"), pawl.MaxAttempts(r.MaxAttempts), pawl.RequestID(r.RequestID),
		pawl.Retry(pawltype.RetryPolicy{Initial: 20 * time.Millisecond, Factor: 1, Max: time.Second})}
	if rand.IntN(3) == 0 {
		delay := time.Duration(rand.IntN(500)) * time.Millisecond
		r.DelayUS = delay.Microseconds()
		opts = append(opts, pawl.In(delay))
	}
	if rand.IntN(5) == 0 {
		r.Key = payload
		opts = append(opts, pawl.IdempotencyKey(r.Key))
	}
	for again := false; ; again = true {
		if again && rand.IntN(3) == 0 {
			payload = `"another"`
		}
		r.Payload = HashPayload([]byte(payload))
		got, ok := c.call(t, r, func(ctx context.Context, r *Record) error {
			out, err := c.client.EnqueueBatch(ctx, []pawl.Item{{Args: pawl.RawTask{Type: "job", Payload: []byte(payload)}, Options: opts}})
			if err == nil && out[0].Err == nil {
				r.Task, r.State, r.Duplicate = out[0].Ref.ID, string(out[0].Ref.State), out[0].Ref.Duplicate
			}
			return errors.Join(err, out[0].Err)
		})
		if ok && got.Code == OK && !got.Duplicate {
			c.mu.Lock()
			c.tasks = append(c.tasks, got.Task)
			c.mu.Unlock()
		}
		if ok && rand.IntN(8) > 0 {
			return
		}
	}
}

// claim claims some tasks, each with a record.
func (c *clientSet) claim(t *testing.T, id, most int) (claimed []*pawl.Claim) {
	key := uuid.NewString()
	for again := true; again; {
		r, f := c.begin(Record{Client: id, Op: Claim, Queue: "q", Args: Args{ClaimKey: key}})
		got, err := claims.New(c.client).Claim(context.WithValue(context.Background(), outcomeKey{}, f),
			claims.Request{Queues: pawl.Strict{"q"},
				Max: most, Lease: clientLease, Wait: time.Duration(rand.IntN(2)) * 50 * time.Millisecond, Worker: fmt.Sprint("w", id),
				Key: key})
		r = c.judge(t, r, f, err)
		if again = f.lost && rand.IntN(2) == 0; f.lost || len(got) == 0 {
			c.rec.Add(r)
			continue
		}
		for _, claim := range got {
			one := r
			one.Task, one.Token, one.Fence, one.Attempt = claim.ID, claim.Token, claim.Fence, claim.Attempt
			one.Payload, one.LeaseUntilUS = HashPayload(claim.Payload), micro(claim.LeaseExpiresAt)
			c.rec.Add(one)
		}
		claimed = got
	}
	c.mu.Lock()
	c.given = append(c.given, claimed...)
	c.mu.Unlock()
	return claimed
}

// settle ends a claim, perhaps late, perhaps twice, perhaps never.
func (c *clientSet) settle(t *testing.T, id int, claim *pawl.Claim) {
	if rand.IntN(4) == 0 {
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
	}
	verb := []Op{Ack, Ack, Ack, Fail, Fail, Release, Extend, ""}[rand.IntN(8)]
	for again := verb != ""; again; again = rand.IntN(8) == 0 {
		c.verb(t, id, verb, claim)
	}
}

func (c *clientSet) verb(t *testing.T, id int, verb Op, claim *pawl.Claim) {
	r := Record{Client: id, Op: verb, Task: claim.ID, Token: claim.Token, Fence: claim.Fence}
	cause := errors.New("by chance")
	switch rand.IntN(8) {
	case 0:
		r.DelayUS = 50_000
		r.Fall, cause = FallDead, pawl.DeadLetter(cause)
	case 1:
		r.Fall, cause = FallDiscard, pawl.Discard(cause)
	}
	if verb != Fail {
		r.Fall = ""
	}
	if verb != Release {
		r.DelayUS = 0
	}
	c.call(t, r, func(ctx context.Context, r *Record) error {
		var settled claims.Settled
		var leaseUntil time.Time
		var err error
		switch verb {
		case Ack:
			err = claims.New(c.client).Ack(ctx, claim)
		case Fail:
			settled, err = claims.New(c.client).Fail(ctx, claim, cause)
		case Release:
			settled, err = claims.New(c.client).Release(ctx, claim, time.Duration(r.DelayUS)*time.Microsecond)
		case Extend:
			leaseUntil, err = claims.New(c.client).Extend(ctx, claim, claims.Extension{})
		}
		r.State, r.DueUS, r.LeaseUntilUS = string(settled.State), micro(settled.NextRunAt), micro(leaseUntil)
		if r.State == "ready" {
			r.DueUS = 0
		}
		return err
	})
}

// disrupt does what operators and confused workers do.
func (c *clientSet) disrupt(t *testing.T, id int) {
	c.mu.Lock()
	tasks, given := c.tasks[max(0, len(c.tasks)-20):], c.given[max(0, len(c.given)-20):]
	c.mu.Unlock()
	if len(tasks) == 0 {
		return
	}
	if rand.IntN(3) == 0 && len(given) > 0 {
		c.verb(t, id, []Op{Ack, Fail, Release, Extend}[rand.IntN(4)], given[rand.IntN(len(given))])
		return
	}
	op := []Op{Get, Get, Get, Get, Cancel, Cancel, Retry, Retry, RunNow, RunNow, Discard}[rand.IntN(11)]
	c.steer(t, id, op, tasks[rand.IntN(len(tasks))])
}

func (c *clientSet) steer(t *testing.T, id int, op Op, task string) (Record, bool) {
	return c.call(t, Record{Client: id, Op: op, Task: task}, func(ctx context.Context, r *Record) error {
		do := map[Op]func() (*pawltype.Task, error){
			Get:     func() (*pawltype.Task, error) { return c.client.Task(ctx, task) },
			Cancel:  func() (*pawltype.Task, error) { return admin.New(c.client).Tasks().Cancel(ctx, task) },
			Retry:   func() (*pawltype.Task, error) { return admin.New(c.client).Tasks().Retry(ctx, task) },
			RunNow:  func() (*pawltype.Task, error) { return admin.New(c.client).Tasks().RunNow(ctx, task) },
			Discard: func() (*pawltype.Task, error) { return admin.New(c.client).Tasks().Discard(ctx, task) },
		}[op]
		info, err := do()
		if err == nil {
			r.see(info)
		}
		return err
	})
}

// see fills in what a task's description says.
func (r *Record) see(info *pawltype.Task) {
	r.State, r.Fence, r.Attempt, r.Queue = string(info.State), info.Fence, info.Attempts, info.Queue
	r.LeaseUntilUS = micro(info.LeaseExpiresAt)
	if info.Payload != nil {
		r.Payload = HashPayload(info.Payload)
	}
	if info.State == pawltype.StateScheduled || info.State == pawltype.StateRetrying {
		r.DueUS = micro(info.RunAt)
	}
}

// end finishes all tasks, without losses, and reads the final state of each and the dead letters.
func (c *clientSet) end(t *testing.T) (final []Record, dead []string) {
	c.loss = 0
	for quiet := 0; quiet < 3; quiet++ {
		time.Sleep(2 * clientLease)
		for claimed := c.claim(t, -1, 100); len(claimed) > 0; claimed = c.claim(t, -1, 100) {
			for _, claim := range claimed {
				c.verb(t, -1, Ack, claim)
			}
			quiet = 0
		}
	}
	for info, err := range admin.New(c.client).Tasks().List(t.Context(), admin.Filter{Queue: "q"}) {
		if err != nil {
			t.Fatal(err)
		}
		r, _ := c.steer(t, -2, Get, info.ID)
		final = append(final, r)
	}
	for info, err := range admin.New(c.client).DeadLetters().List(t.Context(), admin.Filter{Queue: "q"}) {
		if err != nil {
			t.Fatal(err)
		}
		dead = append(dead, info.ID)
	}
	return final, dead
}
