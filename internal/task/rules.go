package task

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Rules limit what a queue, or a key within it, may run.
type Rules struct {
	MaxRunning int  `json:"max_running,omitempty"` // tasks claimed at a time, of a queue in all shards together; 0: no limit
	Rate       Rate `json:"rate,omitzero"`
}

// Rate is a token bucket: a task may start when the bucket has a token, and takes as many tokens as it costs, even if that leaves a debt.
// So the rate holds over time, whatever single tasks cost. The zero value is no limit.
type Rate struct {
	Limit  int           `json:"limit"`           // tokens added per period
	Period time.Duration `json:"period"`          // 1s to 24h
	Burst  int           `json:"burst,omitempty"` // capacity in tokens; 0: Limit
}

// KeyRules are the rules of a key, and its weight against other keys of the queue.
type KeyRules struct {
	Rules
	Weight int `json:"weight,omitempty"` // 1 to 1,000; 0: 1
}

// Hold is a pause of all tasks of a type, or of a key, in a queue.
type Hold struct {
	Type   string    `json:"type,omitempty"`
	Key    string    `json:"key,omitempty"`
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"` // who paused it; "": unknown
	At     time.Time `json:"at"`
}

// Check refuses a pause of both a type and a key.
func (h Hold) Check(l Limits) error {
	if h.Type != "" && h.Key != "" {
		return Invalid("key", "%q is given together with type: only one of them is allowed", h.Key)
	}
	if err := CheckName("type", h.Type, l); err != nil {
		return err
	}
	return CheckName("key", h.Key, l)
}

// same reports whether two pauses are of the same type or key.
func (h Hold) same(o Hold) bool { return h.Type == o.Type && h.Key == o.Key }

// Pause pauses the queue, or one type or key in it.
func (c *QueueConfig) Pause(h Hold) error {
	if h.Type == "" && h.Key == "" {
		if !c.Paused {
			c.PausedAt = h.At
		}
		if !c.Paused || c.PausedReason != h.Reason {
			c.PausedBy = h.By
		}
		c.Paused, c.PausedReason = true, h.Reason
		return nil
	}
	holds := slices.Clone(c.Holds)
	if i := slices.IndexFunc(holds, h.same); i >= 0 {
		if holds[i].Reason != h.Reason {
			holds[i].Reason, holds[i].By = h.Reason, h.By
		}
	} else if holds = append(holds, h); len(holds) > MaxHolds {
		return Invalid("queue", "%d types and keys are paused already, at most %d are allowed", MaxHolds, MaxHolds)
	}
	c.Holds = holds
	return nil
}

// Resume ends the pause of the queue, or of one type or key in it. It is not an error if there is none.
func (c *QueueConfig) Resume(h Hold) error {
	if h.Type == "" && h.Key == "" {
		c.Paused, c.PausedReason, c.PausedBy, c.PausedAt = false, "", "", time.Time{}
		return nil
	}
	c.Holds = slices.DeleteFunc(slices.Clone(c.Holds), h.same)
	return nil
}

const (
	maxRunning   = 1_000_000
	maxRate      = 1_000_000
	minRatePer   = time.Second
	maxRatePer   = day
	MaxCost      = 1000 // tokens that a task takes
	MaxKeyRules  = 1000 // keys of a queue with rules of their own
	MaxHolds     = 1000 // held types and keys of a queue
	maxKeyWeight = MaxWeight
)

// IsSet reports whether there is a limit.
func (r Rate) IsSet() bool { return r.Limit > 0 }

// Capacity returns how many tokens the bucket holds.
func (r Rate) Capacity() int {
	if r.Burst > 0 {
		return r.Burst
	}
	return r.Limit
}

// BySlots returns the part of a queue's rate that applies in a shard with the given number of its slots. A shard that has none, but still
// drains tasks, counts as having one. The rate is divided exactly, by extending its period; the burst is rounded up, so that it is never 0.
func (r Rate) BySlots(slots int) Rate {
	slots = max(slots, 1)
	if r.IsSet() {
		r.Burst = (r.Capacity()*slots + SlotCount - 1) / SlotCount
		r.Period = r.Period * SlotCount / time.Duration(slots)
	}
	return r
}

// Whole approximates the rate of the queue from a part of it.
func (r Rate) Whole(slots int) Rate {
	slots = max(slots, 1)
	if r.IsSet() {
		r.Burst = r.Burst * SlotCount / slots
		r.Period = r.Period * time.Duration(slots) / SlotCount
	}
	return r
}

// Check refuses rules that are out of bounds.
func (r Rules) Check(field string) error {
	if r.MaxRunning < 0 || r.MaxRunning > maxRunning {
		return Invalid(field+"max_running", "%d is not between 0 and %d", r.MaxRunning, maxRunning)
	}
	return r.Rate.check(field + "rate")
}

func (r Rate) check(field string) error {
	switch {
	case r == Rate{}:
		return nil
	case r.Limit < 1 || r.Limit > maxRate:
		return Invalid(field+".limit", "%d is not between 1 and %d", r.Limit, maxRate)
	case r.Period < minRatePer || r.Period > maxRatePer:
		return Invalid(field+".period", "%v is not between %v and %v", r.Period, minRatePer, maxRatePer)
	case r.Burst < 0 || r.Burst > maxRate:
		return Invalid(field+".burst", "%d is not between 1 and %d", r.Burst, maxRate)
	}
	return nil
}

// Check refuses rules that are out of bounds.
func (r KeyRules) Check(field string) error {
	if r.Weight < 0 || r.Weight > maxKeyWeight {
		return Invalid(field+"weight", "%d is not between 1 and %d", r.Weight, maxKeyWeight)
	}
	return r.Rules.Check(field)
}

// RulesOf returns the rules of a key. Tasks without a key have none.
func (s *Settings) RulesOf(key string) KeyRules {
	if key == "" {
		return KeyRules{}
	}
	if own, ok := s.Keys[key]; ok {
		return own
	}
	return s.PerKey
}

func (s *Settings) checkRules() error {
	if err := s.Rules.Check(""); err != nil {
		return err
	}
	if err := s.PerKey.Check("per_key."); err != nil {
		return err
	}
	if s.PerKey.Weight > 1 {
		return Invalid("per_key.weight", "%d: only single keys have a weight, see keys", s.PerKey.Weight)
	}
	if len(s.Keys) > MaxKeyRules {
		return Invalid("keys", "%d keys, at most %d can have rules of their own", len(s.Keys), MaxKeyRules)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		if key == "" {
			return Invalid("keys", "a key is empty")
		}
		if err := CheckName("keys", key, DefaultLimits()); err != nil {
			return err
		}
		if err := s.Keys[key].Check(fmt.Sprintf("keys.%s.", key)); err != nil {
			return err
		}
	}
	return nil
}
