package admin

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Breaker configures a circuit breaker, which judges the attempts of each task type of a queue separately. A zero field means the default,
// so &Breaker{} is a breaker with all defaults.
//
// The breaker opens when at least MinAttempts attempts have ended within Window and at least FailureRate percent of them failed. While it
// is open, tasks of the type are held: they use no attempts, and other tasks overtake them. After Hold, it admits one task at a time as a
// probe. It closes after Probes consecutive successes; a failed probe opens it again, each time for twice as long. Failures, timeouts and
// lost leases count as failures; released, snoozed, discarded, cancelled and poisoned attempts do not count at all.
type Breaker struct {
	Off         bool          // in QueueSettings.Breakers: the type has no breaker, and all other fields are zero
	FailureRate int           // percent, 1 to 100; default 50
	Window      time.Duration // 1 s to 1 h; default 1 min
	MinAttempts int           // in the window, 1 to 100,000; the breaker does not open on fewer; default 20
	Hold        time.Duration // 1 s to 24 h; default 30 s
	MaxHold     time.Duration // Hold to 24 h; default 10 min, or Hold
	Probes      int           // 1 to 100; default 3
}

// BreakerStatus describes a breaker that is not closed.
type BreakerStatus struct {
	Type     string
	State    BreakerState
	Reason   string    // what opened it, in a sentence
	Since    time.Time // when it first opened
	Until    time.Time // if open: when it admits a probe
	Attempts int       // attempts that were counted when it opened
	Failed   int       // how many of them failed
	Window   time.Duration
	Error    string // of the last failure it counted
	Opened   int    // how often it opened without closing in between: one more than the failed probes
	Passed   int    // probes that succeeded since it last opened
	Probes   int    // successes needed to close it
	Probe    string // id of the task that is running as a probe; "": none
	Shard    int    // of a spread queue, whose shards each have their own breakers
}

// BreakerState is the state of a breaker that is not closed. Newer brokers may add states.
type BreakerState string

const (
	BreakerOpen    BreakerState = "open"    // no task of the type can start
	BreakerProbing BreakerState = "probing" // one task at a time can start
)

// CloseBreaker closes the breaker of a type by hand, or with "" all breakers of the queue. It is not an error if none is open. There is no
// call to open a breaker: to stop a type, use PauseSubset.
func (a Queues) CloseBreaker(ctx context.Context, queue, typ, reason string) (*Queue, error) {
	req := &pawlv1.CloseBreakerRequest{Queue: queue, Type: convert.Text(typ), Reason: reason}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperatorServiceClient(a.rpc).CloseBreaker, req)
	return queueAnswer("close breaker of queue", queue, resp.GetQueue(), err)
}

func (b Breaker) proto() *pawlv1.Breaker {
	return &pawlv1.Breaker{Off: b.Off, FailureRate: convert.Int32(b.FailureRate), Window: convert.Duration(b.Window),
		MinAttempts: convert.Int32(b.MinAttempts), Hold: convert.Duration(b.Hold), MaxHold: convert.Duration(b.MaxHold),
		Probes: convert.Int32(b.Probes)}
}

// setBreakers encodes the settings of the queue's breakers.
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

// readBreakers decodes what setBreakers encodes.
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
		Error: p.GetError(), Opened: int(p.GetOpened()), Passed: int(p.GetPassed()), Probes: int(p.GetProbes()), Probe: p.GetProbeTaskId(),
		Shard: int(p.GetShard())}
}
