package schedule

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

func (p *plan) encode() []byte {
	encoded := p.Schedule.Encode()
	r := schema.NewRow(len(encoded) + 64)
	r.Bytes(1, p.id[:])
	r.Num(2, p.version)
	r.Num(3, uint64(p.createdAt))
	r.Num(4, uint64(p.updatedAt))
	r.Bytes(5, encoded)
	return r
}

func decodePlan(row []byte) (*plan, error) {
	p := &plan{}
	var bad error
	err := schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 2:
			p.version = v
		case 3:
			p.createdAt = store.Time(v)
		case 4:
			p.updatedAt = store.Time(v)
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 1:
			copy(p.id[:], b)
		case 5:
			p.Schedule, bad = task.DecodeSchedule(b)
		}
	})
	if err == nil {
		err = bad
	}
	return p, err
}

func (c *progress) encode() []byte {
	r := schema.NewRow(80 + len(c.reason))
	r.Bytes(1, c.id[:])
	for i, at := range []store.Time{c.began, c.planned, c.fires, c.catchUpTo, c.paused} {
		r.Num(protowire.Number(i+2), uint64(at))
	}
	r.Num(7, c.seq)
	r.Text(8, c.reason)
	r.Text(9, c.by)
	return r
}

func decodeProgress(row []byte) (*progress, error) {
	c := &progress{}
	times := []*store.Time{&c.began, &c.planned, &c.fires, &c.catchUpTo, &c.paused}
	err := schema.Decode(row, func(tag protowire.Number, v uint64) {
		if tag >= 2 && tag <= 6 {
			*times[tag-2] = store.Time(v)
		} else if tag == 7 {
			c.seq = v
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 1:
			copy(c.id[:], b)
		case 8:
			c.reason = string(b)
		case 9:
			c.by = string(b)
		}
	})
	return c, err
}

func encodeTick(t *schema.Tick) []byte {
	r := schema.NewRow(64)
	r.Num(1, uint64(t.Planned))
	r.Num(2, uint64(t.Until))
	r.Num(3, uint64(t.Count))
	r.Num(4, uint64(t.At))
	r.Num(5, uint64(t.Outcome))
	r.Text(6, t.Reason)
	r.ID(7, t.Task)
	r.ID(8, t.Request)
	return r
}

func decodeTick(seq uint64, row []byte) (*schema.Tick, error) {
	t := &schema.Tick{Seq: seq}
	err := schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			t.Planned = store.Time(v)
		case 2:
			t.Until = store.Time(v)
		case 3:
			t.Count = int(v)
		case 4:
			t.At = store.Time(v)
		case 5:
			t.Outcome = schema.TickOutcome(v)
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 6:
			t.Reason = string(b)
		case 7:
			copy(t.Task[:], b)
		case 8:
			copy(t.Request[:], b)
		}
	})
	return t, err
}

// deletion records that a schedule was deleted, so that an earlier call that arrives late can't recreate it.
type deletion struct {
	version uint64 // of the deletion
	existed bool   // there was a schedule to delete
	until   store.Time
}

func (g *deletion) encode() []byte {
	r := schema.NewRow(24)
	r.Num(1, g.version)
	r.Num(2, uint64(g.until))
	r.Num(3, schema.Flag(g.existed))
	return r
}

func decodeDeletion(row []byte) (g deletion, err error) {
	err = schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			g.version = v
		case 2:
			g.until = store.Time(v)
		case 3:
			g.existed = v != 0
		}
	}, schema.NoBytes)
	return g, err
}
