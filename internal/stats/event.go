package stats

import "time"

// Counter is something that can happen to a task.
type Counter uint8

// The counters. An event may count as several: the last failed attempt of a task is Failed and Dead.
const (
	Enqueued Counter = iota
	Deduplicated
	Claimed
	Succeeded
	Failed     // an attempt, as reported by its worker
	Crashed    // an attempt: its lease was lost
	TimedOut   // an attempt
	Leaderless // a lease expired while the shard had no leader
	Released
	Snoozed
	Dead
	Poisoned
	Discarded
	Expired
	Moved // to another queue
	Cancelled
	Replayed
	numCounters
)

var counterNames = [numCounters]string{"enqueued", "deduplicated", "claimed", "succeeded", "failed_attempt", "crashed", "timed_out",
	"leaderless", "released", "snoozed", "dead", "poisoned", "discarded", "expired", "moved", "cancelled", "replayed"}

// String returns the counter's name on the metrics page.
func (c Counter) String() string { return counterNames[c] }

// Set is a set of counters.
type Set uint32

// With adds a counter to a set.
func (s Set) With(c Counter) Set { return s | 1<<c }

// Has reports whether a counter is in the set.
func (s Set) Has(c Counter) bool { return s&(1<<c) != 0 }

// Event is something that happened to a task. Its strings are copied only where they are new.
type Event struct {
	Namespace, Queue, Type string
	Counts                 Set
	Readied                bool          // it became ready for a worker: new, due, retried or released
	Waited                 time.Duration // from ready to claimed; for Claimed
	Ran                    time.Duration // from claimed to the end of the attempt; negative: it did not run to an end
	Error, ErrorType       string        // of a failed attempt
	Task                   [16]byte      // the task of an attempt that ended, and its worker
	Worker                 string
}

// Rates counts the events of a step of time. Zero counts take no space on the wire or on disk.
type Rates struct {
	Enqueued  uint32 `cbor:"1,keyasint,omitempty"`
	Claimed   uint32 `cbor:"2,keyasint,omitempty"`
	Succeeded uint32 `cbor:"3,keyasint,omitempty"`
	Failed    uint32 `cbor:"4,keyasint,omitempty"` // attempts, including those that timed out or found poison
	Crashed   uint32 `cbor:"5,keyasint,omitempty"` // attempts
	Dead      uint32 `cbor:"6,keyasint,omitempty"`
	Poisoned  uint32 `cbor:"7,keyasint,omitempty"`
	Discarded uint32 `cbor:"8,keyasint,omitempty"` // also expired, or moved to another queue
	Cancelled uint32 `cbor:"9,keyasint,omitempty"`
	Replayed  uint32 `cbor:"10,keyasint,omitempty"`
	Readied   uint32 `cbor:"11,keyasint,omitempty"` // became ready for a worker
}

// count counts an event, if it is one of those kept over time.
func (r *Rates) count(c Counter) {
	switch c {
	case Enqueued:
		r.Enqueued++
	case Claimed:
		r.Claimed++
	case Succeeded:
		r.Succeeded++
	case Failed, TimedOut:
		r.Failed++
	case Crashed:
		r.Crashed++
	case Dead:
		r.Dead++
	case Poisoned:
		r.Poisoned++
		r.Failed++ // its attempt; that of a dead task is an event of its own
	case Discarded, Expired, Moved:
		r.Discarded++
	case Cancelled:
		r.Cancelled++
	case Replayed:
		r.Replayed++
	}
}

// Add adds the events of o.
func (r *Rates) Add(o Rates) {
	r.Enqueued, r.Claimed, r.Succeeded = r.Enqueued+o.Enqueued, r.Claimed+o.Claimed, r.Succeeded+o.Succeeded
	r.Failed, r.Crashed, r.Dead = r.Failed+o.Failed, r.Crashed+o.Crashed, r.Dead+o.Dead
	r.Poisoned, r.Discarded = r.Poisoned+o.Poisoned, r.Discarded+o.Discarded
	r.Cancelled, r.Replayed, r.Readied = r.Cancelled+o.Cancelled, r.Replayed+o.Replayed, r.Readied+o.Readied
}

// In returns the tasks that entered the queue, Out those that left it, and Bad the failed attempts.
func (r Rates) In() uint32  { return r.Enqueued + r.Replayed }
func (r Rates) Out() uint32 { return r.Succeeded + r.Dead + r.Poisoned + r.Discarded + r.Cancelled }
func (r Rates) Bad() uint32 { return r.Failed + r.Crashed }
