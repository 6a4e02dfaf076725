package schema

import (
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Exec is the execution state of a task. It repeats the queue and what determines the lane from the envelope, so that
// most verbs need not read the payload.
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
	// ExpiresAlways means that it is then discarded even if it was started before, once it is not claimed.
	ExpiresAlways bool

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

	EndedAt     store.Time
	KeptUntil   store.Time // when its rows are deleted
	Reason      string     // of the end state
	MovedTo     task.ID    // the task as which it continues in another queue, once known; zero: it was not moved
	Operation   task.ID    // the last one that changed it; zero: none
	Fingerprint uint64     // the fingerprint of the failure that made it dead or poisoned; 0: it is neither, or an earlier release wrote it
}

// Claim is a worker's hold on a task.
type Claim struct {
	Nonce    uint64
	Worker   string
	At       store.Time
	Until    store.Time // end of the lease
	RunUntil store.Time // the lease is never extended beyond this
	Lease    time.Duration
	// Orphaned means that the lease had expired when a new leader began, and was extended once. If the extension ends
	// unused, that does not count as a crash of the worker.
	Orphaned bool
	// Repeated means that the claim call was repeated and answered again, so that a lost answer proves nothing.
	Repeated bool
	// GivesBack means that the holder has shortened its lease to this long, and has not asked for longer since: it returns
	// the task at the lease's end.
	GivesBack time.Duration
	// Yields means that earlier tasks of its key that come back may be claimed meanwhile.
	Yields bool
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
func (x *Exec) AwaitsStart() bool {
	return x.ExpiresAt != 0 && (x.Fence == 0 || x.ExpiresAlways) && x.State.Waiting()
}

// Expired reports whether the task was not started in time, and is to be discarded.
func (x *Exec) Expired(now store.Time) bool { return x.AwaitsStart() && x.ExpiresAt <= now }

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
	f := Encoding(b)
	x.fields(&f)
	return f.Row()
}

// DecodeExec decodes the row of a task's state.
func DecodeExec(row []byte) (*Exec, error) {
	x := &Exec{}
	f := Decoding(row)
	for f.Next() {
		x.fields(&f)
	}
	return x, f.Err()
}

func (x *Exec) fields(f *Fields) {
	Num(f, 1, &x.State)
	Num(f, 2, &x.Priority)
	f.Text(3, &x.Queue)
	f.Text(4, &x.Type)
	f.Text(5, &x.Key)
	Num(f, 6, &x.MaxAttempts)
	Num(f, 7, &x.CreatedAt)
	Num(f, 8, &x.RunAt)
	Num(f, 9, &x.ReadyAt)
	Num(f, 10, &x.Seq)
	Num(f, 11, &x.ExpiresAt)
	Num(f, 12, &x.Fence)
	Num(f, 13, &x.Failures)
	Num(f, 14, &x.Crashes)
	Num(f, 15, &x.Releases)
	Num(f, 16, &x.Snoozes)
	Num(f, 17, &x.Exhausted)
	Num(f, 18, &x.Claim.Nonce)
	f.Text(19, &x.Claim.Worker)
	Num(f, 20, &x.Claim.At)
	Num(f, 21, &x.Claim.Until)
	Num(f, 22, &x.Claim.RunUntil)
	Num(f, 23, &x.Claim.Lease)
	f.Float(24, &x.Progress)
	f.Text(25, &x.ProgressText)
	f.Flag(26, &x.Checkpointed)
	Num(f, 27, &x.EndedAt)
	Num(f, 28, &x.KeptUntil)
	f.Text(29, &x.Reason)
	f.Optional(30, &x.Retention)
	f.Flag(31, &x.Claim.Orphaned)
	f.Flag(32, &x.Claim.Repeated)
	Num(f, 33, &x.KeyedUntil)
	Num(f, 34, &x.Cost)
	x.uniqueFields(f)
	Num(f, 39, &x.Role)
	Part(f, 50, &x.Links, (*Links).fields)
	f.ID(40, &x.MovedTo)
	f.ID(42, &x.Operation)
	Num(f, 41, &x.Size)
	Num(f, 43, &x.Fingerprint)
	Num(f, 44, &x.Order)
	f.Flag(45, &x.Behind)
	f.Flag(46, &x.HasResult)
	f.Flag(47, &x.Claim.Yields)
	f.Flag(48, &x.ExpiresAlways)
	Num(f, 49, &x.Claim.GivesBack)
}

func (x *Exec) uniqueFields(f *Fields) {
	var u task.Unique
	if x.Unique != nil {
		u = *x.Unique
	}
	f.Text(36, &u.Key)
	Num(f, 37, &u.States)
	Num(f, 38, &u.OnConflict)
	if !f.Encoding() && u != (task.Unique{}) {
		x.Unique = new(u)
	}
}

// ReadExec reads the state of a task, or returns not_found if there is none.
func ReadExec(from store.Reader, ns string, id task.ID) (*Exec, error) {
	row, ok := from.Get(IDKey(ns, TableExec, id))
	if !ok {
		return nil, task.NotFound("task", id.String())
	}
	return Must(DecodeExec(row)), nil
}
