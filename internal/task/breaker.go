package task

import (
	"maps"
	"slices"
	"time"
)

// Breaker is the rule of a circuit breaker, which evaluates the attempts of each type separately. The zero value is no rule.
//
// The breaker opens when at least MinAttempts have ended within the window and FailureRate percent of them failed: tasks of the type
// are held. After the hold, one task at a time runs as a probe. If Probes probes in a row succeed, the breaker closes; if one fails,
// it opens again, each time for twice as long.
type Breaker struct {
	FailureRate int           `json:"failure_rate,omitempty"` // percentage of failed attempts at which it opens
	Window      time.Duration `json:"window,omitempty"`
	MinAttempts int           `json:"min_attempts,omitempty"` // in the window: fewer are not conclusive
	Hold        time.Duration `json:"hold,omitempty"`
	MaxHold     time.Duration `json:"max_hold,omitempty"`
	Probes      int           `json:"probes,omitempty"` // in a row that must succeed
}

// DefaultBreaker is the rule if the user specifies no details.
var DefaultBreaker = Breaker{FailureRate: 50, Window: time.Minute, MinAttempts: 20,
	Hold: 30 * time.Second, MaxHold: 10 * time.Minute, Probes: 3}

const (
	MinBreakerWindow   = time.Second
	MaxBreakerWindow   = time.Hour
	MaxBreakerAttempts = 100_000
	MinBreakerHold     = time.Second
	MaxBreakerHold     = day
	MaxBreakerProbes   = 100
	MaxBreakers        = 1000 // types of a queue with a rule of their own
)

// IsSet reports whether there is a rule.
func (b Breaker) IsSet() bool { return b.FailureRate > 0 }

// HoldAfter returns how long tasks are held when the breaker has opened that many times without closing in between.
func (b Breaker) HoldAfter(opened int) time.Duration {
	hold := b.Hold
	for n := 1; n < opened && hold < b.MaxHold; n++ {
		hold *= 2
	}
	return min(hold, b.MaxHold)
}

// Fill replaces zero fields by the defaults.
func (b *Breaker) Fill() {
	d := DefaultBreaker
	if b.FailureRate == 0 {
		b.FailureRate = d.FailureRate
	}
	if b.Window == 0 {
		b.Window = d.Window
	}
	if b.MinAttempts == 0 {
		b.MinAttempts = d.MinAttempts
	}
	if b.Hold == 0 {
		b.Hold = d.Hold
	}
	if b.MaxHold == 0 {
		b.MaxHold = max(d.MaxHold, b.Hold)
	}
	if b.Probes == 0 {
		b.Probes = d.Probes
	}
}

// Check refuses a rule that is out of bounds.
func (b Breaker) Check(field string) error {
	switch {
	case b == Breaker{}:
		return nil
	case b.FailureRate < 1 || b.FailureRate > 100:
		return Invalid(field+".failure_rate", "%d is not between 1 and 100 percent", b.FailureRate)
	case b.Window < MinBreakerWindow || b.Window > MaxBreakerWindow:
		return Invalid(field+".window", "%v is not between %v and %v", b.Window, MinBreakerWindow, MaxBreakerWindow)
	case b.MinAttempts < 1 || b.MinAttempts > MaxBreakerAttempts:
		return Invalid(field+".min_attempts", "%d is not between 1 and %d", b.MinAttempts, MaxBreakerAttempts)
	case b.Hold < MinBreakerHold || b.Hold > MaxBreakerHold:
		return Invalid(field+".hold", "%v is not between %v and %v", b.Hold, MinBreakerHold, MaxBreakerHold)
	case b.MaxHold < b.Hold || b.MaxHold > MaxBreakerHold:
		return Invalid(field+".max_hold", "%v is not between hold, which is %v, and %v", b.MaxHold, b.Hold, MaxBreakerHold)
	case b.Probes < 1 || b.Probes > MaxBreakerProbes:
		return Invalid(field+".probes", "%d is not between 1 and %d", b.Probes, MaxBreakerProbes)
	}
	return nil
}

// BreakerOf returns the rule for a type.
func (s *Settings) BreakerOf(typ string) Breaker {
	if own, ok := s.Breakers[typ]; ok {
		return own
	}
	return s.Breaker
}

// Breaks reports whether there is a rule for any type.
func (s *Settings) Breaks() bool {
	if s.Breaker.IsSet() {
		return true
	}
	for _, b := range s.Breakers {
		if b.IsSet() {
			return true
		}
	}
	return false
}

func (s *Settings) checkBreakers() error {
	if err := s.Breaker.Check("breaker"); err != nil {
		return err
	}
	if len(s.Breakers) > MaxBreakers {
		return Invalid("breakers", "%d types, at most %d can have rules of their own", len(s.Breakers), MaxBreakers)
	}
	for _, typ := range slices.Sorted(maps.Keys(s.Breakers)) {
		if typ == "" {
			return Invalid("breakers", "a type is empty")
		}
		if err := CheckName("breakers", typ, DefaultLimits()); err != nil {
			return err
		}
		if err := s.Breakers[typ].Check("breakers." + typ); err != nil {
			return err
		}
	}
	return nil
}
