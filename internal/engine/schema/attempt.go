package schema

import (
	"encoding/binary"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

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

// Failure is a handler's report of a failed run.
type Failure struct{ Message, Type, Stack string }

// Encode returns the row.
func (a *Attempt) Encode() []byte {
	return Encode(96+len(a.Failure.Message)+len(a.Failure.Stack), a, (*Attempt).fields)
}

// DecodeAttempt decodes the row of the attempt with this fence.
func DecodeAttempt(fence uint64, row []byte) (*Attempt, error) {
	a := &Attempt{Fence: fence}
	return a, Decode(row, a, (*Attempt).fields)
}

func (a *Attempt) fields(f *Fields) {
	Num(f, 1, &a.Number)
	Num(f, 2, &a.Nonce)
	f.Text(3, &a.Worker)
	Num(f, 4, &a.StartedAt)
	Num(f, 5, &a.EndedAt)
	Num(f, 6, &a.Waited)
	Num(f, 7, &a.Outcome)
	f.Text(8, &a.Failure.Message)
	f.Text(9, &a.Failure.Type)
	f.Text(10, &a.Failure.Stack)
	Num(f, 11, &a.NextRunAt)
	Num(f, 12, &a.Then)
	f.Text(13, &a.Reason)
}

// Result is what a handler returned.
type Result struct {
	Data        []byte
	ContentType string // "" or "application/json": a JSON value
}

// Encode returns the row.
func (v Result) Encode() []byte {
	return Encode(len(v.Data)+len(v.ContentType)+16, &v, (*Result).fields)
}

// DecodeResult decodes the row of a result. The data aliases the row.
func DecodeResult(row []byte) (v Result, err error) {
	err = Decode(row, &v, (*Result).fields)
	return v, err
}

func (v *Result) fields(f *Fields) {
	f.Bytes(1, &v.Data)
	f.Text(2, &v.ContentType)
}

// ReadAttempts reads the attempts of a task that ended without success, oldest first.
func ReadAttempts(from store.Reader, ns string, id task.ID) (log []*Attempt) {
	prefix := IDKey(ns, TableAttempt, id)
	from.Scan(prefix, After(prefix), func(k, v []byte) bool {
		a := Must(DecodeAttempt(binary.BigEndian.Uint64(k[len(k)-8:]), v))
		log = append(log, a)
		return true
	})
	return log
}

// LastFailure returns the failure of the last attempt that has one.
func LastFailure(log []*Attempt) Failure {
	for i := len(log) - 1; i >= 0; i-- {
		if f := log[i].Failure; f != (Failure{}) {
			return f
		}
	}
	return Failure{}
}
