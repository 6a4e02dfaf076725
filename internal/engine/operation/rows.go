package operation

import (
	"encoding/json"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

func (o *Operation) encode() []byte {
	spec := o.Spec.encode()
	r := schema.NewRow(len(spec) + 160)
	r.Bytes(1, spec)
	r.Num(2, uint64(o.State))
	r.Num(3, uint64(o.CreatedAt))
	r.Num(4, uint64(o.EndedAt))
	r.Num(5, uint64(o.PausedAt))
	r.Text(6, o.Why)
	r.Author(7, o.StoppedBy)
	r.Num(8, uint64(o.Stopping))
	r.Bytes(9, o.Tally.encode())
	r.Num(10, o.Step)
	r.Num(11, uint64(o.Shard))
	r.Bytes(12, o.Cursor)
	r.Num(13, schema.Flag(o.Swept))
	r.Num(14, schema.Flag(o.Probed))
	r.Author(15, o.ResumedBy)
	return r
}

func decodeOperation(id task.ID, row []byte) (*Operation, error) {
	o := &Operation{ID: id}
	var bad error
	times := []*store.Time{&o.CreatedAt, &o.EndedAt, &o.PausedAt}
	err := schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 2:
			o.State = State(v)
		case 3, 4, 5:
			*times[tag-3] = store.Time(v)
		case 8:
			o.Stopping = State(v)
		case 10:
			o.Step = v
		case 11:
			o.Shard = uint32(v & math.MaxUint32)
		case 13:
			o.Swept = v != 0
		case 14:
			o.Probed = v != 0
		}
	}, func(tag protowire.Number, b []byte) {
		var err error
		switch tag {
		case 1:
			err = json.Unmarshal(b, &o.Spec)
		case 6:
			o.Why = string(b)
		case 7:
			err = json.Unmarshal(b, &o.StoppedBy)
		case 9:
			err = o.Tally.decode(b)
		case 12:
			o.Cursor = b
		case 15:
			err = json.Unmarshal(b, &o.ResumedBy)
		}
		if err != nil {
			bad = err
		}
	})
	if err == nil {
		err = bad
	}
	return o, err
}

func (t *Tally) encode() []byte {
	r := schema.NewRow(32)
	r.Num(1, uint64(t.Matched))
	r.Num(2, uint64(t.Done))
	r.Num(3, uint64(t.Failed))
	for _, s := range t.Skipped {
		r.Bytes(4, protowire.AppendVarint(protowire.AppendString(nil, s.Reason), uint64(s.Count)))
	}
	for _, e := range t.Errors {
		r.Bytes(5, append(e.ID[:], e.Message...))
	}
	return r
}

func (t *Tally) decode(row []byte) error {
	var bad error
	err := schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			t.Matched = int64(v)
		case 2:
			t.Done = int64(v)
		case 3:
			t.Failed = int64(v)
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 4:
			reason, n := protowire.ConsumeString(b)
			count, m := protowire.ConsumeVarint(b[max(n, 0):])
			if n < 0 || m < 0 {
				bad = protowire.ParseError(min(n, m))
				return
			}
			t.Skipped = append(t.Skipped, Skipped{reason, int64(count)})
		case 5:
			e := TaskError{}
			e.Message = string(b[copy(e.ID[:], b):])
			t.Errors = append(t.Errors, e)
		}
	})
	if err == nil {
		err = bad
	}
	return err
}

func (s *stepRow) encode() []byte {
	r := schema.NewRow(96)
	r.Num(1, s.step)
	r.Bytes(2, s.answer.Tally.encode())
	r.Bytes(3, s.answer.Next)
	r.Num(4, schema.Flag(s.answer.Swept))
	r.Num(5, uint64(s.answer.Away))
	r.Num(6, uint64(s.at))
	r.Num(7, uint64(s.until))
	r.Num(8, uint64(s.away))
	r.Bytes(9, s.arrived.encode())
	return r
}

func decodeStep(row []byte) (*stepRow, error) {
	s := &stepRow{}
	var bad error
	err := schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			s.step = v
		case 4:
			s.answer.Swept = v != 0
		case 5:
			s.answer.Away = int64(v)
		case 6:
			s.at = store.Time(v)
		case 7:
			s.until = store.Time(v)
		case 8:
			s.away = int64(v)
		}
	}, func(tag protowire.Number, b []byte) {
		var err error
		switch tag {
		case 2:
			err = s.answer.Tally.decode(b)
		case 3:
			s.answer.Next = b
		case 9:
			err = s.arrived.decode(b)
		}
		if err != nil {
			bad = err
		}
	})
	if err == nil {
		err = bad
	}
	return s, err
}
