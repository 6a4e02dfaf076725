package pawl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/internal/client/outcome"
	"github.com/pawlq/pawl/pawltype"
)

// holder holds one claim, and returns what is configured.
type holder struct {
	progress   *pawlv1.Progress
	checkpoint []byte
	fails      error // of checkpoints and of recording once keys
	abandoned  int
	abandon    error
	begin      func() (pawltype.OnceAnswer, error) // nil: run
}

func (h *holder) Progress(_ context.Context, _ lease.Claim, p *pawlv1.Progress) error {
	h.progress = p
	return h.fails
}

func (h *holder) Checkpoint(_ context.Context, _ lease.Claim, data []byte) error {
	h.checkpoint = data
	return h.fails
}

func (h *holder) BeginOnce(context.Context, lease.Claim, string) (pawltype.OnceAnswer, error) {
	if h.begin != nil {
		return h.begin()
	}
	return pawltype.OnceAnswer{State: pawltype.OnceRun}, nil
}

func (h *holder) FinishOnce(context.Context, lease.Claim, string, []byte, time.Duration) error {
	return h.fails
}

func (h *holder) AbandonOnce(context.Context, lease.Claim, string) error {
	h.abandoned++
	return h.abandon
}

func held(h *holder, checkpoint string) *pawl.Claim {
	return pawl.NewClaim(&pawlv1.ClaimedTask{TaskId: "1", Checkpoint: []byte(checkpoint)}, h, nil)
}

func number(n int, err error) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { return n, err }
}

// Steps and the handler's own checkpoint are kept next to each other, and neither is mistaken for the other.
func TestStepsAndCheckpoints(t *testing.T) {
	for _, x := range []struct {
		before string
		steps  string // the recorded result of step a. Empty: it runs and returns 7
		own    string // the checkpoint that the handler sees. Empty: none
		after  string // what is stored after the step has run
	}{
		{"", "", "", `{"pawl_steps":{"a":7}}`},
		{`{"x":1}`, "", `{"x":1}`, `{"pawl_steps":{"a":7},"checkpoint":{"x":1}}`},
		{`{"pawl_steps":{"a":1}}`, "1", "", ""},
		{`{"pawl_steps":{"b":1},"checkpoint":2}`, "", "2", `{"pawl_steps":{"a":7,"b":1},"checkpoint":2}`},
		{`{"pawl_steps":{"a":1},"other":2}`, "", `{"pawl_steps":{"a":1},"other":2}`,
			`{"pawl_steps":{"a":7},"checkpoint":{"pawl_steps":{"a":1},"other":2}}`},
		{`{"pawl_steps":{"a":1}} 2`, "no room", "", ""},
		{`x`, "no room", "", ""},
		{`{"PAWL_STEPS":{"a":1}}`, "", `{"PAWL_STEPS":{"a":1}}`, `{"pawl_steps":{"a":7},"checkpoint":{"PAWL_STEPS":{"a":1}}}`},
		{`{"pawl_steps":null}`, "", `{"pawl_steps":null}`, `{"pawl_steps":{"a":7},"checkpoint":{"pawl_steps":null}}`},
	} {
		h := &holder{}
		c := held(h, x.before)
		var own any
		if _, err := c.LastCheckpoint(&own); x.own == "" && err == nil && own != nil {
			t.Errorf("%s: the handler sees the checkpoint %v, want none", x.before, own)
		}
		got, err := pawl.Step(t.Context(), pawl.Task[int]{Claim: c}, "a", number(7, nil))
		switch {
		case x.steps == "no room":
			if !errors.Is(err, pawltype.ErrInvalidArgument) || got != 0 {
				t.Errorf("%s: a step next to it returned %d, %v, want ErrInvalidArgument", x.before, got, err)
			}
		case err != nil || got != 7 && x.steps == "" || got != 1 && x.steps == "1" || string(h.checkpoint) != x.after:
			t.Errorf("%s: the step returned %d, %v and stored %s, want %s", x.before, got, err, h.checkpoint, x.after)
		}
	}
	h := &holder{}
	c := held(h, "")
	for own, want := range map[string]string{
		`{"pawl_steps":{}}`: `{"pawl_steps":{},"checkpoint":{"pawl_steps":{}}}`, `{"x":1}`: `{"x":1}`,
		`{"pawl_encrypted":"x"}`: `{"pawl_steps":{},"checkpoint":{"pawl_encrypted":"x"}}`, `{"pawl_encrypted":1}`: `{"pawl_encrypted":1}`,
	} {
		if err := c.Checkpoint(t.Context(), raw(own)); err != nil || string(h.checkpoint) != want {
			t.Errorf("checkpoint %s is stored as %s, %v, want %s", own, h.checkpoint, err, want)
		}
		var back json.RawMessage
		if ok, err := held(h, want).LastCheckpoint(&back); !ok || err != nil || string(back) != own {
			t.Errorf("%s is read as %s, %v, %v", own, back, ok, err)
		}
	}
	boom := errors.New("boom")
	h.fails = boom
	if err := c.Checkpoint(t.Context(), raw("3")); !errors.Is(err, boom) || !strings.HasPrefix(err.Error(), `checkpoint of task "1": `) {
		t.Errorf("a checkpoint that fails: %v, want the error with the task's id", err)
	}
	if _, err := pawl.Step(t.Context(), pawl.Task[int]{Claim: c}, "b", number(7, nil)); !errors.Is(err, boom) {
		t.Errorf("a step that can't be recorded: %v, want the error", err)
	}
	h.fails = nil
	if err := c.Checkpoint(t.Context(), make(chan int)); err == nil || !strings.HasPrefix(err.Error(), `pawl: checkpoint of task "1": `) {
		t.Errorf("a checkpoint that can't be marshaled: %v", err)
	}
	if there, err := held(h, "").LastCheckpoint(new(int)); there || err != nil {
		t.Errorf("LastCheckpoint without a checkpoint: %v, %v, want false", there, err)
	}
	if there, err := held(h, `"x"`).LastCheckpoint(new(int)); there || err == nil {
		t.Errorf("LastCheckpoint of another type: %v, %v, want an error", there, err)
	}
	if got, err := pawl.Step(t.Context(), pawl.Task[int]{Claim: c}, "c", number(7, boom)); got != 0 || !errors.Is(err, boom) {
		t.Errorf("a step that fails: %d, %v, want its error", got, err)
	}
	ended, end := context.WithCancelCause(t.Context())
	end(pawltype.ErrDraining)
	if _, err := pawl.Step(ended, pawl.Task[int]{Claim: c}, "d", number(7, nil)); !errors.Is(err, pawltype.ErrDraining) {
		t.Errorf("a step after the end of the run: %v, want ErrDraining", err)
	}
	for n, ok := range map[int]bool{0: false, 1: true, 256: true, 257: false} {
		_, err := pawl.Step(t.Context(), c, strings.Repeat("n", n), number(7, nil))
		if (err == nil) != ok || n > 256 && !strings.Contains(err.Error(), ` name: "`+strings.Repeat("n", 64)+`" is not`) {
			t.Errorf("a step with a name of %d bytes: %v", n, err)
		}
	}
	if _, err := pawl.Step(t.Context(), c, "\xff", number(7, nil)); !errors.Is(err, pawltype.ErrInvalidArgument) {
		t.Errorf("a step with a name that is not UTF-8: %v, want ErrInvalidArgument", err)
	}
}

// A recorded step does not run again in the same run.
func TestStepRunsOncePerRun(t *testing.T) {
	c := held(&holder{}, "")
	for n := range 2 {
		if got, err := pawl.Step(t.Context(), c, "a", number(n+1, nil)); got != 1 || err != nil {
			t.Errorf("run %d of the step: %d, %v, want 1", n, got, err)
		}
	}
	own := 0
	if err := c.Checkpoint(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if there, err := c.LastCheckpoint(&own); !there || err != nil || own != 7 {
		t.Errorf("the checkpoint is %d, %v, %v, want 7", own, there, err)
	}
}

// A checkpoint that is too large is not sent. If a step has run by then, it must not run again.
func TestCheckpointTooLarge(t *testing.T) {
	const most = 64 << 10
	text := func(n int) string { return strings.Repeat("x", n-len(`""`)) }
	refused := func(what string, err error, says string, want pawltype.Outcome) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) || pawl.OutcomeOf(err) != want {
			t.Errorf("%s: %v with outcome %s, want %q with outcome %s", what, err, pawl.OutcomeOf(err), says, want)
		}
	}
	h := &holder{}
	c := held(h, "")
	if err := c.Checkpoint(t.Context(), text(most)); err != nil || len(h.checkpoint) != most {
		t.Errorf("the largest checkpoint: %v, %d bytes were sent", err, len(h.checkpoint))
	}
	refused("a larger one", c.Checkpoint(t.Context(), text(most+1)), "checkpoint: 65537 bytes, at most 65536", pawltype.OutcomeFailed)
	_, err := pawl.Step(t.Context(), c, "a", number(7, nil))
	refused("a step beside it", err, "fn has run, but its result can't be recorded: ", pawltype.OutcomeDead)
	refused("a step beside it", err, "bytes, with 1 steps and the handler's own 65536 bytes; at most 65536", pawltype.OutcomeDead)
	_, err = pawl.Step(t.Context(), c, "a", func(context.Context) (chan int, error) { return nil, nil })
	refused("a step that gives no JSON", err, "fn has run, but its result can't be recorded: json: unsupported type", pawltype.OutcomeDead)
	if len(h.checkpoint) != most {
		t.Errorf("%d bytes were sent last, want only the largest checkpoint", len(h.checkpoint))
	}
}

// If several goroutines request the same step or once key, one runs it and the others wait. They don't wait for other names.
func TestConcurrentSteps(t *testing.T) {
	for what, run := range map[string]func(ctx context.Context, c *pawl.Claim, name string, fn func(context.Context) (int, error)) (int,
		error){
		"step": func(ctx context.Context, c *pawl.Claim, name string, fn func(context.Context) (int, error)) (int, error) {
			return pawl.Step(ctx, c, name, fn)
		},
		"once": func(ctx context.Context, c *pawl.Claim, name string, fn func(context.Context) (int, error)) (int, error) {
			return pawl.Once(ctx, c, name, fn)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := pawl.NewClaim(&pawlv1.ClaimedTask{TaskId: "1"}, nil, nil) // created by hand, it keeps the records itself
			var mu sync.Mutex
			var all []string
			note := func(what ...any) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, fmt.Sprint(what...))
			}
			at := func(ctx context.Context, name, key string, took time.Duration) {
				n, err := run(ctx, c, key, func(context.Context) (int, error) {
					time.Sleep(took)
					note(name, " runs")
					return int(took / time.Second), nil
				})
				if errors.Is(err, pawltype.ErrDraining) {
					note(name, " gives up")
				} else {
					note(name, " has ", n)
				}
			}
			ended, end := context.WithCancelCause(t.Context())
			go at(t.Context(), "first", "a", 3*time.Second)
			synctest.Wait()
			go at(t.Context(), "other", "b", 2*time.Second)
			synctest.Wait()
			go at(t.Context(), "second", "a", time.Second)
			go at(ended, "third", "a", time.Second)
			time.Sleep(time.Second)
			end(pawltype.ErrDraining)
			time.Sleep(3 * time.Second)
			at(t.Context(), "later", "a", time.Second)
			at(t.Context(), "later", "b", time.Second)
			slices.Sort(all)
			if got, want := strings.Join(all, ", "),
				"first has 3, first runs, later has 2, later has 3, other has 2, other runs, second has 3, "+
					"third gives up"; got != want {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
		})
	}
}

// Reports of handlers about their runs are checked before they are sent.
func TestClaimReports(t *testing.T) {
	h := &holder{}
	c := held(h, "")
	for given, want := range map[float64]float64{-5: 0, 0: 0, 0.5: 0.5, 100: 100, 100.5: 100, math.NaN(): 0} {
		if err := c.Progress(t.Context(), given, strings.Repeat("x", convert.MaxProgressText+1)); err != nil ||
			h.progress.GetPercent() != want || len(h.progress.GetMessage()) != convert.MaxProgressText {
			t.Errorf("Progress(%v) returned %v, sent %v and %d bytes, want %v", given, err, h.progress.GetPercent(),
				len(h.progress.GetMessage()), want)
		}
	}
	h.progress = nil
	ended, end := context.WithCancelCause(t.Context())
	end(pawltype.ErrDraining)
	if err := c.Progress(ended, 1, ""); !errors.Is(err, pawltype.ErrDraining) || h.progress != nil {
		t.Errorf("Progress after the end of the run: %v, sent %v, want ErrDraining", err, h.progress)
	}
	if err := c.Checkpoint(ended, 1); !errors.Is(err, pawltype.ErrDraining) || h.checkpoint != nil {
		t.Errorf("Checkpoint after the end of the run: %v, sent %s, want ErrDraining", err, h.checkpoint)
	}
	if err := new(pawl.Claim).Progress(t.Context(), 1, ""); err != nil {
		t.Errorf("Progress of a claim created by hand: %v", err)
	}
	if err := c.SetResult(make(chan int)); err == nil || !strings.HasPrefix(err.Error(), `pawl: result of task "1": `) ||
		c.Result() != nil || c.ResultContentType() != "" {
		t.Errorf("a result that can't be marshaled: %v, result %q of type %q", err, c.Result(), c.ResultContentType())
	}
}

// A payload must be JSON, or empty. Otherwise its task is poisoned. A payload that can't be decrypted is not decoded.
func TestDecode(t *testing.T) {
	locked := errors.New("no key")
	for what, x := range map[string]struct {
		payload, contentType string
		unreadable           error
		want                 int
		says                 string
		outcome              pawltype.Outcome
	}{
		"JSON":                {"7", "", nil, 7, "", pawltype.OutcomeSucceeded},
		"JSON, and says so":   {"7", "application/json", nil, 7, "", pawltype.OutcomeSucceeded},
		"nothing":             {"", "text/plain", nil, 0, "", pawltype.OutcomeSucceeded},
		"something else":      {"7", "text/plain", nil, 0, `payload of type "t" is "text/plain", not JSON`, pawltype.OutcomePoisoned},
		"broken":              {"{", "", nil, 0, `payload of type "t": unexpected end of JSON input`, pawltype.OutcomePoisoned},
		"not to be decrypted": {"7", "", locked, 0, "no key", pawltype.OutcomeFailed},
	} {
		c := pawl.NewClaim(&pawlv1.ClaimedTask{Type: "t", Payload: []byte(x.payload), ContentType: x.contentType, Checkpoint: []byte("1")},
			nil, x.unreadable)
		got := 0
		err := c.Decode(&got)
		if got != x.want || (err == nil) != (x.says == "") || err != nil && err.Error() != x.says || pawl.OutcomeOf(err) != x.outcome {
			t.Errorf("%s: Decode got %d, %v with outcome %s, want %d, %q, %s", what, got, err, pawl.OutcomeOf(err),
				x.want, x.says, x.outcome)
		}
		if there, err := c.LastCheckpoint(&got); there == (x.unreadable != nil) || !errors.Is(err, x.unreadable) {
			t.Errorf("%s: LastCheckpoint = %v, %v", what, there, err)
		}
	}
}

// raw is JSON that is sent unchanged.
type raw string

func (r raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// An effect happens once. It is recorded, its key is released if it fails, and it is waited for while another task holds it.
func TestOnce(t *testing.T) {
	boom, stale := errors.New("boom"), &pawltype.Error{Code: pawltype.ErrStaleClaim}
	large := func(n int) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return strings.Repeat("x", n-2), nil }
	}
	for what, x := range map[string]struct {
		h         *holder
		ttl       time.Duration
		fn        func(context.Context) (string, error)
		want      error
		abandoned int
		again     error // the result of the next call for the key
	}{
		"runs":             {&holder{}, 0, large(10), nil, 0, nil},
		"the shortest ttl": {&holder{}, time.Second, large(10), nil, 0, nil},
		"a shorter one":    {&holder{}, time.Second - 1, large(10), pawltype.ErrInvalidArgument, 0, pawltype.ErrInvalidArgument},
		"the longest":      {&holder{}, 365 * 24 * time.Hour, large(10), nil, 0, nil},
		"a longer one":     {&holder{}, 365*24*time.Hour + 1, large(10), pawltype.ErrInvalidArgument, 0, pawltype.ErrInvalidArgument},
		"the largest":      {&holder{}, 0, large(64 << 10), nil, 0, nil},
		"too large":        {&holder{}, 0, large(64<<10 + 1), pawltype.ErrInvalidArgument, 1, pawltype.ErrInvalidArgument},
		"fails":            {&holder{}, 0, func(context.Context) (string, error) { return "", boom }, boom, 1, boom},
		"is not given back": {&holder{abandon: pawltype.ErrUnavailable}, 0, func(context.Context) (string, error) { return "", boom }, boom,
			1, pawltype.ErrUnavailable},
		"was lost meanwhile": {&holder{abandon: stale}, 0, func(context.Context) (string, error) { return "", boom }, boom, 1, boom},
		"is not recorded":    {&holder{fails: boom}, 0, large(10), boom, 0, boom},
		"can't be asked": {&holder{begin: func() (pawltype.OnceAnswer, error) { return pawltype.OnceAnswer{}, boom }}, 0,
			large(10), boom, 0, boom},
		"of another type": {&holder{begin: func() (pawltype.OnceAnswer, error) {
			return pawltype.OnceAnswer{State: pawltype.OnceDone, Result: []byte("7")}, nil
		}}, 0, large(10), nil, 0, nil},
	} {
		c := held(x.h, "")
		var opts []pawl.OnceOption
		if x.ttl != 0 {
			opts = append(opts, pawl.TTL(x.ttl))
		}
		got, err := pawl.Once(t.Context(), pawl.Task[int]{Claim: c}, "k", x.fn, opts...)
		if what == "of another type" {
			if err == nil || got != "" || !strings.HasPrefix(err.Error(), `once "k" of task "1": `) {
				t.Errorf("%s: got %q, %v, want an error with the key", what, got, err)
			}
			continue
		}
		if !errors.Is(err, x.want) || x.h.abandoned != x.abandoned || (err == nil) != (got != "") {
			t.Errorf("%s: got %d bytes, %v, abandoned %d times, want %v", what, len(got), err, x.h.abandoned, x.want)
		}
		if _, err := pawl.Once(t.Context(), pawl.Task[int]{Claim: c}, "k", x.fn, opts...); !errors.Is(err, x.again) {
			t.Errorf("%s: the next call returned %v, want %v", what, err, x.again)
		}
	}
	if _, err := pawl.Once(t.Context(), held(&holder{}, ""), "k", large(10), pawl.TTL(0)); !errors.Is(err, pawltype.ErrInvalidArgument) {
		t.Errorf("a ttl of 0: %v", err)
	}
	c := held(&holder{abandon: pawltype.ErrUnavailable}, "")
	for i, key := range []string{"a", "b", "a", "b"} {
		if _, err := pawl.Once(t.Context(), c, key, number(0, boom)); errors.Is(err, boom) != (i < 2) ||
			errors.Is(err, pawltype.ErrUnavailable) != (i >= 2) {
			t.Errorf("key %q, call %d: %v", key, i, err)
		}
	}
	if got, err := pawl.Once(t.Context(), held(&holder{begin: func() (pawltype.OnceAnswer, error) {
		return pawltype.OnceAnswer{State: pawltype.OnceDone}, nil
	}}, ""), "k", number(7, nil)); got != 0 || err != nil {
		t.Errorf("an effect without a result: %d, %v, want 0", got, err)
	}
	for _, after := range []time.Duration{0, -time.Second} { // both mean unknown
		synctest.Test(t, func(t *testing.T) {
			var asked []time.Time
			c := held(&holder{begin: func() (pawltype.OnceAnswer, error) {
				if asked = append(asked, time.Now()); len(asked) == 3 {
					return pawltype.OnceAnswer{State: pawltype.OnceRun}, nil
				}
				return pawltype.OnceAnswer{State: pawltype.OnceHeld, RetryAfter: after}, nil
			}}, "")
			c.Lease = time.Minute
			if _, err := pawl.Once(t.Context(), c, "k", number(0, nil)); err != nil {
				t.Fatal(err)
			}
			for i, first := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond} {
				if rest := asked[i+1].Sub(asked[i]); rest < first/2 || rest > first {
					t.Errorf("pause %d is %s, want at most %s", i+1, rest, first)
				}
			}
		})
	}
	for lease, wait := range map[time.Duration]time.Duration{time.Second: 500 * time.Millisecond, time.Minute: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			c := held(&holder{begin: func() (pawltype.OnceAnswer, error) {
				asked++
				return pawltype.OnceAnswer{State: pawltype.OnceHeld, RetryAfter: 100 * time.Millisecond, Holder: pawltype.OnceHolder{
					TaskID: "2", Worker: "w"}}, nil
			}}, "")
			c.Lease = lease
			began := time.Now()
			_, err := pawl.Once(t.Context(), c, "k", number(0, nil))
			took := time.Since(began)
			if !errors.Is(err, pawltype.ErrOnceHeld) || took < wait || took > wait+100*time.Millisecond ||
				asked < int(wait/(100*time.Millisecond)) {
				t.Errorf("lease %s: %v after %s and %d attempts, want ErrOnceHeld after %s", lease, err, took, asked, wait)
			}
			putOff := max(time.Second, min(lease/2, 30*time.Second))
			if directive := outcome.DirectiveOf(err); directive == nil || directive.Delay < putOff/2 || directive.Delay > putOff {
				t.Errorf("lease %s: the retry is delayed by %+v, want at most %s", lease, directive, putOff)
			}
			ended, end := context.WithCancelCause(t.Context())
			end(pawltype.ErrDraining)
			if _, err := pawl.Once(ended, c, "k", number(0, nil)); !errors.Is(err, pawltype.ErrDraining) {
				t.Errorf("Once after the end of the run: %v, want ErrDraining", err)
			}
		})
	}
}
