package schema

import (
	"encoding/binary"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

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
	r := NewRow(96 + len(a.Failure.Message) + len(a.Failure.Stack))
	r.Num(1, uint64(a.Number))
	r.Num(2, a.Nonce)
	r.Text(3, a.Worker)
	r.Num(4, uint64(a.StartedAt))
	r.Num(5, uint64(a.EndedAt))
	r.Num(6, uint64(a.Waited))
	r.Num(7, uint64(a.Outcome))
	r.Text(8, a.Failure.Message)
	r.Text(9, a.Failure.Type)
	r.Text(10, a.Failure.Stack)
	r.Num(11, uint64(a.NextRunAt))
	r.Num(12, uint64(a.Then))
	r.Text(13, a.Reason)
	return r
}

// DecodeAttempt decodes the row of the attempt with this fence.
func DecodeAttempt(fence uint64, row []byte) (*Attempt, error) {
	a := &Attempt{Fence: fence}
	err := Decode(row, func(tag protowire.Number, v uint64) {
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

// Result is what a handler returned.
type Result struct {
	Data        []byte
	ContentType string // "" or "application/json": a JSON value
}

// Encode returns the row.
func (v Result) Encode() []byte {
	r := NewRow(len(v.Data) + len(v.ContentType) + 16)
	r.Bytes(1, v.Data)
	r.Text(2, v.ContentType)
	return r
}

// DecodeResult decodes the row of a result. The data aliases the row.
func DecodeResult(row []byte) (v Result, err error) {
	err = Decode(row, NoNumbers, func(tag protowire.Number, b []byte) {
		switch tag {
		case 1:
			v.Data = b
		case 2:
			v.ContentType = string(b)
		}
	})
	return v, err
}

// ReadAttempts reads the attempts of a task that ended without success, oldest first.
func ReadAttempts(from store.Reader, ns string, id task.ID) (log []*Attempt) {
	prefix := IDKey(ns, TableAttempt, id)
	from.Scan(prefix, After(prefix), func(k, v []byte) bool {
		a, err := DecodeAttempt(binary.BigEndian.Uint64(k[len(k)-8:]), v)
		Must(err)
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
