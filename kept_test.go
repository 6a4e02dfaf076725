package pawl_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/internal/client/outcome"
	"github.com/pawlq/pawl/pawltype"
)

// holder holds one claim, and answers as it is told to.
type holder struct {
	checkpoint []byte
	fails      error // of checkpoints, and of records of once keys
	abandoned  int
	abandon    error
	begin      func() (pawltype.OnceAnswer, error) // nil: run
}

func (h *holder) Progress(context.Context, lease.Claim, *pawlv1.Progress) error { return h.fails }

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

// Steps and the handler's own checkpoint are kept beside each other, and neither is taken for the other.
func TestStepsAndCheckpoints(t *testing.T) {
	for _, x := range []struct {
		before string
		steps  string // what a step named a gives that is recorded; "": it runs and gives 7
		own    string // the checkpoint that the handler sees; "": none
		after  string // what is stored once the step has run
	}{
		{"", "", "", `{"pawl_steps":{"a":7}}`},
		{`{"x":1}`, "", `{"x":1}`, `{"pawl_steps":{"a":7},"checkpoint":{"x":1}}`},
		{`{"pawl_steps":{"a":1}}`, "1", "", ""},
		{`{"pawl_steps":{"b":1},"checkpoint":2}`, "", "2", `{"pawl_steps":{"a":7,"b":1},"checkpoint":2}`},
		{`{"pawl_steps":{"a":1},"other":2}`, "", `{"pawl_steps":{"a":1},"other":2}`, `{"pawl_steps":{"a":7},"checkpoint":{"pawl_steps":{"a":1},"other":2}}`},
		{`{"pawl_steps":{"a":1}} 2`, "no room", "", ""},
		{`x`, "no room", "", ""},
		{`{"pawl_steps":null}`, "", `{"pawl_steps":null}`, `{"pawl_steps":{"a":7},"checkpoint":{"pawl_steps":null}}`},
	} {
		h := &holder{}
		c := held(h, x.before)
		var own any
		if _, err := c.LastCheckpoint(&own); x.own == "" && err == nil && own != nil {
			t.Errorf("%s: the handler sees %v", x.before, own)
		}
		got, err := pawl.Step(t.Context(), pawl.Task[int]{Claim: c}, "a", number(7, nil))
		switch {
		case x.steps == "no room":
			if !errors.Is(err, pawltype.ErrInvalidArgument) || got != 0 {
				t.Errorf("%s: a step beside it gave %d, %v", x.before, got, err)
			}
		case err != nil || got != 7 && x.steps == "" || got != 1 && x.steps == "1" || string(h.checkpoint) != x.after:
			t.Errorf("%s: got %d, %v, stored %s, want %s", x.before, got, err, h.checkpoint, x.after)
		}
	}
	h := &holder{}
	c := held(h, "")
	for own, want := range map[string]string{`{"pawl_steps":{}}`: `{"pawl_steps":{},"checkpoint":{"pawl_steps":{}}}`, `{"x":1}`: `{"x":1}`} {
		if err := c.Checkpoint(t.Context(), raw(own)); err != nil || string(h.checkpoint) != want {
			t.Errorf("%s is stored as %s, %v, want %s", own, h.checkpoint, err, want)
		}
	}
	boom := errors.New("boom")
	h.fails = boom
	if err := c.Checkpoint(t.Context(), raw("3")); !errors.Is(err, boom) || !strings.HasPrefix(err.Error(), `checkpoint of task "1": `) {
		t.Errorf("a checkpoint that is refused: %v", err)
	}
	if _, err := pawl.Step(t.Context(), pawl.Task[int]{Claim: c}, "b", number(7, nil)); !errors.Is(err, boom) {
		t.Errorf("a step that can't be recorded: %v", err)
	}
	h.fails = nil
	if err := c.Checkpoint(t.Context(), make(chan int)); err == nil || !strings.HasPrefix(err.Error(), `pawl: checkpoint of task "1": `) {
		t.Errorf("what is no JSON: %v", err)
	}
	if there, err := held(h, "").LastCheckpoint(new(int)); there || err != nil {
		t.Errorf("no checkpoint: %v, %v", there, err)
	}
	if there, err := held(h, `"x"`).LastCheckpoint(new(int)); there || err == nil {
		t.Errorf("one of another type: %v, %v", there, err)
	}
	if got, err := pawl.Step(t.Context(), pawl.Task[int]{Claim: c}, "c", number(7, boom)); got != 0 || !errors.Is(err, boom) {
		t.Errorf("a step that fails: %d, %v", got, err)
	}
	ended, end := context.WithCancelCause(t.Context())
	end(pawltype.ErrDraining)
	if _, err := pawl.Step(ended, pawl.Task[int]{Claim: c}, "d", number(7, nil)); !errors.Is(err, pawltype.ErrDraining) {
		t.Errorf("a step after the end: %v", err)
	}
	for n, ok := range map[int]bool{0: false, 1: true, 256: true, 257: false} {
		if _, err := pawl.Step(t.Context(), pawl.Task[int]{Claim: c}, strings.Repeat("n", n), number(7, nil)); (err == nil) != ok {
			t.Errorf("a name of %d bytes: %v", n, err)
		}
	}
}

// raw is JSON as it is.
type raw string

func (r raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// An effect happens once: it is recorded, given back if it fails, and waited for while another task has it.
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
		again     error // what the next try of the key gives
	}{
		"runs":               {&holder{}, 0, large(10), nil, 0, nil},
		"the shortest ttl":   {&holder{}, time.Second, large(10), nil, 0, nil},
		"a shorter one":      {&holder{}, time.Second - 1, large(10), pawltype.ErrInvalidArgument, 0, pawltype.ErrInvalidArgument},
		"the longest":        {&holder{}, 365 * 24 * time.Hour, large(10), nil, 0, nil},
		"a longer one":       {&holder{}, 365*24*time.Hour + 1, large(10), pawltype.ErrInvalidArgument, 0, pawltype.ErrInvalidArgument},
		"the largest":        {&holder{}, 0, large(64 << 10), nil, 0, nil},
		"too large":          {&holder{}, 0, large(64<<10 + 1), pawltype.ErrInvalidArgument, 1, pawltype.ErrInvalidArgument},
		"fails":              {&holder{}, 0, func(context.Context) (string, error) { return "", boom }, boom, 1, boom},
		"is not given back":  {&holder{abandon: pawltype.ErrUnavailable}, 0, func(context.Context) (string, error) { return "", boom }, boom, 1, pawltype.ErrUnavailable},
		"was lost meanwhile": {&holder{abandon: stale}, 0, func(context.Context) (string, error) { return "", boom }, boom, 1, boom},
		"is not recorded":    {&holder{fails: boom}, 0, large(10), boom, 0, boom},
		"can't be asked":     {&holder{begin: func() (pawltype.OnceAnswer, error) { return pawltype.OnceAnswer{}, boom }}, 0, large(10), boom, 0, boom},
		"of another type": {&holder{begin: func() (pawltype.OnceAnswer, error) {
			return pawltype.OnceAnswer{State: pawltype.OnceDone, Result: []byte("7")}, nil
		}}, 0, large(10), nil, 0, nil},
	} {
		c := held(x.h, "")
		got, err := pawl.OnceFor(t.Context(), pawl.Task[int]{Claim: c}, x.ttl, "k", x.fn)
		if what == "of another type" {
			if err == nil || got != "" || !strings.HasPrefix(err.Error(), `once "k" of task "1": `) {
				t.Errorf("%s: got %q, %v", what, got, err)
			}
			continue
		}
		if !errors.Is(err, x.want) || x.h.abandoned != x.abandoned || (err == nil) != (got != "") {
			t.Errorf("%s: got %d bytes, %v, abandoned %d times, want %v", what, len(got), err, x.h.abandoned, x.want)
		}
		if _, err := pawl.OnceFor(t.Context(), pawl.Task[int]{Claim: c}, x.ttl, "k", x.fn); !errors.Is(err, x.again) {
			t.Errorf("%s: again: %v, want %v", what, err, x.again)
		}
	}
	for lease, wait := range map[time.Duration]time.Duration{time.Second: 500 * time.Millisecond, time.Minute: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			c := held(&holder{begin: func() (pawltype.OnceAnswer, error) {
				asked++
				return pawltype.OnceAnswer{State: pawltype.OnceHeld, RetryAfter: 100 * time.Millisecond, Holder: pawltype.OnceHolder{TaskID: "2", Worker: "w"}}, nil
			}}, "")
			c.Lease = lease
			began := time.Now()
			err := c.Once(t.Context(), "k", func(context.Context) error { return nil })
			took := time.Since(began)
			if !errors.Is(err, pawltype.ErrOnceHeld) || took < wait || took > wait+100*time.Millisecond || asked < int(wait/(100*time.Millisecond)) {
				t.Errorf("lease %s: %v after %s and %d questions, want %s", lease, err, took, asked, wait)
			}
			putOff := max(time.Second, min(lease/2, 30*time.Second))
			if steer := outcome.SteerOf(err); steer == nil || steer.Delay < putOff/2 || steer.Delay > putOff {
				t.Errorf("lease %s: put off by %+v, want %s at most", lease, steer, putOff)
			}
			ended, end := context.WithCancelCause(t.Context())
			end(pawltype.ErrDraining)
			if err := c.Once(ended, "k", func(context.Context) error { return nil }); !errors.Is(err, pawltype.ErrDraining) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}
