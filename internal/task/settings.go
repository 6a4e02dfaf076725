package task

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Settings are the rules of a queue. They are stored as JSON: fields may be added, but never renamed.
type Settings struct {
	// Weights divide claims among the priorities, high first; all zero means strict order.
	Weights     [3]int              `json:"weights"`
	Retry       Retry               `json:"retry"`
	MaxAttempts int                 `json:"max_attempts"`
	Lease       time.Duration       `json:"lease"`
	Timeout     time.Duration       `json:"timeout"` // of one run; 0: none
	Retention   Retention           `json:"retention"`
	MaxWait     time.Duration       `json:"max_wait"`   // a task that is ready for longer needs attention
	MaxLength   int64               `json:"max_length"` // maximum number of waiting tasks, in all shards together; 0: no limit
	Rules                           // of the queue as a whole
	PerKey      KeyRules            `json:"per_key,omitzero"` // of every key
	Keys        map[string]KeyRules `json:"keys,omitempty"`   // of single keys, overriding PerKey. Never modified in place
	KeyOrder    KeyOrder            `json:"key_order,omitempty"`
	Breaker     Breaker             `json:"breaker,omitzero"` // of every type
	// Breakers are those of single types, overriding Breaker; the zero value: none. Never modified in place.
	Breakers map[string]Breaker `json:"breakers,omitempty"`
}

// Retention is how long tasks are kept after their end.
type Retention struct {
	Succeeded time.Duration `json:"succeeded"`
	Discarded time.Duration `json:"discarded"`
	Cancelled time.Duration `json:"cancelled"`
	Dead      time.Duration `json:"dead"`
	Poisoned  time.Duration `json:"poisoned"`
}

// Of returns the retention of an end state.
func (r Retention) Of(s State) time.Duration {
	switch s {
	case Discarded:
		return r.Discarded
	case Cancelled:
		return r.Cancelled
	case Dead:
		return r.Dead
	case Poisoned:
		return r.Poisoned
	}
	return r.Succeeded
}

const day = 24 * time.Hour

// Bounds of Settings.MaxWait.
const (
	minMaxWait = time.Second
	maxMaxWait = 365 * day
)

// DefaultSettings returns the settings of a queue that nobody configured.
func DefaultSettings() Settings {
	return Settings{
		Retry:       DefaultRetry,
		MaxAttempts: 5,
		Lease:       30 * time.Second,
		MaxWait:     5 * time.Minute,
		Retention:   Retention{Succeeded: day, Discarded: day, Cancelled: day, Dead: 14 * day, Poisoned: 14 * day},
	}
}

// Weighted reports whether priorities share claims by weight.
func (s Settings) Weighted() bool { return s.Weights != [3]int{} }

// Check refuses settings that break a rule.
func (s Settings) Check() error {
	if s.Weighted() {
		for i, w := range s.Weights {
			if w < 1 || w > MaxWeight {
				return Invalid("weights."+Priorities[i].String(), "%d is not between 1 and %d", w, MaxWeight)
			}
		}
	}
	if err := s.Retry.Check("retry"); err != nil {
		return err
	}
	if s.MaxAttempts < 1 || s.MaxAttempts > maxAttempts {
		return Invalid("max_attempts", "%d is not between 1 and %d", s.MaxAttempts, maxAttempts)
	}
	if err := CheckLease("lease", s.Lease); err != nil {
		return err
	}
	if s.Timeout < 0 || s.Timeout > MaxRun {
		return Invalid("timeout", "%v is not between 0 and %v", s.Timeout, MaxRun)
	}
	for _, state := range []State{Succeeded, Discarded, Cancelled, Dead, Poisoned} {
		if err := checkRetention("retention."+state.String(), s.Retention.Of(state)); err != nil {
			return err
		}
	}
	if s.MaxLength < 0 {
		return Invalid("max_length", "%d is negative", s.MaxLength)
	}
	if s.MaxWait < minMaxWait || s.MaxWait > maxMaxWait {
		return Invalid("max_wait", "%v is not between %v and %v", s.MaxWait, minMaxWait, maxMaxWait)
	}
	if err := s.checkKeyOrder(); err != nil {
		return err
	}
	if err := s.checkRules(); err != nil {
		return err
	}
	return s.checkBreakers()
}

// QueueConfig is an operator's configuration of a queue: its settings and whether it is paused. The system shard owns it; every
// shard with a partition of the queue keeps a copy, and decides by that copy only.
type QueueConfig struct {
	Version      uint64    `json:"version"` // grows with every change
	Settings     Settings  `json:"settings"`
	Paused       bool      `json:"paused,omitempty"`
	PausedReason string    `json:"paused_reason,omitempty"`
	PausedBy     string    `json:"paused_by,omitempty"` // "": unknown
	PausedAt     time.Time `json:"paused_at,omitzero"`
	CreatedAt    time.Time `json:"created_at"`
	// Closed is the set of slots for which a shard accepts no new tasks, since they are in another. Only in a shard's copy.
	Closed SlotSet `json:"closed,omitempty"`
	// Moved is the version that began the last move of slots: a node that routes by an older version may not know the right shard. Only
	// in a shard's copy.
	Moved uint64 `json:"moved,omitempty"`
	// Elsewhere is the set of slots that other shards had, and of which they may still know unique keys, idempotency
	// keys and requests. Only in a shard's copy.
	Elsewhere SlotSet `json:"elsewhere,omitempty"`
	// Divided means that MaxRunning and MaxLength are those of several shards together, each of which has a Share. Only in a shard's copy.
	Divided bool `json:"divided,omitempty"`
	// Holds are the paused types and keys. Never modified in place.
	Holds []Hold `json:"holds,omitempty"`
	// Annotations are notes of the layers above the engine, which reads none of them. Never modified in place.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Equal reports whether two configurations are the same.
func (c QueueConfig) Equal(d QueueConfig) bool { return bytes.Equal(c.Encode(), d.Encode()) }

// HeldType returns the pause of a type, if there is one.
func (c *QueueConfig) HeldType(name string) (Hold, bool) {
	return c.hold(func(h Hold) bool { return h.Type == name && h.Type != "" })
}

// HeldKey returns the pause of a key, if there is one.
func (c *QueueConfig) HeldKey(name string) (Hold, bool) {
	return c.hold(func(h Hold) bool { return h.Key == name && h.Key != "" })
}

func (c *QueueConfig) hold(is func(Hold) bool) (Hold, bool) {
	if i := slices.IndexFunc(c.Holds, is); i >= 0 {
		return c.Holds[i], true
	}
	return Hold{}, false
}

const queueConfigVersion = 1

// Limits returns the limits that are divided among the shards of a queue.
func (s *Settings) Limits() Quotas { return Quotas{Backlog: s.MaxLength, Running: int64(s.MaxRunning)} }

// Encode returns the stored form.
func (c QueueConfig) Encode() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // only finite numbers pass Settings.Check
	}
	return append([]byte{queueConfigVersion}, b...)
}

// DecodeQueueConfig is the inverse of Encode.
func DecodeQueueConfig(b []byte) (QueueConfig, error) {
	c := QueueConfig{Settings: DefaultSettings()}
	if len(b) == 0 || b[0] != queueConfigVersion {
		return c, fmt.Errorf("queue configuration of %d bytes: unknown format", len(b))
	}
	if err := json.Unmarshal(b[1:], &c); err != nil {
		return c, fmt.Errorf("queue configuration: %w", err)
	}
	return c, nil
}
