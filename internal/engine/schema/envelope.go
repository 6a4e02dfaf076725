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

// Envelope is a task as its producer described it. It is written once; only an operator's edit of the payload rewrites
// it, and keeps the fingerprint.
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
	f := Encoding(b)
	e.fields(&f)
	return f.Row()
}

// ReadEnvelope reads the envelope of a task that must exist.
func ReadEnvelope(from store.Reader, ns string, id task.ID) *Envelope {
	row, ok := from.Get(IDKey(ns, TableEnvelope, id))
	if !ok {
		Damaged(fmt.Errorf("task %s has no envelope", id))
	}
	return Must(DecodeEnvelope(ns, id, row))
}

// DecodeEnvelope decodes the row of an envelope. The payload aliases the row.
func DecodeEnvelope(ns string, id task.ID, row []byte) (*Envelope, error) {
	e := &Envelope{ID: id, Namespace: ns}
	f := Decoding(row)
	for f.Next() {
		e.fields(&f)
	}
	return e, f.Err()
}

func (e *Envelope) fields(f *Fields) {
	f.Text(1, &e.Queue)
	f.Text(2, &e.Type)
	f.Text(3, &e.Key)
	f.Bytes(4, &e.Payload)
	f.Text(5, &e.ContentType)
	f.Text(6, &e.IdempotencyKey)
	Num(f, fingerprintTag, &e.Fingerprint)
	e.retryField(f, 8)
	Num(f, 9, &e.Timeout)
	f.Texts(10, &e.Tags)
	e.headerFields(f, 11)
	Part(f, 30, &e.Parent, parentFields)
	f.ID(12, &e.MovedFrom)
	Num(f, 13, &e.IdempotencyTTL)
}

const fingerprintTag = 7

// DecodeFingerprint decodes only the fingerprint of the request that created the task from the row of its envelope.
func DecodeFingerprint(row []byte) (print uint64, err error) {
	f := Decoding(row)
	for f.Next() {
		Num(&f, fingerprintTag, &print)
	}
	return print, f.Err()
}

func (e *Envelope) headerFields(f *Fields, tag uint64) {
	if f.Encoding() {
		for _, name := range SortedKeys(e.Headers) {
			f.Put(tag, protowire.AppendString(protowire.AppendString(nil, name), e.Headers[name]))
		}
	}
	for b := range f.Each(tag) {
		name, n := protowire.ConsumeString(b)
		value, m := protowire.ConsumeString(b[max(n, 0):])
		if n < 0 || m < 0 {
			f.Fail(fmt.Errorf("envelope %s: a header is cut short", e.ID))
			return
		}
		if e.Headers == nil {
			e.Headers = map[string]string{}
		}
		e.Headers[name] = value
	}
}

func (e *Envelope) retryField(f *Fields, tag uint64) {
	if f.Encoding() && e.Retry != nil {
		f.Put(tag, encodeRetry(*e.Retry))
	}
	for b := range f.Each(tag) {
		retry, err := decodeRetry(b)
		if e.Retry = &retry; err != nil {
			f.Fail(err)
		}
	}
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

func parentFields(p *task.Parent, f *Fields) {
	f.ID(1, &p.ID)
	f.ID(2, &p.Group)
	f.Bytes(3, &p.Result)
	f.Text(4, &p.ContentType)
	f.Flag(5, &p.Omitted)
}
