package operation

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

func (o *Operation) encode() []byte { return schema.Encode(400, o, (*Operation).fields) }

func decodeOperation(id task.ID, row []byte) (*Operation, error) {
	o := &Operation{ID: id}
	return o, schema.Decode(row, o, (*Operation).fields)
}

func (o *Operation) fields(f *schema.Fields) {
	f.JSON(1, &o.Spec, true)
	schema.Num(f, 2, &o.State)
	schema.Num(f, 3, &o.CreatedAt)
	schema.Num(f, 4, &o.EndedAt)
	schema.Num(f, 5, &o.PausedAt)
	f.Text(6, &o.Why)
	f.JSON(7, &o.StoppedBy, !o.StoppedBy.IsZero())
	schema.Num(f, 8, &o.Stopping)
	o.Tally.field(f, 9)
	f.Flag(10, &o.Probed)
	f.JSON(11, &o.ResumedBy, !o.ResumedBy.IsZero())
	schema.Num(f, 12, &o.Last)
	if f.Encoding() {
		for _, v := range append([]Visit{o.Visit}, o.Postponed...) {
			f.Put(13, schema.Encode(32, &v, (*Visit).fields))
		}
	}
	current := true
	for b := range f.Each(13) {
		v := Visit{}
		if err := schema.Decode(b, &v, (*Visit).fields); err != nil {
			f.Fail(err)
		}
		if current {
			o.Visit, current = v, false
		} else {
			o.Postponed = append(o.Postponed, v)
		}
	}
}

func (v *Visit) fields(f *schema.Fields) {
	schema.Num(f, 1, &v.Shard)
	schema.Num(f, 2, &v.Step)
	f.Bytes(3, &v.Cursor)
	f.Flag(4, &v.Swept)
	f.Flag(5, &v.Open)
	schema.Num(f, 6, &v.Since)
}

// field is a field with the tally as a row of its own.
func (t *Tally) field(f *schema.Fields, tag uint64) {
	if f.Encoding() {
		f.Put(tag, t.encode())
	}
	for b := range f.Each(tag) {
		if err := t.decode(b); err != nil {
			f.Fail(err)
		}
	}
}

func (t *Tally) encode() []byte { return schema.Encode(32, t, (*Tally).fields) }

func (t *Tally) decode(row []byte) error {
	return schema.Decode(row, t, (*Tally).fields)
}

func (t *Tally) fields(f *schema.Fields) {
	schema.Num(f, 1, &t.Matched)
	schema.Num(f, 2, &t.Done)
	schema.Num(f, 3, &t.Failed)
	if f.Encoding() {
		for _, s := range t.Skipped {
			f.Put(4, protowire.AppendVarint(protowire.AppendString(nil, s.Reason), uint64(s.Count)))
		}
		for _, e := range t.Errors {
			f.Put(5, append(e.ID[:], e.Message...))
		}
	}
	for b := range f.Each(4) {
		reason, n := protowire.ConsumeString(b)
		count, m := protowire.ConsumeVarint(b[max(n, 0):])
		if n < 0 || m < 0 {
			f.Fail(protowire.ParseError(min(n, m)))
			return
		}
		t.Skipped = append(t.Skipped, Skipped{reason, int64(count)})
	}
	for b := range f.Each(5) {
		e := TaskError{}
		e.Message = string(b[copy(e.ID[:], b):])
		t.Errors = append(t.Errors, e)
	}
}

func (s *stepRow) encode() []byte { return schema.Encode(96, s, (*stepRow).fields) }

func decodeStep(row []byte) (*stepRow, error) {
	s := &stepRow{}
	return s, schema.Decode(row, s, (*stepRow).fields)
}

func (s *stepRow) fields(f *schema.Fields) {
	schema.Num(f, 1, &s.step)
	s.answer.Tally.field(f, 2)
	f.Bytes(3, &s.answer.Next)
	f.Flag(4, &s.answer.Swept)
	schema.Num(f, 5, &s.answer.Away)
	schema.Num(f, 6, &s.at)
	schema.Num(f, 7, &s.until)
	schema.Num(f, 8, &s.away)
	s.arrived.field(f, 9)
}
