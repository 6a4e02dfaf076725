package apiproto

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// breakerOf decodes the rule of a breaker; missing fields get their defaults.
func breakerOf(field string, p *pawlv1.Breaker) (b task.Breaker, err error) {
	if p == nil {
		return b, nil
	}
	b = task.Breaker{FailureRate: int(p.GetFailureRate()), MinAttempts: int(p.GetMinAttempts()), Probes: int(p.GetProbes())}
	for _, f := range []struct {
		name string
		from *durationpb.Duration
		to   *time.Duration
	}{
		{"window", p.GetWindow(), &b.Window},
		{"hold", p.GetHold(), &b.Hold},
		{"max_hold", p.GetMaxHold(), &b.MaxHold},
	} {
		if *f.to, err = SpanOf(field+"."+f.name, f.from); err == nil && f.from != nil && *f.to == 0 {
			err = task.Invalid(field+"."+f.name, "0s is not positive")
		}
		if err != nil {
			return b, err
		}
	}
	if p.GetOff() {
		if b != (task.Breaker{}) {
			return b, task.Invalid(field+".off", "is given together with a rule: only one of them is allowed")
		}
		return b, nil
	}
	b.Fill()
	return b, nil
}

// settingsBreakers decodes the rules of a queue's breakers.
func settingsBreakers(s *task.Settings, p *pawlv1.QueueSettings) (err error) {
	if s.Breaker, err = breakerOf("breaker", p.GetBreaker()); err != nil {
		return err
	}
	for typ, rule := range p.GetBreakers() {
		if s.Breakers == nil {
			s.Breakers = map[string]task.Breaker{}
		}
		if s.Breakers[typ], err = breakerOf("breakers."+typ, rule); err != nil {
			return err
		}
	}
	return nil
}

func breakerProto(b task.Breaker) *pawlv1.Breaker {
	if !b.IsSet() {
		return &pawlv1.Breaker{Off: true}
	}
	return &pawlv1.Breaker{FailureRate: Int32Of(b.FailureRate), Window: durationpb.New(b.Window), MinAttempts: Int32Of(b.MinAttempts),
		Hold: durationpb.New(b.Hold), MaxHold: durationpb.New(b.MaxHold), Probes: Int32Of(b.Probes)}
}

// setBreakers encodes the rules of a queue's breakers.
func setBreakers(p *pawlv1.QueueSettings, s *task.Settings) {
	if s.Breaker.IsSet() {
		p.Breaker = breakerProto(s.Breaker)
	}
	for typ, rule := range s.Breakers {
		if p.Breakers == nil {
			p.Breakers = map[string]*pawlv1.Breaker{}
		}
		p.Breakers[typ] = breakerProto(rule)
	}
}

// maxBreakersShown bounds the breakers listed for a queue, as each shard does.
const maxBreakersShown = 100

// breakersProto returns the breakers that are not closed, and how many there are, in all parts of a queue.
func breakersProto(q queues.Queue, parts []broker.QueueInfo) (shown []*pawlv1.BreakerStatus, open int) {
	for i, shard := range q.Shards() {
		open += parts[i].BreakersOpen
		for j := range parts[i].Breakers {
			p := breakerStatus(&parts[i].Breakers[j])
			if q.Spread() {
				p.Shard = shard
			}
			shown = append(shown, p)
		}
	}
	slices.SortStableFunc(shown, func(a, b *pawlv1.BreakerStatus) int {
		return cmp.Or(a.GetSince().AsTime().Compare(b.GetSince().AsTime()), cmp.Compare(a.GetType(), b.GetType()))
	})
	return shown[:min(len(shown), maxBreakersShown)], open
}

func breakerStatus(i *broker.BreakerInfo) *pawlv1.BreakerStatus {
	p := &pawlv1.BreakerStatus{Type: i.Type, State: i.State.String(), Reason: i.Reason(), Since: TimeProto(i.Since),
		Until: TimeProto(i.Until), Attempts: Int32Of(i.Attempts), Failed: Int32Of(i.Failed), Window: durationpb.New(i.Window),
		Error: i.Error, Opened: Int32Of(i.Opened), Passed: Int32Of(i.Passed), Probes: Int32Of(i.Probes)}
	if i.Probe != (task.ID{}) {
		p.ProbeTaskId = i.Probe.String()
	}
	return p
}
