package work

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/lease"
)

// telling is a Job that passes its failure on.
type telling struct {
	handler
	failed func()
}

func (j telling) Failed(context.Context, error) { j.failed() }

// A slot is busy until its job has been told of a failure: what is pushed meanwhile is released, not queued behind a
// Failed that hangs, and a worker that drains leaves it behind. A Failed that ends its goroutine does not cost the
// slot.
func TestSlotsAreBusyUntilFailureIsTold(t *testing.T) {
	const begins = 20 * time.Second // of the drain
	for what, x := range map[string]struct {
		failed func()
		took   time.Duration // from the end of its context
		told   string
	}{
		"hangs":       {func() { time.Sleep(time.Hour) }, 10*time.Second + drainGrace, "fail fails RETRY: boom; release next for 0s"},
		"takes a bit": {func() { time.Sleep(begins + time.Second) }, time.Second, "fail fails RETRY: boom; release next for 0s"},
		"goexits":     {runtime.Goexit, 0, "fail fails RETRY: boom; ack next"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &broker{meets: func(_ int, s *brokerStream) error {
				s.says <- pushed("fails")
				time.AfterFunc(time.Second, func() { s.says <- pushed("next") })
				return nil
			}}
			w, ran := b.at(t, nil), 0
			w.run.cfg.NewJob = func(p *pawlv1.ClaimedTask, _ lease.Holder) Job {
				return telling{func(context.Context) error {
					if ran++; p.GetType() == "fails" {
						return errors.New("boom")
					}
					return nil
				}, x.failed}
			}
			ctx, cancel := context.WithTimeout(t.Context(), begins)
			defer cancel()
			began := time.Now()
			err := w.run.Do(ctx)
			if took := time.Since(began) - begins; err != nil || took != x.took || b.streams[0].endings() != x.told {
				t.Errorf("%s: %v after %s, sent %q, want %s, %q", what, err, took, b.streams[0].endings(), x.took, x.told)
			}
			time.Sleep(2 * time.Hour)
			if want := 1 + strings.Count(x.told, "ack"); ran != want {
				t.Errorf("%s: %d handlers ran, want %d", what, ran, want)
			}
		})
	}
}

// pointed is an error that can't be read if it is nil.
type pointed struct{ text string }

func (e *pointed) Error() string { return e.text }

// An error that panics, as a nil pointer in an error does, is a panic of the handler, not of the program.
func TestErrorsThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{meets: func(_ int, s *brokerStream) error {
			s.says <- pushed("a")
			return nil
		}}
		w := b.at(t, map[string]handler{"a": func(context.Context) error { var e *pointed; return e }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.run.Do(ctx); err != nil || !strings.HasPrefix(b.streams[0].endings(), "fail a RETRY: panic: ") {
			t.Errorf("Do = %v, sent %q", err, b.streams[0].endings())
		}
	})
}
