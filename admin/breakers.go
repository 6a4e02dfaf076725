package admin

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Breaker is the rule of a circuit breaker, which judges the attempts of each type of a queue by itself. A zero field means the
// default, so &Breaker{} is a breaker with all defaults.
//
// When in the window so many attempts have ended and so many of them have failed, it opens: tasks of the type are held, use no
// attempt, and let others go past. After the hold one task at a time is let through as a probe. Probes that succeed one after
// another close it; one that fails opens it again, each time for twice as long. Failures, timeouts and lost leases count; what
// was released, snoozed, discarded, cancelled or can't be read does not.
type Breaker struct {
	Off         bool          // of a single type: it has none. Nothing else is said then
	FailureRate int           // percent, 1 to 100; default 50
	Window      time.Duration // 1 s to 1 h; default 1 min
	MinAttempts int           // in the window, 1 to 100,000: fewer say nothing; default 20
	Hold        time.Duration // 1 s to 24 h; default 30 s
	MaxHold     time.Duration // Hold to 24 h; default 10 min, or Hold
	Probes      int           // 1 to 100; default 3
}

// BreakerStatus is how the breaker of a type stands that is not closed.
type BreakerStatus struct {
	Type     string
	State    BreakerState
	Reason   string    // a sentence: what opened it
	Since    time.Time // when it opened first
	Until    time.Time // of an open one: when it lets a probe through
	Attempts int       // that opened it
	Failed   int       // of them
	Window   time.Duration
	Error    string // of the last failure that counted
	Opened   int    // times, without closing in between: one more than probes failed
	Passed   int    // probes that succeeded since it opened last
	Probes   int    // that have to
	Probe    string // the id of the task that is let through at this moment; "": none
	Shard    int    // of a queue that is shared out: each shard judges for itself
}

// BreakerState is where a breaker is that is not closed. Later brokers may have more of them.
type BreakerState string

const (
	BreakerOpen    BreakerState = "open"    // nothing of the type may start
	BreakerProbing BreakerState = "probing" // one task at a time
)

// CloseBreaker closes the breaker of a type by hand, or for "" all of the queue. If none is open, that is no error. There is no
// call that opens one: Pause stops a type.
func (a Queues) CloseBreaker(ctx context.Context, queue, typ, reason string) (*Queue, error) {
	req := &pawlv1.CloseBreakerRequest{Queue: queue, Type: typ, Reason: reason}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).CloseBreaker, req)
	return queueAnswer("close breaker of queue", queue, resp.GetQueue(), err)
}

func (b Breaker) proto() *pawlv1.Breaker {
	return &pawlv1.Breaker{Off: b.Off, FailureRate: convert.Int32(b.FailureRate), Window: convert.Duration(b.Window),
		MinAttempts: convert.Int32(b.MinAttempts), Hold: convert.Duration(b.Hold), MaxHold: convert.Duration(b.MaxHold), Probes: convert.Int32(b.Probes)}
}

// setBreakers writes the rules of the queue's breakers.
func (s QueueSettings) setBreakers(out *pawlv1.QueueSettings) {
	if s.Breaker != nil {
		out.Breaker = s.Breaker.proto()
	}
	for typ, rule := range s.Breakers {
		if out.Breakers == nil {
			out.Breakers = map[string]*pawlv1.Breaker{}
		}
		out.Breakers[typ] = rule.proto()
	}
}

func breakerOf(p *pawlv1.Breaker) Breaker {
	return Breaker{Off: p.GetOff(), FailureRate: int(p.GetFailureRate()), Window: p.GetWindow().AsDuration(),
		MinAttempts: int(p.GetMinAttempts()), Hold: p.GetHold().AsDuration(), MaxHold: p.GetMaxHold().AsDuration(), Probes: int(p.GetProbes())}
}

// readBreakers reads what setBreakers writes.
func (s *QueueSettings) readBreakers(p *pawlv1.QueueSettings) {
	if p.GetBreaker() != nil {
		s.Breaker = new(breakerOf(p.GetBreaker()))
	}
	for typ, rule := range p.GetBreakers() {
		if s.Breakers == nil {
			s.Breakers = map[string]Breaker{}
		}
		s.Breakers[typ] = breakerOf(rule)
	}
}

func breakerStatusOf(p *pawlv1.BreakerStatus) BreakerStatus {
	return BreakerStatus{Type: p.GetType(), State: BreakerState(p.GetState()), Reason: p.GetReason(), Since: convert.Time(p.GetSince()),
		Until: convert.Time(p.GetUntil()), Attempts: int(p.GetAttempts()), Failed: int(p.GetFailed()), Window: p.GetWindow().AsDuration(),
		Error: p.GetError(), Opened: int(p.GetOpened()), Passed: int(p.GetPassed()), Probes: int(p.GetProbes()), Probe: p.GetProbeTaskId(), Shard: int(p.GetShard())}
}
