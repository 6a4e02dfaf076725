package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Middleware can tell a handler that was stopped from one that failed, whatever the handler returned when its context ended.
func TestMiddlewareSeesCancellation(t *testing.T) {
	errDriver := errors.New("driver: bad connection")
	returns := map[string]func(ctx context.Context) error{
		"the error of its context": func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) },
		"the cause":                context.Cause,
		"an error of its own":      func(context.Context) error { return errDriver },
	}
	stops := map[string]struct {
		stop    func(f *fake, id string)
		cause   error
		outcome pawltype.Outcome
	}{
		"drains": {nil, pawltype.ErrDraining, pawltype.OutcomeReleased},
		"cancelled": {func(f *fake, id string) { f.take(f.tasks[id], pawlv1.State_STATE_CANCELLED, "cancelled") }, pawltype.ErrCancelled,
			pawltype.OutcomeCancelled},
		"lease lost": {func(f *fake, id string) { f.take(f.tasks[id], pawlv1.State_STATE_READY, "expired") }, pawltype.ErrLeaseLost,
			pawltype.OutcomeLeaseLost},
	}
	for how, stop := range stops {
		for what, returned := range returns {
			t.Run(how+" returns "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f, client := start(t)
					seen := make(chan error, 1)
					first := true
					mux := handle(func(ctx context.Context, _ *pawl.Task[welcome]) error {
						if !first {
							return nil
						}
						first = false
						<-ctx.Done()
						return returned(ctx)
					})
					mux.Use(func(next pawl.Handler) pawl.Handler {
						return func(ctx context.Context, c *pawl.Claim) error {
							err := next(ctx, c)
							if err != nil {
								seen <- err
							}
							return err
						}
					})
					w, end := work(t, client, mux, pawl.WorkerConfig{DrainTimeout: time.Second})
					ref := enqueue(t, client)
					synctest.Wait()
					if stop.stop != nil {
						f.set(func() { stop.stop(f, ref.ID) })
						synctest.Wait()
					} else {
						wantErr(t, "Run", end(), nil)
					}
					err := <-seen
					wantErr(t, "what middleware sees", err, stop.cause)
					if what == "an error of its own" {
						wantErr(t, "what the handler returned", err, errDriver)
						if got, want := err.Error(), stop.cause.Error()+": "; !strings.HasPrefix(got, want) ||
							!strings.HasSuffix(got, errDriver.Error()) {
							t.Errorf("the error is %q, want it to begin with %q and end with %q", got, want, errDriver)
						}
					}
					if what == "the cause" && strings.Count(err.Error(), stop.cause.Error()) != 1 {
						t.Errorf("the error is %q, want it to contain the cause once", err)
					}
					if got := pawl.OutcomeOf(err); got != stop.outcome || got.Failed() {
						t.Errorf("the outcome is %s, failed %v, want %s, which is not a failure", got, got.Failed(), stop.outcome)
					}
					if got := w.Stats().Failed; got != 0 {
						t.Errorf("%d handlers are counted as failed, want 0", got)
					}
				})
			})
		}
	}
}

// The error of a handler that fails, sets its outcome or returns in time is passed on unchanged.
func TestMiddlewareSeesHandlerErrors(t *testing.T) {
	errOwn := errors.New("no route")
	drained, drain := context.WithCancelCause(context.Background())
	drain(pawltype.ErrDraining)
	late, stop := context.WithTimeout(context.Background(), 0)
	defer stop()
	for name, c := range map[string]struct {
		ctx  context.Context
		says error
		want pawltype.Outcome
	}{
		"a failure":                      {context.Background(), errOwn, pawltype.OutcomeFailed},
		"ErrDraining of its own":         {context.Background(), pawltype.ErrDraining, pawltype.OutcomeFailed},
		"a failure after its timeout":    {late, late.Err(), pawltype.OutcomeFailed},
		"success though it was stopped":  {drained, nil, pawltype.OutcomeSucceeded},
		"a dead letter though stopped":   {drained, pawl.DeadLetter(errOwn), pawltype.OutcomeDead},
		"a snooze though it was stopped": {drained, pawl.Snooze(time.Hour), pawltype.OutcomeSnoozed},
	} {
		mux := pawl.NewMux()
		mux.HandleFunc("t", func(context.Context, *pawl.Claim) error { return c.says })
		err := mux.Handler()(c.ctx, &pawl.Claim{Type: "t"})
		if got := pawl.OutcomeOf(err); err != c.says || got != c.want {
			t.Errorf("%s: middleware sees %v, %s, want %v, %s", name, err, got, c.says, c.want)
		}
	}
	if got := pawl.OutcomeOf(pawl.NewMux().Handler()(context.Background(), &pawl.Claim{Type: "t"})); got != pawltype.OutcomeReleased {
		t.Errorf("a type without a handler: got outcome %s, want released", got)
	}
	for o, want := range map[pawltype.Outcome]bool{pawltype.OutcomeFailed: true, pawltype.OutcomeDead: true, pawltype.OutcomePoisoned: true,
		pawltype.OutcomeSucceeded: false, pawltype.OutcomeDiscarded: false, pawltype.OutcomeSnoozed: false,
		pawltype.OutcomeReleased: false} {
		if o.Failed() != want {
			t.Errorf("%s counts as failed: %v, want %v", o, o.Failed(), want)
		}
	}
}
