package pawl_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

type welcome struct {
	To string `json:"to"`
}

func (welcome) TaskType() string { return "mail.welcome" }

type resize struct{ Width int }

func (resize) TaskType() string { return "image.resize" }
func (resize) TaskOptions() []pawl.Option {
	return []pawl.Option{pawl.Queue("images"), pawl.MaxAttempts(2), pawl.Priority(pawltype.Low)}
}

// wantErr checks an error with errors.Is.
func wantErr(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

func TestEnqueueSendsEveryOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		at := time.Now().Add(time.Hour)
		ref, err := client.Enqueue(t.Context(), welcome{To: "a@example.com"}, pawl.Queue("mail"), pawl.Priority(pawltype.High), pawl.At(at),
			pawl.IdempotencyKey("k"), pawl.IdempotencyTTL(time.Hour), pawl.MaxAttempts(7),
			pawl.Retry(pawltype.RetryPolicy{Initial: time.Second,
				Factor: 3, Jitter: pawltype.NoJitter}),
			pawl.Timeout(time.Minute), pawl.ExpiresIn(2*time.Minute), pawl.Retention(3*time.Minute), pawl.Key("acme"), pawl.Tags("a", "b"),
			pawl.Tags("c"), pawl.Header("traceparent", "00-1"), pawl.RequestID("0190a8b2-0000-7000-8000-000000000000"))
		if err != nil {
			t.Fatal(err)
		}
		if ref.ID != "t1" || ref.State != pawltype.StateReady || ref.Duplicate || ref.CreatedAt.IsZero() {
			t.Errorf("Enqueue returned %+v, want the new task t1 in state ready", ref)
		}
		s := f.enqueues[0][0]
		got := fmt.Sprint(s.Type, string(s.Payload), s.GetQueue(), s.Priority, s.RunAt.AsTime().Equal(at), s.GetIdempotencyKey(),
			s.IdempotencyTtl.AsDuration(), s.MaxAttempts, s.Retry.Initial.AsDuration(), s.Retry.Factor, *s.Retry.Jitter, s.Retry.Max,
			s.Timeout.AsDuration(), s.ExpiresIn.AsDuration(), s.Retention.AsDuration(), s.GetKey(), s.Tags, s.Headers, s.GetRequestId())
		want := `mail.welcome{"to":"a@example.com"}mailPRIORITY_HIGH true k 1h0m0s 7 1s 3 0 <nil> 1m0s 2m0s 3m0s acme [a b c] ` +
			`map[traceparent:00-1] 0190a8b2-0000-7000-8000-000000000000`
		if strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("the sent spec is\n%s\nwant\n%s", got, want)
		}
	})
}

func TestEnqueueOptionsOfTheType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		if _, err := client.Enqueue(t.Context(), resize{Width: 1}, pawl.MaxAttempts(9), pawl.In(time.Minute)); err != nil {
			t.Fatal(err)
		}
		s := f.enqueues[0][0]
		if s.GetQueue() != "images" || s.MaxAttempts != 9 || s.Priority != pawlv1.Priority_PRIORITY_LOW ||
			s.Delay.AsDuration() != time.Minute {
			t.Errorf("got %v, want queue images and priority low from the type, and 9 attempts from the call", s)
		}
	})
}

// What the broker would take for an option that is left out is refused.
func TestEmptyOptionsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		for field, option := range map[string]pawl.Option{"idempotency_key": pawl.IdempotencyKey(""), "max_attempts": pawl.MaxAttempts(0),
			"cost": pawl.Cost(0)} {
			_, err := client.Enqueue(t.Context(), welcome{}, option)
			if e, ok := errors.AsType[*pawltype.Error](err); !ok || !errors.Is(err, pawltype.ErrInvalidArgument) || e.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		if len(f.enqueues) > 0 {
			t.Errorf("%d tasks were sent", len(f.enqueues))
		}
	})
}

// Two calls are sent immediately. Calls that arrive while these are in flight are gathered into requests of 16, until eight are in flight.
func TestEnqueueGathers(t *testing.T) {
	for _, c := range []struct {
		calls int
		want  string
	}{
		{1, "[1]"}, {2, "[1 1]"}, {12, "[1 1 10]"}, {2 + 6*16, "[1 1 16 16 16 16 16 16]"}, {2 + 6*16 + 70, "[1 1 16 16 16 16 16 16 70]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t)
			hold := make(chan struct{})
			f.before = func(string) error { <-hold; return nil }
			refs := make(chan string, c.calls)
			for i := range c.calls {
				go func() {
					ref, err := client.Enqueue(t.Context(), welcome{To: fmt.Sprint(i)})
					if err != nil {
						t.Error(err)
					}
					refs <- ref.ID
				}()
				synctest.Wait()
			}
			close(hold)
			seen := map[string]bool{}
			for range c.calls {
				seen[<-refs] = true
			}
			var sizes []int
			for _, r := range f.enqueues {
				sizes = append(sizes, len(r))
			}
			slices.Sort(sizes)
			if len(seen) != c.calls || fmt.Sprint(sizes) != c.want {
				t.Errorf("%d calls: got %d tasks in requests of %v, want %s", c.calls, len(seen), sizes, c.want)
			}
		})
	}
}

func TestEnqueueBatchLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		items := make([]pawl.Item, 2500)
		for i := range items {
			items[i] = pawl.Item{Args: welcome{To: fmt.Sprint(i)}}
		}
		big := pawl.RawTask{Type: "big", Payload: make([]byte, 3<<20), ContentType: "application/octet-stream"}
		items = append(items, pawl.Item{Args: big}, pawl.Item{Args: big})
		out, err := client.EnqueueBatch(t.Context(), items)
		if err != nil || len(out) != 2502 {
			t.Fatalf("got %d results, error %v, want 2502", len(out), err)
		}
		for i, e := range out {
			if e.Err != nil || e.Ref.ID != fmt.Sprintf("t%d", i+1) {
				t.Fatalf("item %d: got %+v, want its own task", i, e)
			}
		}
		var sizes []int
		for _, r := range f.enqueues {
			sizes = append(sizes, len(r))
		}
		if fmt.Sprint(sizes) != "[1000 1000 501 1]" {
			t.Errorf("requests: got %v, want [1000 1000 501 1]", sizes)
		}
	})
	// Each task has the given number of bytes on the wire.
	for want, sizes := range map[string][]int{
		"[2 2]":   {2 << 20, 2 << 20, 2 << 20, 2 << 20},
		"[1 2 1]": {2<<20 + 1, 2 << 20, 2 << 20, 1 << 20},
		"[1 1]":   {5 << 20, 5 << 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t)
			var items []pawl.Item
			for _, size := range sizes {
				raw := pawl.RawTask{Type: "big", Payload: make([]byte, size-100), ContentType: "application/octet-stream"}
				head := proto.Size(&pawlv1.TaskSpec{Type: raw.Type, Payload: raw.Payload, ContentType: raw.ContentType,
					RequestId: new(uuid.NewString())}) - len(raw.Payload)
				raw.Payload = make([]byte, size-head)
				items = append(items, pawl.Item{Args: raw})
			}
			if _, err := client.EnqueueBatch(t.Context(), items); err != nil {
				t.Fatal(err)
			}
			var got []int
			for _, r := range f.enqueues {
				got = append(got, len(r))
			}
			if fmt.Sprint(got) != want {
				t.Errorf("tasks of %v bytes were sent in requests of %v, want %s", sizes, got, want)
			}
		})
	}
}

// EnqueueBatch reports that some tasks got no answer, whether the client or the caller gave up, and returns the results of the others.
func TestEnqueueBatchUnanswered(t *testing.T) {
	away := func(s *pawlv1.TaskSpec) *pawlv1.Error {
		if s.GetQueue() == "leaderless" {
			return &pawlv1.Error{Code: "unavailable"}
		}
		return nil
	}
	items := []pawl.Item{{Args: welcome{}, Options: []pawl.Option{pawl.Queue("leaderless")}}, {Args: welcome{}}}
	for what, x := range map[string]struct {
		opts  pawl.DialOptions
		limit time.Duration
		stop  func(*fake)
		want  error
		some  bool
	}{
		"the client gives up": {pawl.DialOptions{RetryFor: time.Second}, time.Hour, func(f *fake) { f.refuse = away },
			pawltype.ErrUnavailable, true},
		"the caller gives up": {pawl.DialOptions{}, time.Second, func(f *fake) { f.refuse = away }, context.DeadlineExceeded, true},
		"the caller gives up on all": {pawl.DialOptions{}, time.Second, func(f *fake) { f.before = func(string) error { return errMute } },
			context.DeadlineExceeded, false},
		"the client gives up on all": {pawl.DialOptions{RetryFor: time.Second}, time.Hour, func(f *fake) {
			f.before = func(string) error {
				return errUnavailable
			}
		}, pawltype.ErrUnavailable, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t, x.opts)
			f.set(func() { x.stop(f) })
			ctx, cancel := context.WithTimeout(t.Context(), x.limit)
			defer cancel()
			out, err := client.EnqueueBatch(ctx, items)
			if !errors.Is(err, x.want) || !strings.HasPrefix(err.Error(), "enqueue batch of 2: ") || !errors.Is(out[0].Err, x.want) ||
				(out[1].Ref != nil) != x.some {
				t.Errorf("%s: got %+v, %v, want %v", what, out, err, x.want)
			}
		})
	}
}

func TestEnqueueBatchAnswersForEachItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		unavailable := 1
		f.refuse = func(s *pawlv1.TaskSpec) *pawlv1.Error {
			switch {
			case s.GetQueue() == "full":
				return &pawlv1.Error{Code: "queue_full", RetryAfter: durationpb.New(time.Second)}
			case s.GetQueue() == "leaderless" && unavailable > 0:
				unavailable--
				return &pawlv1.Error{Code: "unavailable"}
			}
			return nil
		}
		out, err := client.EnqueueBatch(t.Context(), []pawl.Item{
			{Args: welcome{}}, {Args: welcome{}, Options: []pawl.Option{pawl.Queue("full")}}, {Args: pawl.RawTask{}},
			{Args: welcome{}, Options: []pawl.Option{pawl.Queue("leaderless")}},
			{Args: welcome{}, Options: []pawl.Option{pawl.Queue("\xff")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, "full", out[1].Err, pawltype.ErrQueueFull)
		wantErr(t, "no type", out[2].Err, pawltype.ErrInvalidArgument)
		wantErr(t, "not UTF-8", out[4].Err, pawltype.ErrInvalidArgument)
		var e *pawltype.Error
		if !errors.As(out[1].Err, &e) || e.RetryAfter != time.Second {
			t.Errorf("full: got %#v, want RetryAfter 1s", out[1].Err)
		}
		if out[0].Ref == nil || out[3].Ref == nil {
			t.Errorf("got %+v and %+v, want both tasks accepted", out[0], out[3])
		}
	})
}

// The first response gets lost. The retry has the same request id, so there is one task.
func TestEnqueueRepeatsWithTheSameRequestID(t *testing.T) {
	for _, gathered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t)
			lose := 2
			f.after = func(method string) error {
				if lose--; lose >= 0 {
					return status.Error(codes.Unavailable, "connection reset")
				}
				return nil
			}
			var ref *pawl.Ref
			if gathered {
				out, err := client.EnqueueBatch(t.Context(), []pawl.Item{{Args: welcome{}}, {Args: resize{}}})
				if err != nil {
					t.Fatal(err)
				}
				ref = out[0].Ref
			} else {
				var err error
				if ref, err = client.Enqueue(t.Context(), welcome{}); err != nil {
					t.Fatal(err)
				}
			}
			if ref.ID != "t1" || !ref.Duplicate || len(f.enqueues) != 3 {
				t.Errorf("gathered %v: got %+v after %d requests, want t1, a duplicate, after 3", gathered, ref, len(f.enqueues))
			}
			for _, r := range f.enqueues {
				if id := r[0].GetRequestId(); id != f.enqueues[0][0].GetRequestId() || len(id) != 36 || id[14] != '7' {
					t.Errorf("got request id %q, want the UUIDv7 of the first attempt, %q", id, f.enqueues[0][0].GetRequestId())
				}
			}
		})
	}
}

func TestEnqueueSurvivesABrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
			t.Fatal(err)
		}
		cut := false
		f.before = func(string) error {
			if !cut {
				cut = true
				f.cut()
			}
			return nil
		}
		ref, err := client.Enqueue(t.Context(), welcome{})
		if err != nil || ref.ID != "t2" || len(f.tasks) != 2 {
			t.Errorf("got %+v, %v and %d tasks, want t2 and 2 tasks", ref, err, len(f.tasks))
		}
	})
}

func TestCallsGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t, pawl.DialOptions{RetryFor: 10 * time.Second})
		tries := 0
		f.before = func(string) error { tries++; return errUnavailable }
		begin := time.Now()
		_, err := client.Enqueue(t.Context(), welcome{})
		wantErr(t, "enqueue", err, pawltype.ErrUnavailable)
		if took := time.Since(begin); took < 10*time.Second || took > 13*time.Second || tries < 5 || tries > 40 {
			t.Errorf("the call gave up after %s and %d attempts, want 10 s to 13 s and 5 to 40", took, tries)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = client.Task(ctx, "t1")
		wantErr(t, "task", err, context.DeadlineExceeded)
		wantErr(t, "task", err, pawltype.ErrUnavailable)
	})
}

// One caller of a batch gives up, and the others get their results.
func TestEnqueueRespectsEachContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		hold, calls := make(chan struct{}), make(chan string, 10)
		f.before = func(method string) error { calls <- method; <-hold; return nil }
		answers := make(chan error, 10)
		enqueue := func(ctx context.Context) {
			go func() { _, err := client.Enqueue(ctx, welcome{}); answers <- err }()
			synctest.Wait()
		}
		impatient, giveUp := context.WithCancel(t.Context())
		enqueue(t.Context())
		enqueue(t.Context())
		enqueue(impatient)
		enqueue(t.Context())
		giveUp()
		wantErr(t, "waiting", <-answers, context.Canceled)
		f.set(func() { f.before = nil })
		close(hold)
		for range 3 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		if len(f.tasks) != 3 {
			t.Errorf("got %d tasks, want 3, since the call that was given up had not been sent", len(f.tasks))
		}
	})
}

// A batch that no caller waits for any longer is cancelled, and the next one is sent.
func TestAbandonedBatchIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		hold := make(chan struct{})
		f.before = func(method string) error {
			if method == "EnqueueBatch" {
				<-hold
			}
			return nil
		}
		impatient, giveUp := context.WithCancel(t.Context())
		var batches sync.WaitGroup
		for range 10 * 16 { // more than can be in flight
			batches.Go(func() {
				_, err := client.Enqueue(impatient, welcome{})
				if err != nil {
					wantErr(t, "given up", err, context.Canceled)
				}
			})
		}
		synctest.Wait()
		giveUp()
		batches.Wait()
		for range 2 {
			if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
				t.Error(err)
			}
		}
		close(hold)
	})
}

func TestCloseEndsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		f.before = func(string) error { return errUnavailable }
		answers := make(chan error, 9)
		for range 8 {
			go func() { _, err := client.Enqueue(t.Context(), welcome{}); answers <- err }()
		}
		go func() { _, err := client.Task(t.Context(), "t1"); answers <- err }()
		synctest.Wait()
		client.Close()
		for range 9 {
			wantErr(t, "call", <-answers, pawltype.ErrClosed)
		}
		_, err := client.Enqueue(t.Context(), welcome{})
		wantErr(t, "after Close", err, pawltype.ErrClosed)
	})
}

// Close also ends calls to a broker that does not answer, and calls that have not been sent yet.
func TestCloseEndsBlockedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		hold, answers := make(chan struct{}), make(chan error, 10)
		f.before = func(string) error { <-hold; return nil }
		for range 10 {
			go func() { _, err := client.Enqueue(t.Context(), welcome{}); answers <- err }()
		}
		synctest.Wait()
		client.Close()
		for range 10 {
			wantErr(t, "call", <-answers, pawltype.ErrClosed)
		}
		close(hold)
	})
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		from error
		want error
	}{
		{refusal(codes.FailedPrecondition, &pawlv1.Error{Code: "stale_claim", Reason: "reclaimed", Holder: "w7"}), pawltype.ErrStaleClaim},
		{refusal(codes.FailedPrecondition, &pawlv1.Error{Code: "wrong_state", State: pawlv1.State_STATE_DEAD}), pawltype.ErrWrongState},
		{refusal(codes.InvalidArgument, &pawlv1.Error{Code: "invalid_argument", Field: "queue"}), pawltype.ErrInvalidArgument},
		{refusal(codes.AlreadyExists, &pawlv1.Error{Code: "conflict"}), pawltype.ErrConflict},
		{refusal(codes.ResourceExhausted, &pawlv1.Error{Code: "queue_full"}), pawltype.ErrQueueFull},
		{refusal(codes.ResourceExhausted, &pawlv1.Error{Code: "payload_too_large"}), pawltype.ErrPayloadTooLarge},
		{status.Error(codes.ResourceExhausted, "slow down"), pawltype.ErrRateLimited},
		{status.Error(codes.NotFound, "?"), pawltype.ErrNotFound},
		{status.Error(codes.Unauthenticated, "?"), pawltype.ErrUnauthenticated},
		{status.Error(codes.PermissionDenied, "?"), pawltype.ErrPermissionDenied},
		{status.Error(codes.Internal, "?"), pawltype.ErrInternal},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t)
			f.before = func(string) error { return c.from }
			_, err := admin.New(client).Tasks().Cancel(t.Context(), "t1")
			wantErr(t, c.from.Error(), err, c.want)
			var e *pawltype.Error
			if !errors.As(err, &e) {
				t.Fatalf("%v is not a *pawl.Error", err)
			}
			if c.want == pawltype.ErrStaleClaim && (e.Reason != "reclaimed" || e.Holder != "w7") || c.want == pawltype.ErrWrongState &&
				e.State != pawltype.StateDead || c.want == pawltype.ErrInvalidArgument && e.Field != "queue" {
				t.Errorf("the error lost its details: %#v", e)
			}
		})
	}
}

// Wait continues until the task has ended, with a pause if the broker answers too early.
func TestWait(t *testing.T) {
	const ms = time.Millisecond
	type round struct {
		took, least, most time.Duration // a call and the pause after it
	}
	for what, x := range map[string]struct {
		rounds []round // before the task ends
		state  pawlv1.State
	}{
		"at once": {nil, pawlv1.State_STATE_SUCCEEDED},
		"long":    {[]round{{time.Second, 0, 0}, {30 * time.Second, 0, 0}}, pawlv1.State_STATE_DEAD},
		"cut short": {[]round{{0, 10 * ms, 20 * ms}, {time.Second - 1, 20 * ms, 40 * ms}, {0, 40 * ms, 80 * ms}},
			pawlv1.State_STATE_SUCCEEDED},
		"cut short, and on": {[]round{{0, 10 * ms, 20 * ms}, {0, 20 * ms, 40 * ms}, {time.Second, 0, 0}, {0, 20 * ms, 40 * ms}},
			pawlv1.State_STATE_CANCELLED},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, client := start(t)
			var asked, answered []time.Time
			f.operator = func(_ string, req any) (any, bool) {
				if wait := req.(*pawlv1.GetTaskRequest).GetWait().AsDuration(); wait != 30*time.Second {
					t.Errorf("%s: a call has a wait of %s, want 30s", what, wait)
				}
				asked = append(asked, time.Now())
				task := &pawlv1.Task{TaskId: "t1", State: x.state}
				if n := len(answered); n < len(x.rounds) {
					time.Sleep(x.rounds[n].took)
					task.State = pawlv1.State_STATE_CLAIMED
				}
				answered = append(answered, time.Now())
				return &pawlv1.GetTaskResponse{Task: task}, true
			}
			task, err := client.Wait(t.Context(), "t1")
			ended, other := errors.AsType[*pawltype.EndedError](err)
			if task == nil || other == (x.state == pawlv1.State_STATE_SUCCEEDED) || other && ended.Task != task || !other && err != nil ||
				len(asked) != len(x.rounds)+1 {
				t.Fatalf("%s: %+v, %v after %d calls, want %s after %d", what, task, err, len(asked), x.state, len(x.rounds)+1)
			}
			for i, r := range x.rounds {
				if pause := asked[i+1].Sub(answered[i]); pause < r.least || pause > r.most {
					t.Errorf("%s: pause %d is %s, want %s to %s", what, i+1, pause, r.least, r.most)
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		f.operator = func(string, any) (any, bool) { return &pawlv1.GetTaskResponse{Task: &pawlv1.Task{}}, true }
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		if _, err := client.Wait(ctx, "t1"); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), `task "t1": `) ||
			!strings.Contains(err.Error(), "wait cut short") {
			t.Errorf("Wait of a caller that gives up: %v, want DeadlineExceeded with the task's id", err)
		}
		lost := 1
		f.set(func() {
			f.operator = func(string, any) (any, bool) {
				return &pawlv1.CancelTaskResponse{Task: &pawlv1.Task{TaskId: "t1"}}, true
			}
			f.before = func(string) error {
				if lost--; lost >= 0 {
					return errUnavailable
				}
				return nil
			}
		})
		if task, err := admin.New(client).WithReason("why").Tasks().Cancel(t.Context(), "t1"); err != nil || task.ID != "t1" {
			t.Errorf("Cancel did not retry after a lost response: %+v, %v", task, err)
		}
	})
}

func TestDialTargets(t *testing.T) {
	dialer := pawl.DialOptions{Dialer: func(context.Context, string) (net.Conn, error) { return nil, errors.New("no") }}
	for _, c := range []struct {
		addr string
		opts []pawl.DialOptions
		ok   bool
	}{
		{"localhost:7295", nil, true}, {"localhost", nil, true}, {"127.0.0.1:1", nil, true}, {"[::1]:7295", nil, true}, {"::1", nil, true},
		{"unix:///run/pawl", nil, true}, {"pawl.example.com:7295", nil, false}, {"10.0.0.1", nil, false}, {"", nil, false},
		{"http://localhost:7295", nil, false}, {"pawl.example.com:7295", []pawl.DialOptions{{TLS: &tls.Config{}}}, true},
		{"10.0.0.1", []pawl.DialOptions{{Plaintext: true}}, true}, {"anything", []pawl.DialOptions{dialer}, true},
		{"any,thing", []pawl.DialOptions{dialer}, true}, {"localhost:7295,localhost:7296", nil, true},
		{"localhost, 127.0.0.1:7", nil, true}, {"localhost,", nil, false}, {"localhost,10.0.0.1", nil, false},
		{"https://pawl.example.com:443", nil, true}, {"https://a:1, https://b:2", nil, true}, {"https://[2001:db8::1]:1", nil, true},
		{"https://a:1", []pawl.DialOptions{{TLS: &tls.Config{}}},
			true}, {"https://a:1,https://b:2", []pawl.DialOptions{dialer}, true},
		{"https://a:1,b:2", []pawl.DialOptions{{Plaintext: true}}, false}, {"localhost:1,https://b:2", nil, false},
		{"https://a", nil, false}, {"https://a:1/api", nil, false}, {"https://", nil, false}, {"https://unix:///x", nil, false},
		{"HTTPS://a:1", nil, false}, {"https://https://a:1", nil, false}, {"localhost,unix:///run/pawl", nil, false},
		{strings.Repeat("localhost,", 40) + "localhost",
			nil, false},
	} {
		client, err := pawl.Dial(c.addr, c.opts...)
		if (err == nil) != c.ok {
			t.Errorf("Dial(%q): got error %v, want ok %v", c.addr, err, c.ok)
		}
		if err == nil {
			client.Close()
		}
	}
}

func TestTokenIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t, pawl.DialOptions{Token: "s3cret"})
		f.set(func() { f.greet = nil })
		if _, err := client.Enqueue(t.Context(), welcome{}); err != nil {
			t.Fatal(err)
		}
		if got := f.token; got != "Bearer s3cret" {
			t.Errorf("the authorization header is %q, want the token", got)
		}
	})
}

func tokenOf(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(md.Get("authorization"), ",")
}

// With a negative RetryFor a call is made once, even if it fails within the resolution of the clock.
func TestNoRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t, pawl.DialOptions{RetryFor: -1})
		calls := 0
		f.before = func(string) error { calls++; return errUnavailable }
		if _, err := client.Task(t.Context(), "a"); !errors.Is(err, pawltype.ErrUnavailable) || calls != 1 {
			t.Errorf("%v after %d calls, want one", err, calls)
		}
	})
}
