package engine

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Envelope is what the producer said of a task. It is written once; only an operator's edit of the payload writes it
// again, and keeps the fingerprint.
type Envelope struct {
	ID             task.ID
	Namespace      string
	Queue          string
	Type           string
	Key            string
	Payload        []byte
	ContentType    string
	IdempotencyKey string
	IdempotencyTTL time.Duration // 0: there is no key, or the default
	Fingerprint    uint64        // of type and payload as first enqueued
	Retry          *task.Retry
	Timeout        time.Duration // 0: the queue's
	Tags           []string
	Headers        map[string]string
	Parent         *task.Parent // what the task follows; nil: nothing
	MovedFrom      task.ID      // the task that lives on as this one; zero: it is new
}

func (e *Envelope) encode() []byte { return e.appendTo(nil) }

// appendTo appends the row to b.
func (e *Envelope) appendTo(b []byte) []byte {
	r := append(encoder(b), rowVersion)
	r.text(1, e.Queue)
	r.text(2, e.Type)
	r.text(3, e.Key)
	r.bytes(4, e.Payload)
	r.text(5, e.ContentType)
	r.text(6, e.IdempotencyKey)
	r.num(7, e.Fingerprint)
	if e.Retry != nil {
		r.bytes(8, encodeRetry(*e.Retry))
	}
	r.num(9, uint64(e.Timeout))
	for _, t := range e.Tags {
		r.text(10, t)
	}
	for _, name := range sortedKeys(e.Headers) {
		h := protowire.AppendString(nil, name)
		r.bytes(11, protowire.AppendString(h, e.Headers[name]))
	}
	if e.Parent != nil {
		r.bytes(30, encodeParent(e.Parent))
	}
	r.id(12, e.MovedFrom)
	r.num(13, uint64(e.IdempotencyTTL))
	return r
}

func decodeEnvelope(ns string, id task.ID, row []byte) (*Envelope, error) {
	e := &Envelope{ID: id, Namespace: ns}
	var bad error
	err := decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 7:
			e.Fingerprint = v
		case 9:
			e.Timeout = time.Duration(v)
		case 13:
			e.IdempotencyTTL = time.Duration(v)
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 1:
			e.Queue = string(b)
		case 2:
			e.Type = string(b)
		case 3:
			e.Key = string(b)
		case 4:
			e.Payload = b
		case 5:
			e.ContentType = string(b)
		case 6:
			e.IdempotencyKey = string(b)
		case 8:
			retry, err := decodeRetry(b)
			e.Retry, bad = &retry, err
		case 10:
			e.Tags = append(e.Tags, string(b))
		case 11:
			name, n := protowire.ConsumeString(b)
			value, m := protowire.ConsumeString(b[max(n, 0):])
			if n < 0 || m < 0 {
				bad = fmt.Errorf("envelope %s: a header is cut short", id)
				return
			}
			if e.Headers == nil {
				e.Headers = map[string]string{}
			}
			e.Headers[name] = value
		case 30:
			if parent, err := decodeParent(b); err != nil {
				bad = err
			} else {
				e.Parent = parent
			}
		case 12:
			copy(e.MovedFrom[:], b)
		}
	})
	if err == nil {
		err = bad
	}
	return e, err
}

func encodeRetry(r task.Retry) []byte {
	b := protowire.AppendVarint(nil, uint64(r.Initial))
	b = protowire.AppendVarint(b, uint64(r.Max))
	b = protowire.AppendFixed64(b, math.Float64bits(r.Factor))
	return protowire.AppendFixed64(b, math.Float64bits(r.Jitter))
}

func decodeRetry(b []byte) (r task.Retry, err error) {
	initial, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return r, protowire.ParseError(n)
	}
	most, m := protowire.ConsumeVarint(b[n:])
	if m < 0 || len(b[n+m:]) != 16 {
		return r, fmt.Errorf("retry policy of %d bytes: unknown form", len(b))
	}
	b = b[n+m:]
	r.Initial, r.Max = time.Duration(initial), time.Duration(most)
	r.Factor = math.Float64frombits(binary.LittleEndian.Uint64(b))
	r.Jitter = math.Float64frombits(binary.LittleEndian.Uint64(b[8:]))
	return r, nil
}

// Exec is where a task is in its life. Lane and queue are repeated from the envelope, so that most verbs need not read
// the payload.
type Exec struct {
	State       task.State
	Priority    task.Priority
	Queue       string
	Type        string
	Key         string
	MaxAttempts int            // 0: the queue's
	Retention   *time.Duration // nil: the queue's
	Cost        int            // tokens that a claim takes; 0: 1
	Unique      *task.Unique   // nil: it has no unique key; never changed
	Role        Role           // in its unique key
	Ties        *Ties          // to other tasks; nil: none
	Size        int64          // bytes of its payload, and of those of what is to follow it

	CreatedAt store.Time
	RunAt     store.Time // when it is or was due
	ReadyAt   store.Time // since when it is or was ready
	Seq       uint64     // its place in the lane, kept over release and lost leases
	ExpiresAt store.Time // discarded unless started by then; 0: never

	Fence     uint64
	Failures  int
	Crashes   int
	Releases  int
	Snoozes   int
	Exhausted int // attempts used up before the last replay

	Claim Claim // the current claim, or the last one

	Progress     float64 // percent
	ProgressText string
	Checkpointed bool // a checkpoint row exists
	Keyed        bool // the envelope has an idempotency key

	EndedAt   store.Time
	KeptUntil store.Time // when its rows go
	Reason    string     // of the end state
	MovedTo   task.ID    // as which it lives on, once that is known; zero: it was not moved
	Operation task.ID    // the last one that changed it; zero: none did
	Print     uint64     // the fingerprint of what it died of, or was found to be poison by; 0: it lives, or nobody wrote it
}

// Claim is one worker's hold of a task.
type Claim struct {
	Nonce    uint64
	Worker   string
	At       store.Time
	Until    store.Time // end of the lease
	RunUntil store.Time // the lease is never extended beyond this
	Lease    time.Duration
	// Orphaned: the lease had run out when a new leader began, and got a last stretch. If it ends unused, that is no
	// crash of the worker.
	Orphaned bool
	// Repeated: the claim was asked for again and given again, so that an answer that nobody received says nothing.
	Repeated bool
	// Counted: the claim has a row among those of its key. One that a leader of feature level 2 made has none.
	Counted bool
}

// Attempt is the number of the current or next attempt. It never falls, also not by a replay.
func (x *Exec) Attempt() int { return x.Failures + x.Crashes + 1 }

// used counts the attempts used up since the task was enqueued or last replayed.
func (x *Exec) used() int { return x.Failures + x.Crashes - x.Exhausted }

func (x *Exec) lane() laneName { return laneName{x.Priority, x.Key, x.Type} }

func (x *Exec) encode() []byte { return x.appendTo(nil) }

// appendTo appends the row to b.
func (x *Exec) appendTo(b []byte) []byte {
	r := append(encoder(b), rowVersion)
	r.num(1, uint64(x.State))
	r.num(2, uint64(x.Priority))
	r.text(3, x.Queue)
	r.text(4, x.Type)
	r.text(5, x.Key)
	r.num(6, uint64(x.MaxAttempts))
	r.num(7, uint64(x.CreatedAt))
	r.num(8, uint64(x.RunAt))
	r.num(9, uint64(x.ReadyAt))
	r.num(10, x.Seq)
	r.num(11, uint64(x.ExpiresAt))
	r.num(12, x.Fence)
	r.num(13, uint64(x.Failures))
	r.num(14, uint64(x.Crashes))
	r.num(15, uint64(x.Releases))
	r.num(16, uint64(x.Snoozes))
	r.num(17, uint64(x.Exhausted))
	r.num(18, x.Claim.Nonce)
	r.text(19, x.Claim.Worker)
	r.num(20, uint64(x.Claim.At))
	r.num(21, uint64(x.Claim.Until))
	r.num(22, uint64(x.Claim.RunUntil))
	r.num(23, uint64(x.Claim.Lease))
	r.num(24, math.Float64bits(x.Progress))
	r.text(25, x.ProgressText)
	r.num(26, flag(x.Checkpointed))
	r.num(27, uint64(x.EndedAt))
	r.num(28, uint64(x.KeptUntil))
	r.text(29, x.Reason)
	if x.Retention != nil {
		r.num(30, uint64(*x.Retention)+1)
	}
	r.num(31, flag(x.Claim.Orphaned))
	r.num(32, flag(x.Claim.Repeated))
	r.num(33, flag(x.Keyed))
	r.num(34, uint64(x.Cost))
	r.num(35, flag(x.Claim.Counted))
	if u := x.Unique; u != nil {
		r.text(36, u.Key)
		r.num(37, uint64(u.States))
		r.num(38, uint64(u.OnConflict))
	}
	r.num(39, uint64(x.Role))
	if x.Ties != nil {
		r.bytes(50, x.Ties.encode())
	}
	r.id(40, x.MovedTo)
	r.id(42, x.Operation)
	r.num(41, uint64(x.Size)) // #nosec G115 -- not negative
	r.num(43, x.Print)
	return r
}

func decodeExec(row []byte) (*Exec, error) {
	x := &Exec{}
	var bad error
	err := decode(row, x.setNum, func(tag protowire.Number, b []byte) {
		switch tag {
		case 3:
			x.Queue = string(b)
		case 4:
			x.Type = string(b)
		case 5:
			x.Key = string(b)
		case 19:
			x.Claim.Worker = string(b)
		case 25:
			x.ProgressText = string(b)
		case 29:
			x.Reason = string(b)
		case 36:
			x.unique().Key = string(b)
		case 50:
			x.Ties, bad = decodeTies(b)
		case 40:
			copy(x.MovedTo[:], b)
		case 42:
			copy(x.Operation[:], b)
		}
	})
	if err == nil {
		err = bad
	}
	return x, err
}

// unique is where a reader of the row puts what it finds of the unique key.
func (x *Exec) unique() *task.Unique {
	if x.Unique == nil {
		x.Unique = &task.Unique{}
	}
	return x.Unique
}

func (x *Exec) setNum(tag protowire.Number, v uint64) {
	switch tag {
	case 1:
		x.State = task.State(v)
	case 2:
		x.Priority = task.Priority(v)
	case 6:
		x.MaxAttempts = int(v)
	case 7:
		x.CreatedAt = store.Time(v)
	case 8:
		x.RunAt = store.Time(v)
	case 9:
		x.ReadyAt = store.Time(v)
	case 10:
		x.Seq = v
	case 11:
		x.ExpiresAt = store.Time(v)
	case 12:
		x.Fence = v
	case 13:
		x.Failures = int(v)
	case 14:
		x.Crashes = int(v)
	case 15:
		x.Releases = int(v)
	case 16:
		x.Snoozes = int(v)
	case 17:
		x.Exhausted = int(v)
	case 18:
		x.Claim.Nonce = v
	case 20:
		x.Claim.At = store.Time(v)
	case 21:
		x.Claim.Until = store.Time(v)
	case 22:
		x.Claim.RunUntil = store.Time(v)
	case 23:
		x.Claim.Lease = time.Duration(v)
	case 24:
		x.Progress = math.Float64frombits(v)
	case 26:
		x.Checkpointed = v != 0
	case 27:
		x.EndedAt = store.Time(v)
	case 28:
		x.KeptUntil = store.Time(v)
	case 30:
		d := time.Duration(v - 1)
		x.Retention = &d
	case 31:
		x.Claim.Orphaned = v != 0
	case 32:
		x.Claim.Repeated = v != 0
	case 33:
		x.Keyed = v != 0
	case 34:
		x.Cost = int(v)
	case 35:
		x.Claim.Counted = v != 0
	case 37:
		x.unique().States = task.StateSet(v)
	case 38:
		x.unique().OnConflict = task.OnConflict(v)
	case 39:
		x.Role = Role(v)
	case 41:
		x.Size = int64(v) // #nosec G115 -- as it was written
	case 43:
		x.Print = v
	}
}

// Attempt is the record of one claim that has ended.
type Attempt struct {
	Fence     uint64
	Number    int
	Nonce     uint64
	Worker    string
	StartedAt store.Time
	EndedAt   store.Time
	Waited    time.Duration // from ready to claimed
	Outcome   task.Outcome
	Failure   Failure
	NextRunAt store.Time // after a retry, release or snooze
	Then      task.State // the state that the end of the attempt led to
	Reason    string     // of that state
}

// Failure is what a handler says of a failed run.
type Failure struct{ Message, Type, Stack string }

func (a *Attempt) encode() []byte {
	r := newRow(96 + len(a.Failure.Message) + len(a.Failure.Stack))
	r.num(1, uint64(a.Number))
	r.num(2, a.Nonce)
	r.text(3, a.Worker)
	r.num(4, uint64(a.StartedAt))
	r.num(5, uint64(a.EndedAt))
	r.num(6, uint64(a.Waited))
	r.num(7, uint64(a.Outcome))
	r.text(8, a.Failure.Message)
	r.text(9, a.Failure.Type)
	r.text(10, a.Failure.Stack)
	r.num(11, uint64(a.NextRunAt))
	r.num(12, uint64(a.Then))
	r.text(13, a.Reason)
	return r
}

func decodeAttempt(fence uint64, row []byte) (*Attempt, error) {
	a := &Attempt{Fence: fence}
	err := decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			a.Number = int(v)
		case 2:
			a.Nonce = v
		case 4:
			a.StartedAt = store.Time(v)
		case 5:
			a.EndedAt = store.Time(v)
		case 6:
			a.Waited = time.Duration(v)
		case 7:
			a.Outcome = task.Outcome(v)
		case 11:
			a.NextRunAt = store.Time(v)
		case 12:
			a.Then = task.State(v)
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 3:
			a.Worker = string(b)
		case 8:
			a.Failure.Message = string(b)
		case 9:
			a.Failure.Type = string(b)
		case 10:
			a.Failure.Stack = string(b)
		case 13:
			a.Reason = string(b)
		}
	})
	return a, err
}

// Result is what a handler gave back.
type Result struct {
	Data        []byte
	ContentType string // "" or "application/json": a JSON value
}

func (v Result) encode() []byte {
	r := newRow(len(v.Data) + len(v.ContentType) + 16)
	r.bytes(1, v.Data)
	r.text(2, v.ContentType)
	return r
}

func decodeResult(row []byte) (v Result, err error) {
	err = decode(row, noNum, func(tag protowire.Number, b []byte) {
		switch tag {
		case 1:
			v.Data = b
		case 2:
			v.ContentType = string(b)
		}
	})
	return v, err
}

// keyRow remembers which task an idempotency key or a request id stands for.
type keyRow struct {
	id          task.ID
	fingerprint uint64
	until       store.Time

	// How the task ended and when it was created, once its own rows are gone.
	ended   task.State
	created store.Time
}

func (k keyRow) encode() []byte {
	r := newRow(48)
	r.bytes(1, k.id[:])
	r.num(2, k.fingerprint)
	r.num(3, uint64(k.until))
	r.num(4, uint64(k.ended))
	r.num(5, uint64(k.created))
	return r
}

func decodeKey(row []byte) (k keyRow, err error) {
	err = decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 2:
			k.fingerprint = v
		case 3:
			k.until = store.Time(v)
		case 4:
			k.ended = task.State(v)
		case 5:
			k.created = store.Time(v)
		}
	}, func(tag protowire.Number, b []byte) {
		if tag == 1 {
			copy(k.id[:], b)
		}
	})
	return k, err
}

// claimKeyRow remembers which claims a claim key got.
type claimKeyRow struct {
	until  store.Time
	claims []claimRef
}

type claimRef struct {
	id    task.ID
	fence uint64
}

func (c claimKeyRow) encode() []byte {
	r := newRow(16 + 24*len(c.claims))
	r.num(1, uint64(c.until))
	for _, ref := range c.claims {
		r.bytes(2, binary.AppendUvarint(ref.id[:], ref.fence))
	}
	return r
}

func decodeClaimKey(row []byte) (c claimKeyRow, err error) {
	err = decode(row, func(tag protowire.Number, v uint64) {
		if tag == 1 {
			c.until = store.Time(v)
		}
	}, func(tag protowire.Number, b []byte) {
		if tag == 2 && len(b) > 16 {
			fence, _ := binary.Uvarint(b[16:])
			c.claims = append(c.claims, claimRef{task.ID(b[:16]), fence})
		}
	})
	return c, err
}

// counts are the tasks of a queue that have not ended, or that operators look after, by state.
type counts struct {
	scheduled, claimed, retrying, dead, poisoned int64
	ready                                        [3]int64 // by priority, high first
	parked                                       int64    // of the ready: wait for the holder of their unique key
	bytes                                        int64    // Exec.Size of all that have not ended

	sweep store.Time // when the queue's full buckets are forgotten; 0: it has none
}

func (c *counts) of(s task.State, p task.Priority) *int64 {
	switch s {
	case task.Scheduled:
		return &c.scheduled
	case task.Ready:
		return &c.ready[p-task.High]
	case task.Claimed:
		return &c.claimed
	case task.Retrying:
		return &c.retrying
	case task.Dead:
		return &c.dead
	case task.Poisoned:
		return &c.poisoned
	}
	return nil
}

func (c *counts) waiting() int64 {
	return c.scheduled + c.retrying + c.ready[0] + c.ready[1] + c.ready[2]
}

func (c *counts) encode() []byte {
	r := newRow(48)
	for i, v := range []int64{c.scheduled, c.claimed, c.retrying, c.dead, c.poisoned, c.ready[0], c.ready[1], c.ready[2]} {
		r.num(protowire.Number(i+1), uint64(v))
	}
	r.num(9, uint64(c.sweep))
	r.num(10, uint64(c.parked))
	r.num(11, uint64(c.bytes)) // #nosec G115 -- not negative
	return r
}

func decodeCounts(row []byte) (c counts, err error) {
	fields := []*int64{&c.scheduled, &c.claimed, &c.retrying, &c.dead, &c.poisoned, &c.ready[0], &c.ready[1], &c.ready[2]}
	err = decode(row, func(tag protowire.Number, v uint64) {
		if int(tag) <= len(fields) {
			*fields[tag-1] = int64(v)
		} else if tag == 9 {
			c.sweep = store.Time(v)
		} else if tag == 10 {
			c.parked = int64(v)
		} else if tag == 11 {
			c.bytes = int64(v) // #nosec G115 -- as it was written
		}
	}, noBytes)
	return c, err
}

func sortedKeys[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
