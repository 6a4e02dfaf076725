package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// RowVersion is the first byte of a row. Numbered fields in protobuf's wire format follow: a field may be added, and an
// older reader skips it. Zero values are not written.
const RowVersion = 1

// Fields encodes or decodes a row. A type describes its row once, in a method that passes the number and the address of
// each field to one of the functions below:
//
//	func (t *Thing) fields(f *schema.Fields) {
//		schema.Num(f, 1, &t.Count)
//		f.Text(2, &t.Name)
//	}
//
// While a row is encoded, each of them appends its field. While one is decoded, each sets its field if that is the next
// one in the row. The method is called once for a row whose fields are in the order of the calls, and again for what an
// unknown field precedes, or fields in another order.
type Fields struct {
	row      []byte // what is encoded so far, or the row to decode
	encoding bool

	// The next field to decode.
	num   uint64 // its tag if its value is a number, or 0
	bytes uint64 // its tag if its value is bytes, or 0
	value uint64 // the number, or how many bytes there are
	end   int    // where it ends in row
	tried int    // end at the last Next
	err   error
}

// Encode returns the row of v. It makes space for that many bytes.
func Encode[T any](room int, v *T, fields func(*T, *Fields)) []byte {
	f := Encoding(make([]byte, 0, room))
	fields(v, &f)
	return f.row
}

// Decode sets v to what the row holds. Decoded bytes alias the row.
func Decode[T any](row []byte, v *T, fields func(*T, *Fields)) error {
	f := Decoding(row)
	for f.Next() {
		fields(v, &f)
	}
	return f.err
}

// Encoding returns the fields of a new row, which is appended to b.
func Encoding(b []byte) Fields { return Fields{row: append(b, RowVersion), encoding: true} }

// Row returns the encoded row.
func (f *Fields) Row() []byte { return f.row }

// Decoding returns the fields of a row. It is for rows that are read for each task: unlike Decode it does not allocate.
func Decoding(row []byte) Fields {
	if len(row) == 0 || row[0] != RowVersion {
		return Fields{err: fmt.Errorf("row of %d bytes: unknown format", len(row))}
	}
	return decodingPart(row[1:])
}

// decodingPart is Decoding for a part of a row, which has no version.
func decodingPart(b []byte) Fields {
	f := Fields{row: b, tried: -1}
	f.read()
	return f
}

// Next reports whether the row has fields to decode. It skips one that the last calls did not decode.
func (f *Fields) Next() bool {
	if f.tried == f.end {
		f.read()
	}
	f.tried = f.end
	return f.num != f.bytes
}

// Err returns why the row can't be decoded, or nil. It is complete when Next has returned false.
func (f *Fields) Err() error { return f.err }

// Fail ends the decoding with an error.
func (f *Fields) Fail(err error) {
	f.row, f.num, f.bytes, f.err = nil, 0, 0, err
}

// read reads the number and the value of the next field.
func (f *Fields) read() {
	f.num, f.bytes = 0, 0
	for f.end < len(f.row) {
		at := f.row[f.end:]
		tag, kind, n := protowire.ConsumeTag(at)
		if n < 0 {
			f.Fail(protowire.ParseError(n))
			return
		}
		var size int
		switch kind {
		case protowire.VarintType:
			f.num = uint64(tag)
			f.value, size = protowire.ConsumeVarint(at[n:])
		case protowire.BytesType:
			var b []byte
			f.bytes = uint64(tag)
			b, size = protowire.ConsumeBytes(at[n:])
			f.value = uint64(len(b))
		default:
			size = protowire.ConsumeFieldValue(tag, kind, at[n:])
		}
		if size < 0 {
			f.Fail(protowire.ParseError(size))
			return
		}
		if f.end += n + size; f.num != f.bytes {
			return
		}
	}
}

// take returns the next field's bytes, and goes on to the one after it.
func (f *Fields) take() []byte {
	b := f.row[f.end-int(f.value) : f.end : f.end]
	f.read()
	return b
}

// number is the type of a field that is stored as a number.
type number interface {
	~int | ~int64 | ~uint64 | ~uint32 | ~uint16 | ~uint8
}

// Num is a field that is a number: a count, time, duration or one of a few values. It is inlined, so that an absent field costs no call.
func Num[T number](f *Fields, tag uint64, p *T) {
	if f.num == tag || f.encoding && *p != 0 {
		num(f, tag, p)
	}
}

func num[T number](f *Fields, tag uint64, p *T) {
	if f.encoding {
		f.putNum(tag, uint64(*p))
	} else {
		*p = T(f.takeNum())
	}
}

func (f *Fields) putNum(tag, v uint64) {
	f.row = protowire.AppendVarint(protowire.AppendTag(f.row, protowire.Number(tag), protowire.VarintType), v)
}

func (f *Fields) takeNum() uint64 {
	v := f.value
	f.read()
	return v
}

// Flag is a field that is true or false.
func (f *Fields) Flag(tag uint64, p *bool) {
	if f.encoding && *p {
		f.putNum(tag, 1)
	} else if f.num == tag {
		*p = f.takeNum() != 0
	}
}

// Float is a field that is a floating-point number.
func (f *Fields) Float(tag uint64, p *float64) {
	bits := math.Float64bits(*p)
	Num(f, tag, &bits)
	*p = math.Float64frombits(bits)
}

// Optional is a field that is a duration, 0 included, or nil.
func (f *Fields) Optional(tag uint64, p **time.Duration) {
	if f.encoding && *p != nil {
		f.putNum(tag, uint64(**p)+1)
	} else if f.num == tag {
		*p = new(time.Duration(f.takeNum() - 1))
	}
}

// Text is a field that is a string.
func (f *Fields) Text(tag uint64, p *string) {
	if f.bytes == tag || f.encoding && *p != "" {
		f.text(tag, p)
	}
}

func (f *Fields) text(tag uint64, p *string) {
	if f.encoding {
		f.row = protowire.AppendString(protowire.AppendTag(f.row, protowire.Number(tag), protowire.BytesType), *p)
	} else {
		*p = string(f.take())
	}
}

// Texts is a field for each string of a list.
func (f *Fields) Texts(tag uint64, p *[]string) {
	if f.encoding {
		for _, s := range *p {
			f.Text(tag, &s)
		}
	}
	for b := range f.Each(tag) {
		*p = append(*p, string(b))
	}
}

// Bytes is a field that is bytes.
func (f *Fields) Bytes(tag uint64, p *[]byte) {
	if f.encoding && len(*p) != 0 {
		f.Put(tag, *p)
	} else if f.bytes == tag {
		*p = f.take()
	}
}

// ID is a field that is an id.
func (f *Fields) ID(tag uint64, p *task.ID) {
	if f.bytes == tag || f.encoding && *p != (task.ID{}) {
		f.id(tag, p)
	}
}

func (f *Fields) id(tag uint64, p *task.ID) {
	if f.encoding {
		f.Put(tag, p[:])
	} else {
		copy(p[:], f.take())
	}
}

// JSON is a field that is stored as JSON, if it is present.
func (f *Fields) JSON(tag uint64, p any, present bool) {
	if f.encoding && present {
		f.Put(tag, marshal(p))
	}
	for b := range f.Each(tag) {
		f.unmarshal(b, p)
	}
}

// JSONs is a field for each element of a list, which are stored as JSON.
func JSONs[T any](f *Fields, tag uint64, p *[]T) {
	if f.encoding {
		for i := range *p {
			f.Put(tag, marshal(&(*p)[i]))
		}
	}
	for b := range f.Each(tag) {
		*p = append(*p, *new(T))
		f.unmarshal(b, &(*p)[len(*p)-1])
	}
}

func marshal(p any) []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings, times and finite numbers can always be encoded
	}
	return b
}

func (f *Fields) unmarshal(b []byte, p any) {
	if err := json.Unmarshal(b, p); err != nil {
		f.Fail(err)
	}
}

// Part is a field with fields of its own, or nil.
func Part[T any](f *Fields, tag uint64, p **T, fields func(*T, *Fields)) {
	if f.encoding && *p != nil {
		putPart(f, tag, *p, fields)
	}
	for b := range f.Each(tag) {
		*p = new(T)
		f.decodePart(b, func(part *Fields) { fields(*p, part) })
	}
}

// Parts is a field with fields of its own for each element of a list.
func Parts[T any](f *Fields, tag uint64, p *[]T, fields func(*T, *Fields)) {
	if f.encoding {
		for i := range *p {
			putPart(f, tag, &(*p)[i], fields)
		}
	}
	for b := range f.Each(tag) {
		*p = append(*p, *new(T))
		f.decodePart(b, func(part *Fields) { fields(&(*p)[len(*p)-1], part) })
	}
}

func putPart[T any](f *Fields, tag uint64, v *T, fields func(*T, *Fields)) {
	part := Fields{encoding: true}
	if fields(v, &part); len(part.row) > 0 {
		f.Put(tag, part.row)
	}
}

func (f *Fields) decodePart(b []byte, fields func(*Fields)) {
	part := decodingPart(b)
	for part.Next() {
		fields(&part)
	}
	if part.err != nil {
		f.Fail(part.err)
	}
}

// Encoding reports whether a row is encoded: whether Put is to be called for a field that has a form of its own.
func (f *Fields) Encoding() bool { return f.encoding }

// Put encodes a field with a form of its own. Each decodes it.
func (f *Fields) Put(tag uint64, b []byte) {
	f.row = protowire.AppendBytes(protowire.AppendTag(f.row, protowire.Number(tag), protowire.BytesType), b)
}

// Each decodes fields with a form of their own: those with this number that come next. There are none while a row is encoded.
func (f *Fields) Each(tag uint64) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for f.bytes == tag {
			if !yield(f.take()) {
				return
			}
		}
	}
}

// Read reads and decodes a row; false: there is none.
func Read[T any](from store.Reader, key []byte, decode func(row []byte) (T, error)) (v T, ok bool) {
	row, ok := from.Get(key)
	if ok {
		var err error
		if v, err = decode(row); err != nil {
			Damaged(fmt.Errorf("row %q: %w", key, err))
		}
	}
	return v, ok
}

// Must returns v, which a row was decoded to. If it can't be decoded, the call that needs it fails, and no other.
func Must[T any](v T, err error) T {
	if err != nil {
		Damaged(err)
	}
	return v
}

// DamageError is the panic of code that needs a row which can't be understood: it is damaged, or of another release.
type DamageError struct {
	Key []byte // of the row, if the leader needs it for more than one task; nil: it is not known, or only some task needs it
	Err error
}

func (e *DamageError) Error() string { return "damaged state: " + e.Err.Error() }

// Damaged panics with a DamageError. The shard then fails the call whose function needs the row, and drops all that it wrote.
func Damaged(err error) { panic(&DamageError{Err: err}) }

// MustRow is Must for a row that the leader needs for more than one task: of a queue, or of a namespace.
func MustRow[T any](key []byte, v T, err error) T {
	if err != nil {
		DamagedRow(key, err)
	}
	return v
}

// DamagedRow is Damaged for such a row.
func DamagedRow(key []byte, err error) {
	panic(&DamageError{bytes.Clone(key), fmt.Errorf("row %q: %w", key, err)})
}

// Catch runs fn, and returns the DamageError that has ended it; nil: none has.
func Catch(fn func()) (damage *DamageError) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		var ok bool
		if damage, ok = p.(*DamageError); !ok {
			panic(p)
		}
	}()
	fn()
	return nil
}

// Blame runs fn. What it can't understand is blamed on the row with this key, which leads to it.
func Blame(key []byte, fn func()) {
	d := Catch(fn)
	switch {
	case d == nil:
	case d.Key == nil:
		panic(&DamageError{bytes.Clone(key), d.Err})
	default:
		panic(d)
	}
}

// SortedKeys returns the keys of a map in order.
func SortedKeys[V any](m map[string]V) []string {
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
