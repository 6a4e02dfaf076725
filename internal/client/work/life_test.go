package work

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/pawltype"
)

// broker serves one stream after the other.
type broker struct {
	pawlv1.WorkerServiceClient
	meets   func(n int, s *brokerStream) error // opens stream n, from 0; an error: it can't be opened
	streams []*brokerStream
}

// brokerStream confirms all endings and finishes when the worker does, unless configured otherwise.
type brokerStream struct {
	grpc.ClientStream
	ctx     context.Context
	opened  time.Time
	says    chan *pawlv1.WorkResponse
	ends    chan error
	mu      sync.Mutex // guards sent
	sent    []*pawlv1.WorkRequest
	closed  bool
	mute    bool                            // confirms nothing
	rude    bool                            // does not finish
	refuses func(*pawlv1.WorkRequest) error // of Send
	closing error                           // of CloseSend
}

func (b *broker) Work(ctx context.Context, _ ...grpc.CallOption) (pawlv1.WorkerService_WorkClient, error) {
	s := &brokerStream{ctx: ctx, opened: time.Now(), says: make(chan *pawlv1.WorkResponse, 100), ends: make(chan error, 2)}
	b.streams = append(b.streams, s)
	return s, b.meets(len(b.streams)-1, s)
}

func (s *brokerStream) Send(r *pawlv1.WorkRequest) error {
	s.mu.Lock()
	s.sent = append(s.sent, r)
	s.mu.Unlock()
	if s.refuses != nil {
		if err := s.refuses(r); err != nil {
			return err
		}
	}
	done := &pawlv1.SettleResponse{}
	for _, x := range r.GetSettle().GetAcks() {
		done.Acks = append(done.Acks, &pawlv1.Settled{ClaimToken: x.ClaimToken})
	}
	for _, x := range r.GetSettle().GetFails() {
		done.Fails = append(done.Fails, &pawlv1.Settled{ClaimToken: x.ClaimToken})
	}
	for _, x := range r.GetSettle().GetReleases() {
		done.Releases = append(done.Releases, &pawlv1.Settled{ClaimToken: x.ClaimToken})
	}
	if r.GetSettle() != nil && !s.mute {
		s.says <- &pawlv1.WorkResponse{Settled: done}
	}
	return nil
}

func (s *brokerStream) Recv() (*pawlv1.WorkResponse, error) {
	select {
	case r := <-s.says:
		return r, nil
	default:
	}
	select {
	case r := <-s.says:
		return r, nil
	case err := <-s.ends:
		return nil, err
	case <-s.ctx.Done():
		return nil, status.FromContextError(s.ctx.Err()).Err()
	}
}

func (s *brokerStream) CloseSend() error {
	if s.closed = true; !s.rude {
		s.ends <- io.EOF
	}
	return s.closing
}

func (s *brokerStream) Header() (metadata.MD, error) { return nil, nil }

// last returns the last frame from the worker.
func (s *brokerStream) last() *pawlv1.WorkRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[len(s.sent)-1]
}

// endings returns the endings that were sent, in order.
func (s *brokerStream) endings() string {
	var said []string
	for _, r := range s.sent {
		if text := strings.TrimPrefix(strings.TrimSpace(frameText(&pawlv1.WorkRequest{Settle: r.Settle})), "frame: "); text != "frame:" {
			said = append(said, text)
		}
	}
	return strings.Join(said, "; ")
}

// handler is a Job without a result.
type handler func(ctx context.Context) error

func (h handler) Run(ctx context.Context) error { return h(ctx) }
func (h handler) Result() ([]byte, string)      { return nil, "" }
func (h handler) Failed(context.Context, error) {}

// at returns a run with one slot that a broker serves. Handlers are chosen by the type of a task.
func (b *broker) at(t *testing.T, handlers map[string]handler) *world {
	w := &world{T: t}
	w.start(args{of: map[string]string{"slots": "1"}})
	w.run.cfg.Worker, w.run.cfg.DrainTimeout = b, 10*time.Second
	w.run.cfg.NewJob = func(p *pawlv1.ClaimedTask, _ lease.Holder) Job { return handlers[p.GetType()] }
	return w
}

func pushed(types ...string) *pawlv1.WorkResponse {
	r := &pawlv1.WorkResponse{}
	for _, typ := range types {
		lease := time.Hour
		if typ == "leased" {
			lease = time.Minute
		}
		r.Tasks = append(r.Tasks, &pawlv1.ClaimedTask{TaskId: typ, ClaimToken: typ, Type: typ, Lease: durationpb.New(lease)})
	}
	return r
}

func after(d time.Duration) handler {
	return func(context.Context) error { time.Sleep(d); return nil }
}

// A run that ends drains: a running handler gets its time, then its context ends, and then it is left behind; its outcome is sent over
// the stream, else in a call.
func TestRunsEnd(t *testing.T) {
	const begins = 20 * time.Second // of the drain
	stubborn := make(chan struct{})
	handlers := map[string]handler{
		"quick":    after(0),
		"long":     after(begins + 5*time.Second),
		"leased":   after(begins + 5*time.Second),
		"obeys":    func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
		"lags":     func(ctx context.Context) error { <-ctx.Done(); time.Sleep(drainGrace / 2); return nil },
		"stubborn": func(context.Context) error { <-stubborn; return nil },
		"goexits":  func(context.Context) error { runtime.Goexit(); return nil },
	}
	for what, x := range map[string]struct {
		tasks []string
		drain time.Duration
		mute  bool
		took  time.Duration // from the end of its context
		told  string
		calls bool // settles the rest in a call
	}{
		"idle": {nil, 10 * time.Second, false, 0, "", false},
		"one after other": {[]string{"quick", "goexits", "quick2"}, 10 * time.Second, false, 0,
			"ack quick; fail goexits RETRY: handler called runtime.Goexit; ack quick2", false},
		"in time": {[]string{"long"}, 10 * time.Second, false, 5 * time.Second, "ack long", false},
		"leased": {[]string{"leased"}, 10 * time.Second, false, 5 * time.Second, "extend leased by 1m0s, progress 0; ack leased",
			false},
		"at its end":       {[]string{"obeys"}, 10 * time.Second, false, 10 * time.Second, "release obeys for 0s", false},
		"at once":          {[]string{"obeys"}, -1, false, 0, "release obeys for 0s", false},
		"a bit later":      {[]string{"lags"}, 10 * time.Second, false, 10*time.Second + drainGrace/2, "ack lags", false},
		"never":            {[]string{"stubborn"}, 10 * time.Second, false, 11 * time.Second, "release stubborn for 0s", false},
		"is not confirmed": {[]string{"long"}, 10 * time.Second, true, 6 * time.Second, "ack long", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			stubborn = make(chan struct{})
			handlers["quick2"] = after(0)
			b := &broker{meets: func(_ int, s *brokerStream) error {
				s.mute = x.mute
				for i, typ := range x.tasks {
					time.AfterFunc(time.Duration(i)*time.Second, func() { s.says <- pushed(typ) })
				}
				return nil
			}}
			w := b.at(t, handlers)
			w.run.cfg.DrainTimeout = x.drain
			ctx, cancel := context.WithTimeout(t.Context(), begins)
			defer cancel()
			began := time.Now()
			err := w.run.Do(ctx)
			s := b.streams[0]
			if took := time.Since(began) - begins; err != nil || took != x.took || s.endings() != x.told || strings.Contains(w.out.String(),
				"call Settle") != x.calls {
				t.Errorf("%s: %v after %s, sent %q, want %s, %q, in a call %v: %s", what, err, took, s.endings(), x.took,
					x.told, x.calls, &w.out)
			}
			if quiet := s.last().GetQuiet(); !quiet || !s.closed || len(b.streams) != 1 || len(w.run.claims) > 0 {
				t.Errorf("%s: %d streams, the last is closed = %v with quiet = %v, %d claims are left", what, len(b.streams), s.closed,
					quiet, len(w.run.claims))
			}
			if context.Cause(w.run.base) != pawltype.ErrDraining {
				t.Errorf("%s: the handlers' contexts ended with %v, want ErrDraining", what, context.Cause(w.run.base))
			}
			close(stubborn)
		})
	}
}

// Tasks pushed while the worker drains are released, and the broker is told immediately to push no more.
func TestDrainReleasesPushedTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{meets: func(_ int, s *brokerStream) error {
			s.says <- pushed("long")
			time.AfterFunc(2*time.Second, func() {
				if !s.last().GetQuiet() {
					t.Errorf("a second after the drain began, the last frame of the worker is %v, want quiet", s.last())
				}
				s.says <- pushed("late")
			})
			return nil
		}}
		w := b.at(t, map[string]handler{"long": after(5 * time.Second)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.run.Do(ctx); err != nil || b.streams[0].endings() != "release late for 0s; ack long" {
			t.Errorf("Do = %v, sent %q", err, b.streams[0].endings())
		}
	})
}

// A worker that is rejected ends the contexts of its handlers, and waits for them for at most a second.
func TestRefusedRunsEnd(t *testing.T) {
	invalid := status.Error(codes.InvalidArgument, "no")
	for what, x := range map[string]struct {
		h    handler
		took time.Duration
	}{
		"obeys":    {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, 0},
		"lags":     {func(ctx context.Context) error { <-ctx.Done(); time.Sleep(drainGrace / 2); return nil }, drainGrace / 2},
		"stubborn": {after(time.Hour), drainGrace},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &broker{meets: func(int, *brokerStream) error { return invalid }}
			w := b.at(t, map[string]handler{"a": x.h})
			w.run.receive(pushed("a"), time.Now()) // from an earlier stream
			began := time.Now()
			if err, took := w.run.Do(t.Context()), time.Duration(0); !errors.Is(err, pawltype.ErrInvalidArgument) || len(b.streams) != 1 {
				t.Errorf("%s: Do = %v after %d streams", what, err, len(b.streams))
			} else if took = time.Since(began); took != x.took || w.run.takes() {
				t.Errorf("%s: Do took %s, want %s, accepts more tasks: %v", what, took, x.took, w.run.takes())
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// Streams are reopened after growing pauses, until the worker is rejected for good.
func TestLink(t *testing.T) {
	type stream struct {
		lasts time.Duration
		word  bool
		err   error
	}
	asks := func(d time.Duration) error {
		st, _ := status.New(codes.Unavailable, "").WithDetails(&pawlv1.Error{Code: "unavailable", RetryAfter: durationpb.New(d)})
		return st.Err()
	}
	denied, invalid, away := status.Error(codes.PermissionDenied, "no"), status.Error(codes.InvalidArgument, "no"),
		status.Error(codes.Unavailable, "")
	const ms, s = time.Millisecond, time.Second
	for what, x := range map[string]struct {
		streams []stream        // the last of them for ever, if it refuses for long
		forLong time.Duration   // minimum duration; 0: the link is closed with the last stream
		pauses  []time.Duration // maximum pauses between streams; half of each is the minimum
		want    error
		log     string
	}{
		"denied": {[]stream{{err: denied}}, 0, nil, pawltype.ErrPermissionDenied, ""},
		"wrong":  {[]stream{{err: invalid}}, 0, nil, pawltype.ErrInvalidArgument, ""},
		"wrong later": {[]stream{{0, true, invalid}, {err: invalid}, {err: away}}, 0, []time.Duration{50 * ms, 100 * ms}, nil,
			"work stream broke"},
		"pauses grow": {slices.Repeat([]stream{{err: away}}, 10), 0, []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms,
			1600 * ms, 3200 * ms, 5 * s, 5 * s}, nil, "work stream broke"},
		"one lasts": {[]stream{{err: away}, {err: away}, {6 * s, false, away}, {err: away}, {err: away}}, 0, []time.Duration{50 * ms,
			100 * ms, 50 * ms, 100 * ms}, nil, "work stream broke"},
		"one does not": {[]stream{{err: away}, {5 * s, false, away}, {1 * s, false, away}, {err: away}}, 0, []time.Duration{50 * ms,
			100 * ms, 200 * ms}, nil, "work stream broke"},
		"asks for a rest": {[]stream{{err: asks(3 * s)}, {err: asks(time.Hour)}, {err: asks(1)}, {err: away}}, 0, []time.Duration{3 * s,
			5 * s, 200 * ms}, nil, "work stream broke"},
		"closed": {[]stream{{1 * s, true, io.EOF}, {err: io.EOF}}, 0, []time.Duration{50 * ms}, nil, ""},
		"denied after words": {[]stream{{0, true, denied}, {err: denied}}, time.Minute, nil, pawltype.ErrPermissionDenied,
			"the broker rejects the worker's credentials"},
		"denied after a while": {[]stream{{6 * s, false, away}, {err: denied}}, 66 * s, nil, pawltype.ErrPermissionDenied,
			"the broker rejects the worker's credentials"},
		"denied after 5 s": {[]stream{{5 * s, false, away}, {err: denied}}, 0, []time.Duration{50 * ms}, pawltype.ErrPermissionDenied,
			"work stream broke"},
		"denied after 1 s": {[]stream{{1 * s, false, away}, {err: denied}}, 0, []time.Duration{50 * ms}, pawltype.ErrPermissionDenied,
			"work stream broke"},
		"let in between": {[]stream{{0, true, denied}, {30 * s, false, away}, {err: denied}}, 90 * s, nil, pawltype.ErrPermissionDenied,
			"the broker rejects the worker's credentials"},
	} {
		synctest.Test(t, func(t *testing.T) {
			closing, began := make(chan struct{}), time.Now()
			var ended time.Time
			b := &broker{}
			b.meets = func(n int, s *brokerStream) error {
				if x.forLong == 0 && n > 0 && n <= len(x.pauses) {
					if pause, most := time.Since(ended), x.pauses[n-1]; pause < most/2 || pause > most {
						t.Errorf("%s: pause %d took %s, want %s to %s", what, n, pause, most/2, most)
					}
				}
				if last := n == len(x.streams)-1; last && x.forLong == 0 && x.want == nil || n == 500 {
					close(closing)
				}
				now := x.streams[min(n, len(x.streams)-1)]
				ended = time.Now().Add(now.lasts)
				if now.word {
					s.says <- &pawlv1.WorkResponse{}
				}
				time.AfterFunc(now.lasts, func() { s.ends <- now.err })
				return nil
			}
			w := b.at(t, nil)
			err := w.run.link(t.Context(), closing)
			if !errors.Is(err, x.want) || x.forLong == 0 && len(b.streams) != len(x.streams) {
				t.Errorf("%s: %v after %d streams, want %v after %d", what, err, len(b.streams), x.want, len(x.streams))
			}
			if took := time.Since(began); x.forLong > 0 && (took < x.forLong || took > x.forLong+6*time.Second ||
				!strings.Contains(err.Error(),
					"refused for 1m")) {
				t.Errorf("%s: %v after %s, want %s", what, err, took, x.forLong)
			}
			for _, line := range []string{"work stream broke", "the broker rejects the worker's credentials"} {
				if got := strings.Contains(w.out.String(), line); got && x.log == "" || !got && x.log == line {
					t.Errorf("%s: the log contains %q = %v: %s", what, line, got, &w.out)
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // the client was closed
		b, closing := &broker{}, make(chan struct{})
		w := b.at(t, nil)
		b.meets = func(_ int, s *brokerStream) error {
			s.says <- &pawlv1.WorkResponse{}
			time.AfterFunc(time.Second, func() {
				w.run.cfg.Caller.End()
				s.ends <- away
			})
			return nil
		}
		time.AfterFunc(time.Minute, func() { close(closing) })
		if err := w.run.link(t.Context(), closing); err != pawltype.ErrClosed || len(b.streams) != 1 {
			t.Errorf("after the client was closed: %v after %d streams, want ErrClosed", err, len(b.streams))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b, closing, began := &broker{meets: func(int, *brokerStream) error { return asks(5 * s) }}, make(chan struct{}), time.Now()
		time.AfterFunc(time.Second, func() { close(closing) })
		if err := b.at(t, nil).run.link(t.Context(), closing); err != nil || time.Since(began) != time.Second || len(b.streams) != 1 {
			t.Errorf("closed during a pause: %v after %s and %d streams", err, time.Since(began), len(b.streams))
		}
	})
}

// A silent stream is closed in an orderly way and reopened, less and less often, until something is heard or a stream breaks.
func TestStreamsAreRenewed(t *testing.T) {
	const minute = time.Minute
	away := status.Error(codes.Unavailable, "")
	for what, x := range map[string]struct {
		meets func(n int, s *brokerStream)
		lasts []time.Duration // minimum durations of the streams; at most a quarter and two seconds longer
	}{
		"silence": {func(int, *brokerStream) {}, []time.Duration{minute, 2 * minute, 4 * minute, 4 * minute, 4 * minute}},
		"a word after silence": {func(n int, s *brokerStream) {
			if n == 2 {
				s.says <- &pawlv1.WorkResponse{}
			}
		}, []time.Duration{minute, 2 * minute, minute, 2 * minute}},
		"breaks after silence": {func(n int, s *brokerStream) {
			if n == 2 {
				time.AfterFunc(10*time.Second, func() { s.ends <- away })
			}
		}, []time.Duration{minute, 2 * minute, 10 * time.Second, minute}},
		"words": {func(n int, s *brokerStream) {
			for i := range 9 {
				time.AfterFunc(time.Duration(i)*50*time.Second, func() { s.says <- &pawlv1.WorkResponse{} })
			}
		}, []time.Duration{400*time.Second + minute, 400*time.Second + minute}},
		"drains": {func(n int, s *brokerStream) {
			s.says <- &pawlv1.WorkResponse{Draining: true}
		}, []time.Duration{0, 0}},
		"does not finish": {func(n int, s *brokerStream) {
			s.rude = true
			s.says <- &pawlv1.WorkResponse{Draining: true}
		}, []time.Duration{closeTimeout, closeTimeout}},
		"breaks as it is closed": {func(n int, s *brokerStream) {
			s.rude, s.closing = true, io.EOF
			time.AfterFunc(2*time.Second, func() { s.ends <- away })
			s.says <- &pawlv1.WorkResponse{Draining: true}
		}, []time.Duration{2 * time.Second, 2 * time.Second}},
		"breaks before": {func(n int, s *brokerStream) {
			s.refuses = func(r *pawlv1.WorkRequest) error {
				if r.Quiet {
					time.AfterFunc(2*time.Second, func() { s.ends <- away })
					return io.EOF
				}
				return nil
			}
			s.says <- &pawlv1.WorkResponse{Draining: true}
		}, []time.Duration{2 * time.Second, 2 * time.Second}},
		"breaks, as it is not read": {func(n int, s *brokerStream) {
			if n == 0 {
				s.says <- pushed("a", "b") // more than it has slots
			}
			s.refuses = func(r *pawlv1.WorkRequest) error {
				if r.Hello == nil {
					<-s.ctx.Done()
				}
				return nil
			}
		}, []time.Duration{minute + time.Second, minute + time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			closing := make(chan struct{})
			b := &broker{meets: func(n int, s *brokerStream) error {
				if n == len(x.lasts) {
					close(closing)
				} else {
					x.meets(n, s)
				}
				return nil
			}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			w := b.at(t, nil)
			if err := w.run.link(ctx, closing); err != nil || len(b.streams) != len(x.lasts)+1 {
				t.Fatalf("%s: %v after %d streams", what, err, len(b.streams))
			}
			for i, least := range x.lasts {
				s := b.streams[i]
				if lasted := b.streams[i+1].opened.Sub(s.opened); lasted < least || lasted > least+least/4+2*time.Second {
					t.Errorf("%s: stream %d lasted %s, want at least %s and at most a quarter more", what, i, lasted, least)
				}
				if broke := strings.HasPrefix(what, "breaks"); !broke && (!s.closed || !s.last().GetQuiet()) || what == "breaks before" &&
					s.closed {
					t.Errorf("%s: stream %d is closed = %v, its last frame is %v", what, i, s.closed, s.last())
				}
			}
			time.Sleep(time.Hour)
		})
	}
}

// A frame that can't be sent is not sent again on the same stream, and a session ends after its sender.
func TestBrokenStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sends, sending := 0, false
		b := &broker{meets: func(_ int, s *brokerStream) error {
			s.says <- pushed("a")
			time.AfterFunc(2*time.Second, func() { s.says <- pushed("b") })
			s.refuses = func(r *pawlv1.WorkRequest) error {
				if r.Hello != nil {
					return nil
				}
				sends, sending = sends+1, true
				time.Sleep(5 * time.Second) // it hangs
				sending = false
				return io.EOF
			}
			time.AfterFunc(4*time.Second, func() { s.ends <- status.Error(codes.Unavailable, "") })
			return nil
		}}
		w := b.at(t, map[string]handler{"a": after(time.Second), "b": after(time.Second)})
		var handlers sync.WaitGroup
		handlers.Go(func() { w.run.slot(&handlers) })
		_, err := w.run.session(t.Context(), nil)
		if !errors.Is(err, pawltype.ErrUnavailable) || sends != 1 || sending {
			t.Errorf("the session ended with %v after %d sends, one still running: %v", err, sends, sending)
		}
		close(w.run.jobs)
		handlers.Wait()
	})
}

// A drain ends even if its stream can't be closed: it is not open yet, or the broker does not read.
func TestDrainCutsStreams(t *testing.T) {
	for what, meets := range map[string]func(s *brokerStream) error{
		"opens for long": func(s *brokerStream) error { <-s.ctx.Done(); return s.ctx.Err() },
		"does not read": func(s *brokerStream) error {
			s.refuses = func(r *pawlv1.WorkRequest) error {
				if r.Quiet {
					<-s.ctx.Done()
				}
				return nil
			}
			return nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &broker{meets: func(_ int, s *brokerStream) error { return meets(s) }}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began, ended := time.Now(), make(chan error, 1)
			go func() { ended <- b.at(t, nil).run.Do(ctx) }()
			time.AfterFunc(time.Minute, func() { ended <- errors.New("it hangs") })
			if err, took := <-ended, time.Since(began); err != nil || took > 5*time.Second {
				t.Errorf("%s: Do = %v after %s, want a drain of at most 4 s", what, err, took)
			}
		})
	}
}
