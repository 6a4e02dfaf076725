package schema

import (
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Exec is the execution state of a task. It repeats the queue and what determines the lane from the envelope, so that most verbs need not read the
// payload.
type Exec struct {
	State       task.State
	Priority    task.Priority
	Queue       string
	Type        string
	Key         string
	MaxAttempts int            // 0: the queue's
	Retention   *time.Duration // nil: the queue's
	Cost        int            // tokens that a claim takes; 0: 1
	Unique      *task.Unique   // nil: no unique key; never changed
	Role        Role           // with respect to its unique key
	Links       *Links         // to other tasks; nil: none
	Size        int64          // bytes of its payload and of those of its follow-up tasks

	CreatedAt store.Time
	RunAt     store.Time // when it is or was due
	ReadyAt   store.Time // since when it is or was ready
	Seq       uint64     // its place in the lane, kept when it is released or its lease is lost
	Order     uint64     // its place among the tasks of its key, if its queue orders them strictly; 0: none
	Behind    bool       // it is ready, but another task of its key comes first
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
	HasResult    bool // a result row exists

	// KeyedUntil is when the task's idempotency key expires; 0: it has none.
	KeyedUntil store.Time

	EndedAt   store.Time
	KeptUntil store.Time // when its rows are deleted
	Reason    string     // of the end state
	MovedTo   task.ID    // the task as which it continues in another queue, once known; zero: it was not moved
	Operation task.ID    // the last one that changed it; zero: none
	Print     uint64     // the fingerprint of the failure that made it dead or poisoned; 0: it is neither, or an earlier release wrote it
}

// Claim is a worker's hold on a task.
type Claim struct {
	Nonce    uint64
	Worker   string
	At       store.Time
	Until    store.Time // end of the lease
	RunUntil store.Time // the lease is never extended beyond this
	Lease    time.Duration
	// Orphaned means that the lease had expired when a new leader began, and was extended once. If the extension ends unused, that does not count as
	// a crash of the worker.
	Orphaned bool
	// Repeated means that the claim call was repeated and answered again, so that a lost answer proves nothing.
	Repeated bool
	// Counted means that the claim is counted in the rows of its key. Claims made by a leader of feature level 2 are not.
	Counted bool
}

// Tokens returns how many tokens the task takes.
func (x *Exec) Tokens() int { return max(x.Cost, 1) }

// Deadline returns when the passage of time alone would move the task, and how.
func (x *Exec) Deadline() (store.Time, DeadlineKind) {
	switch {
	case x.State == task.Scheduled || x.State == task.Retrying:
		return x.RunAt, OnDue
	case x.State == task.Claimed:
		return x.Claim.Until, OnLease
	case x.State.Ended():
		return x.KeptUntil, OnForget
	}
	return 0, 0
}

// AwaitsStart reports whether the task will be discarded if it is not started in time.
func (x *Exec) AwaitsStart() bool { return x.ExpiresAt != 0 && x.Fence == 0 && x.State.Waiting() }

// ClaimedWith reports whether the task is claimed with this fence and nonce.
func (x *Exec) ClaimedWith(fence, nonce uint64) bool {
	return x.State == task.Claimed && x.Fence == fence && x.Claim.Nonce == nonce
}

// Attempt returns the number of the current or next attempt. It never decreases, not even by a replay.
func (x *Exec) Attempt() int { return x.Failures + x.Crashes + 1 }

// Used returns how many attempts were used up since the task was enqueued or last replayed.
func (x *Exec) Used() int { return x.Failures + x.Crashes - x.Exhausted }

// Lane returns the lane of the task while it is ready.
func (x *Exec) Lane() LaneName { return LaneName{x.Priority, x.Key, x.Type} }

// Success returns the record of the successful attempt, which has no row of its own.
func (x *Exec) Success() *Attempt {
	a := x.AttemptEnded(x.EndedAt, task.OutcomeSucceeded)
	a.Then = task.Succeeded
	return a
}

// AttemptEnded returns the record of the last claim, which ended at a time with an outcome.
func (x *Exec) AttemptEnded(at store.Time, o task.Outcome) *Attempt {
	return &Attempt{Fence: x.Fence, Number: x.Attempt(), Nonce: x.Claim.Nonce, Worker: x.Claim.Worker, StartedAt: x.Claim.At,
		EndedAt: at, Waited: max(x.Claim.At.Sub(x.ReadyAt), 0), Outcome: o}
}

// Parked reports whether the task is ready but in no lane, because it waits for the holder of its unique key or for a predecessor.
func (x *Exec) Parked() bool { return x.State == task.Ready && (x.Role == RoleNext || x.Behind) }

// Slot returns the slot of a task with a unique key.
func (x *Exec) Slot() int {
	slot, _ := (&task.Spec{Key: x.Key, Unique: x.Unique}).Slot()
	return slot
}

// LeaseEnd returns the end of the lease after an extension.
func (c *Claim) LeaseEnd(now store.Time, lease time.Duration) store.Time {
	if lease == 0 {
		lease = c.Lease
	}
	return min(now.Add(lease), c.RunUntil)
}

// Encode returns the row.
func (x *Exec) Encode() []byte { return x.AppendTo(nil) }

// AppendTo appends the row to b.
func (x *Exec) AppendTo(b []byte) []byte {
	r := append(Encoder(b), RowVersion)
	r.Num(1, uint64(x.State))
	r.Num(2, uint64(x.Priority))
	r.Text(3, x.Queue)
	r.Text(4, x.Type)
	r.Text(5, x.Key)
	r.Num(6, uint64(x.MaxAttempts))
	r.Num(7, uint64(x.CreatedAt))
	r.Num(8, uint64(x.RunAt))
	r.Num(9, uint64(x.ReadyAt))
	r.Num(10, x.Seq)
	r.Num(11, uint64(x.ExpiresAt))
	r.Num(12, x.Fence)
	r.Num(13, uint64(x.Failures))
	r.Num(14, uint64(x.Crashes))
	r.Num(15, uint64(x.Releases))
	r.Num(16, uint64(x.Snoozes))
	r.Num(17, uint64(x.Exhausted))
	r.Num(18, x.Claim.Nonce)
	r.Text(19, x.Claim.Worker)
	r.Num(20, uint64(x.Claim.At))
	r.Num(21, uint64(x.Claim.Until))
	r.Num(22, uint64(x.Claim.RunUntil))
	r.Num(23, uint64(x.Claim.Lease))
	r.Num(24, math.Float64bits(x.Progress))
	r.Text(25, x.ProgressText)
	r.Num(26, Flag(x.Checkpointed))
	r.Num(27, uint64(x.EndedAt))
	r.Num(28, uint64(x.KeptUntil))
	r.Text(29, x.Reason)
	if x.Retention != nil {
		r.Num(30, uint64(*x.Retention)+1)
	}
	r.Num(31, Flag(x.Claim.Orphaned))
	r.Num(32, Flag(x.Claim.Repeated))
	r.Num(33, uint64(x.KeyedUntil))
	r.Num(34, uint64(x.Cost))
	r.Num(35, Flag(x.Claim.Counted))
	if u := x.Unique; u != nil {
		r.Text(36, u.Key)
		r.Num(37, uint64(u.States))
		r.Num(38, uint64(u.OnConflict))
	}
	r.Num(39, uint64(x.Role))
	if x.Links != nil {
		r.Bytes(50, x.Links.Encode())
	}
	r.ID(40, x.MovedTo)
	r.ID(42, x.Operation)
	r.Num(41, uint64(x.Size)) // #nosec G115 -- not negative
	r.Num(43, x.Print)
	r.Num(44, x.Order)
	r.Num(45, Flag(x.Behind))
	r.Num(46, Flag(x.HasResult))
	return r
}

// DecodeExec decodes the row of a task's state.
func DecodeExec(row []byte) (*Exec, error) {
	x := &Exec{}
	var bad error
	err := Decode(row, x.setNum, func(tag protowire.Number, b []byte) {
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
			x.Links, bad = decodeLinks(b)
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

// unique returns x.Unique, allocating it if need be.
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
		x.KeyedUntil = store.Time(v)
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
	case 44:
		x.Order = v
	case 45:
		x.Behind = v != 0
	case 46:
		x.HasResult = v != 0
	}
}

// EncodeDead returns the row of a task in the index of the dead.
func (x *Exec) EncodeDead() []byte {
	r := NewRow(16 + len(x.Type))
	r.Num(1, x.Print)
	r.Text(2, x.Type)
	return r
}

// ReadExec reads the state of a task, or returns not_found if there is none.
func ReadExec(from store.Reader, ns string, id task.ID) (*Exec, error) {
	row, ok := from.Get(IDKey(ns, TableExec, id))
	if !ok {
		return nil, task.NotFound("task", id.String())
	}
	x, err := DecodeExec(row)
	Must(err)
	return x, nil
}
