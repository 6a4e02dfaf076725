package schema

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Envelope is a task as its producer described it. It is written once; only an operator's edit of the payload rewrites it, and keeps the fingerprint.
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
	Parent         *task.Parent // the task or group that the task follows; nil: none
	MovedFrom      task.ID      // the task of another queue that was moved here as this one; zero: none
}

// fixedFields is roughly the size of a claimed task's id, token, times and numbers in an answer, in bytes.
const fixedFields = 256

// Weight returns roughly how many bytes the task takes in the answer to a claim.
func (e *Envelope) Weight() int {
	n := fixedFields + len(e.Queue) + len(e.Type) + len(e.Key) + len(e.Payload) + len(e.ContentType) + len(e.IdempotencyKey)
	for _, tag := range e.Tags {
		n += len(tag)
	}
	for name, value := range e.Headers {
		n += len(name) + len(value)
	}
	if e.Parent != nil {
		n += len(e.Parent.Result) + len(e.Parent.ContentType)
	}
	return n
}

// Encode returns the row.
func (e *Envelope) Encode() []byte { return e.AppendTo(nil) }

// AppendTo appends the row to b.
func (e *Envelope) AppendTo(b []byte) []byte {
	r := append(Encoder(b), RowVersion)
	r.Text(1, e.Queue)
	r.Text(2, e.Type)
	r.Text(3, e.Key)
	r.Bytes(4, e.Payload)
	r.Text(5, e.ContentType)
	r.Text(6, e.IdempotencyKey)
	r.Num(7, e.Fingerprint)
	if e.Retry != nil {
		r.Bytes(8, encodeRetry(*e.Retry))
	}
	r.Num(9, uint64(e.Timeout))
	for _, t := range e.Tags {
		r.Text(10, t)
	}
	for _, name := range SortedKeys(e.Headers) {
		h := protowire.AppendString(nil, name)
		r.Bytes(11, protowire.AppendString(h, e.Headers[name]))
	}
	if e.Parent != nil {
		r.Bytes(30, encodeParent(e.Parent))
	}
	r.ID(12, e.MovedFrom)
	r.Num(13, uint64(e.IdempotencyTTL))
	return r
}

// ReadEnvelope reads the envelope of a task that must exist.
func ReadEnvelope(from store.Reader, ns string, id task.ID) *Envelope {
	row, ok := from.Get(IDKey(ns, TableEnvelope, id))
	if !ok {
		Must(fmt.Errorf("task %s has no envelope", id))
	}
	e, err := DecodeEnvelope(ns, id, row)
	Must(err)
	return e
}

// DecodeEnvelope decodes the row of an envelope. The payload aliases the row.
func DecodeEnvelope(ns string, id task.ID, row []byte) (*Envelope, error) {
	e := &Envelope{ID: id, Namespace: ns}
	var bad error
	err := Decode(row, func(tag protowire.Number, v uint64) {
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

// DecodeFingerprint decodes only the fingerprint of the request that created the task from the row of its envelope.
func DecodeFingerprint(row []byte) (print uint64, err error) {
	err = Decode(row, func(tag protowire.Number, v uint64) {
		if tag == 7 {
			print = v
		}
	}, func(protowire.Number, []byte) {})
	return print, err
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
		return r, fmt.Errorf("retry policy of %d bytes: unknown format", len(b))
	}
	b = b[n+m:]
	r.Initial, r.Max = time.Duration(initial), time.Duration(most)
	r.Factor = math.Float64frombits(binary.LittleEndian.Uint64(b))
	r.Jitter = math.Float64frombits(binary.LittleEndian.Uint64(b[8:]))
	return r, nil
}

func encodeParent(p *task.Parent) []byte {
	var r Encoder
	r.ID(1, p.ID)
	r.ID(2, p.Group)
	r.Bytes(3, p.Result)
	r.Text(4, p.ContentType)
	r.Num(5, Flag(p.Omitted))
	return r
}

func decodeParent(b []byte) (*task.Parent, error) {
	p := &task.Parent{}
	err := DecodeFields(b, func(tag protowire.Number, v uint64) {
		if tag == 5 {
			p.Omitted = v != 0
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 1:
			copy(p.ID[:], b)
		case 2:
			copy(p.Group[:], b)
		case 3:
			p.Result = b
		case 4:
			p.ContentType = string(b)
		}
	})
	return p, err
}
