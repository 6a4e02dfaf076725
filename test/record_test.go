package test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/pawltype"
	"github.com/pawlq/pawl/test/history"
)

// Each call has a record of its own, with the stamps of its answer: a recording client repeats nothing by itself, or says so in the record.

// outcome is what happened to a call on its way, filled in by the interceptor.
type outcome struct {
	tries  int // how often it was sent
	stamps []stamp
}

// stamp is a shard's time and log position as of an answer.
type stamp struct {
	shard uint32
	index uint64
	time  int64
}

type outcomeKey struct{}

// intercept reads the stamps of an answer.
func intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	f, ok := ctx.Value(outcomeKey{}).(*outcome)
	if !ok {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	var trailer metadata.MD
	err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Trailer(&trailer))...)
	f.tries++
	f.stamps = stampsOf(trailer)
	return err
}

func stampsOf(trailer metadata.MD) (stamps []stamp) {
	list := func(name string) []string { return strings.Split(strings.Join(trailer.Get(name), ""), ", ") }
	shards, indexes, times := list("pawl-shard"), list("pawl-index"), list("pawl-time")
	if len(shards) != len(indexes) || len(shards) != len(times) {
		return nil
	}
	for i := range shards {
		shard, err1 := strconv.ParseUint(shards[i], 10, 32)
		index, err2 := strconv.ParseUint(indexes[i], 10, 64)
		at, err3 := time.Parse(time.RFC3339Nano, times[i])
		if errors.Join(err1, err2, err3) != nil {
			return nil
		}
		stamps = append(stamps, stamp{uint32(shard), index, at.UnixMicro()})
	}
	return stamps
}

// of returns the stamp of the shard that owns a task, or of the only shard if no task is named.
func (f *outcome) of(id string) (found stamp) {
	shard, known := uint32(0), false
	if parsed, err := task.ParseID(id); err == nil {
		shard, known = parsed.Shard(), true
	}
	for _, s := range f.stamps {
		if known && s.shard == shard || !known && len(f.stamps) == 1 {
			return s
		}
	}
	return stamp{}
}

// dialRecorded returns a client for recorded calls.
func dialRecorded(t *testing.T, addr string, opts ...pawl.DialOptions) *pawl.Client {
	t.Helper()
	opts = append([]pawl.DialOptions{{RetryFor: -1, Plaintext: true, GRPC: []grpc.DialOption{grpc.WithUnaryInterceptor(intercept)}}},
		opts...)
	client, err := pawl.Dial(addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// calls numbers the calls.
var calls atomic.Int64

// recorded makes a call and returns its record without adding it to the history: a claim becomes one record for each
// task. do fills in the answer.
func (w *workload) recorded(r history.Record, limit time.Duration, do func(ctx context.Context, r *history.Record) error) (history.Record,
	*outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	f := new(outcome)
	r.Seq, r.CallNS = int(calls.Add(1)), w.rec.Now()
	asked := r
	err := do(context.WithValue(ctx, outcomeKey{}, f), &r)
	r.ReturnNS, asked.ReturnNS = w.rec.Now(), w.rec.Now()
	at := f.of(r.Task)
	r.Shard, r.Index, r.TimeUS, r.Retried = at.shard, at.index, at.time, f.tries > 1
	r.Code, r.Reason = classify(err)
	var refusal *pawltype.Error
	switch {
	case r.Code == history.Unknown:
		asked.Code = history.Unknown
		return asked, f, err
	case r.Reason == history.WrongState && errors.As(err, &refusal):
		r.State = string(refusal.State)
	}
	return r, f, err
}

// call is recorded for a call about at most one task: it adds the record to the history.
func (w *workload) call(r history.Record, limit time.Duration, do func(ctx context.Context, r *history.Record) error) (history.Record,
	error) {
	r, _, err := w.recorded(r, limit, do)
	w.rec.Add(r)
	return r, err
}

// classify returns the code of a call by its error. Only what a task's state justifies is a refusal; all other errors
// may have come after the call took effect.
func classify(err error) (history.Code, history.Reason) {
	var refusal *pawltype.Error
	switch {
	case err == nil:
		return history.OK, ""
	case errors.Is(err, pawltype.ErrStaleClaim) && errors.As(err, &refusal):
		return history.Refused, history.Reason(refusal.Reason)
	case errors.Is(err, pawltype.ErrWrongState):
		return history.Refused, history.WrongState
	case errors.Is(err, pawltype.ErrNotFound):
		return history.Refused, history.NotFound
	case errors.Is(err, pawltype.ErrConflict):
		return history.Refused, history.Conflict
	}
	return history.Unknown, ""
}

// micro converts a time to the unit of records.
func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// see fills in what a task's description says.
func see(r *history.Record, info *pawltype.Task) {
	r.State, r.Fence, r.Attempt, r.Queue = string(info.State), info.Fence, info.Attempts, info.Queue
	r.LeaseUntilUS, r.Releases = micro(info.LeaseExpiresAt), info.Releases
	if info.Payload != nil {
		r.Payload = history.HashPayload(info.Payload)
	}
	if info.State == pawltype.StateScheduled || info.State == pawltype.StateRetrying {
		r.DueUS = micro(info.RunAt)
	}
}
