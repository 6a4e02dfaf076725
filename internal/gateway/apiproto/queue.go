package apiproto

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// SettingsOf decodes and validates a queue's settings; missing fields get their defaults.
func SettingsOf(p *pawlv1.QueueSettings) (task.Settings, error) {
	s := task.DefaultSettings()
	if w := p.GetWeights(); w != nil {
		s.Weights = [3]int{int(w.GetHigh()), int(w.GetNormal()), int(w.GetLow())}
		if !s.Weighted() {
			return s, task.Invalid("weights.high", "0 is not between 1 and %d", task.MaxWeight)
		}
	}
	if p.GetRetry() != nil {
		r, err := retryOf(p.GetRetry())
		if err != nil {
			return s, err
		}
		s.Retry = *r
	}
	if p.GetMaxAttempts() != 0 {
		s.MaxAttempts = int(p.GetMaxAttempts())
	}
	s.MaxLength = p.GetMaxLength()
	var err error
	if s.KeyOrder, err = keyOrderOf(p.GetKeyOrder()); err != nil {
		return s, err
	}
	if err := settingsRules(&s, p); err != nil {
		return s, err
	}
	if err := settingsBreakers(&s, p); err != nil {
		return s, err
	}
	if err := settingsTimes(&s, p); err != nil {
		return s, err
	}
	return s, s.Check()
}

func keyOrderOf(p pawlv1.KeyOrder) (task.KeyOrder, error) {
	switch p {
	case pawlv1.KeyOrder_KEY_ORDER_UNSPECIFIED, pawlv1.KeyOrder_KEY_ORDER_NONE:
		return task.KeyOrderNone, nil
	case pawlv1.KeyOrder_KEY_ORDER_STRICT:
		return task.KeyOrderStrict, nil
	}
	return "", task.Invalid("key_order", "%d is not one of the orders", p)
}

func settingsRules(s *task.Settings, p *pawlv1.QueueSettings) (err error) {
	if s.Rules, err = rulesOf("", p.GetMaxRunning(), p.GetRate()); err != nil {
		return err
	}
	if s.PerKey, err = keyRulesOf("per_key.", p.GetPerKey()); err != nil {
		return err
	}
	for key, rules := range p.GetKeys() {
		if s.Keys == nil {
			s.Keys = map[string]task.KeyRules{}
		}
		if s.Keys[key], err = keyRulesOf("keys."+key+".", rules); err != nil {
			return err
		}
	}
	return nil
}

func keyRulesOf(field string, p *pawlv1.KeyRules) (r task.KeyRules, err error) {
	r.Weight = int(p.GetWeight())
	r.Rules, err = rulesOf(field, p.GetMaxRunning(), p.GetRate())
	return r, err
}

func rulesOf(field string, running int32, p *pawlv1.Rate) (r task.Rules, err error) {
	r.MaxRunning = int(running)
	if p == nil {
		return r, nil
	}
	r.Rate = task.Rate{Limit: int(p.GetLimit()), Burst: int(p.GetBurst())}
	if p.GetPeriod() == nil {
		return r, task.Invalid(field+"rate.period", "is required")
	}
	r.Rate.Period, err = SpanOf(field+"rate.period", p.GetPeriod())
	return r, err
}

func rateProto(r task.Rate) *pawlv1.Rate {
	if !r.IsSet() {
		return nil
	}
	return &pawlv1.Rate{Limit: Int32Of(r.Limit), Period: durationpb.New(r.Period), Burst: Int32Of(r.Capacity())}
}

func keyRulesProto(r task.KeyRules) *pawlv1.KeyRules {
	return &pawlv1.KeyRules{MaxRunning: Int32Of(r.MaxRunning), Rate: rateProto(r.Rate), Weight: Int32Of(max(r.Weight, 1))}
}

func holdsProto(holds []task.Hold) (p []*pawlv1.Hold) {
	for _, h := range holds {
		p = append(p, &pawlv1.Hold{Type: h.Type, Key: h.Key, Reason: h.Reason, By: h.By, At: WallProto(h.At)})
	}
	return p
}

func settingsTimes(s *task.Settings, p *pawlv1.QueueSettings) error {
	r := p.GetRetention()
	for _, f := range []struct {
		field string
		from  *durationpb.Duration
		to    *time.Duration
	}{
		{"lease", p.GetLease(), &s.Lease},
		{"timeout", p.GetTimeout(), &s.Timeout},
		{"max_wait", p.GetMaxWait(), &s.MaxWait},
		{"retention.succeeded", r.GetSucceeded(), &s.Retention.Succeeded},
		{"retention.discarded", r.GetDiscarded(), &s.Retention.Discarded},
		{"retention.cancelled", r.GetCancelled(), &s.Retention.Cancelled},
		{"retention.dead", r.GetDead(), &s.Retention.Dead},
		{"retention.poisoned", r.GetPoisoned(), &s.Retention.Poisoned},
	} {
		if f.from == nil {
			continue
		}
		d, err := SpanOf(f.field, f.from)
		if err != nil {
			return err
		}
		*f.to = d
	}
	return nil
}

func settingsProto(s task.Settings) *pawlv1.QueueSettings {
	p := &pawlv1.QueueSettings{
		Retry: retryProto(s.Retry), MaxAttempts: Int32Of(s.MaxAttempts), Lease: durationpb.New(s.Lease), Timeout: durationpb.New(s.Timeout),
		Retention: &pawlv1.Retention{Succeeded: durationpb.New(s.Retention.Succeeded), Discarded: durationpb.New(s.Retention.Discarded),
			Cancelled: durationpb.New(s.Retention.Cancelled), Dead: durationpb.New(s.Retention.Dead),
			Poisoned: durationpb.New(s.Retention.Poisoned)},
		MaxLength: s.MaxLength, MaxWait: durationpb.New(s.MaxWait), MaxRunning: Int32Of(s.MaxRunning), Rate: rateProto(s.Rate),
	}
	if s.PerKey != (task.KeyRules{}) {
		p.PerKey = keyRulesProto(s.PerKey)
		p.PerKey.Weight = 0
	}
	for key, r := range s.Keys {
		if p.Keys == nil {
			p.Keys = map[string]*pawlv1.KeyRules{}
		}
		p.Keys[key] = keyRulesProto(r)
	}
	if s.KeyOrder == task.KeyOrderStrict {
		p.KeyOrder = pawlv1.KeyOrder_KEY_ORDER_STRICT
	}
	setBreakers(p, &s)
	if s.Weighted() {
		p.Weights = &pawlv1.PriorityWeights{High: Int32Of(s.Weights[0]), Normal: Int32Of(s.Weights[1]), Low: Int32Of(s.Weights[2])}
	}
	return p
}

// QueueProto converts a queue for operators: its configuration comes from the cluster, its counts from its shards.
func QueueProto(q queues.Queue, sum broker.QueueInfo, parts []broker.QueueInfo) *pawlv1.Queue {
	p := &pawlv1.Queue{
		Queue: q.Name, Paused: q.Config.Paused, PausedReason: q.Config.PausedReason, PausedBy: q.Config.PausedBy,
		PausedAt: WallProto(q.Config.PausedAt), Holds: holdsProto(q.Config.Holds),
		Depth:                 depthProto(sum),
		ReadyByPriority:       &pawlv1.ReadyByPriority{High: sum.Ready[0], Normal: sum.Ready[1], Low: sum.Ready[2]},
		OldestReadyAgeSeconds: sum.OldestReady.Seconds(),
		Settings:              settingsProto(q.Config.Settings), Version: int64(q.Config.Version), CreatedAt: WallProto(q.Config.CreatedAt),
	}
	breakers, open := breakersProto(q, parts)
	p.Breakers, p.BreakersOpen = breakers, Int32Of(open)
	if !q.Spread() {
		return p
	}
	for i, shard := range q.Shards() {
		slots, next := q.SlotsIn(shard)
		p.Parts = append(p.Parts, &pawlv1.QueuePart{Shard: shard, Slots: Int32Of(slots), Moving: slots != next, Own: q.Own && next > 0,
			Depth: depthProto(parts[i])})
	}
	return p
}

func depthProto(i broker.QueueInfo) *pawlv1.Depth {
	return &pawlv1.Depth{Scheduled: i.Scheduled, Ready: i.Ready[0] + i.Ready[1] + i.Ready[2], Claimed: i.Claimed,
		Retrying: i.Retrying, Held: i.Held, Dead: i.Dead, Poisoned: i.Poisoned}
}
