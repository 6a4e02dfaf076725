package schedule

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

func (p *plan) encode() []byte { return schema.Encode(256, p, (*plan).fields) }

func decodePlan(row []byte) (*plan, error) {
	p := &plan{}
	return p, schema.Decode(row, p, (*plan).fields)
}

func (p *plan) fields(f *schema.Fields) {
	f.ID(1, &p.id)
	schema.Num(f, 2, &p.version)
	schema.Num(f, 3, &p.createdAt)
	schema.Num(f, 4, &p.updatedAt)
	if f.Encoding() {
		f.Put(5, p.Schedule.Encode())
	}
	for b := range f.Each(5) {
		var err error
		if p.Schedule, err = task.DecodeSchedule(b); err != nil {
			f.Fail(err)
		}
	}
}

func (c *progress) encode() []byte { return schema.Encode(80+len(c.reason), c, (*progress).fields) }

func decodeProgress(row []byte) (*progress, error) {
	c := &progress{}
	return c, schema.Decode(row, c, (*progress).fields)
}

func (c *progress) fields(f *schema.Fields) {
	f.ID(1, &c.id)
	schema.Num(f, 2, &c.began)
	schema.Num(f, 3, &c.planned)
	schema.Num(f, 4, &c.fires)
	schema.Num(f, 5, &c.catchUpTo)
	schema.Num(f, 6, &c.paused)
	schema.Num(f, 7, &c.seq)
	f.Text(8, &c.reason)
	f.Text(9, &c.by)
	schema.Num(f, 10, &c.onTime)
}

func encodeTick(t *schema.Tick) []byte { return schema.Encode(64, t, tickFields) }

func decodeTick(seq uint64, row []byte) (*schema.Tick, error) {
	t := &schema.Tick{Seq: seq}
	return t, schema.Decode(row, t, tickFields)
}

func tickFields(t *schema.Tick, f *schema.Fields) {
	schema.Num(f, 1, &t.Planned)
	schema.Num(f, 2, &t.Until)
	schema.Num(f, 3, &t.Count)
	schema.Num(f, 4, &t.At)
	schema.Num(f, 5, &t.Outcome)
	f.Text(6, &t.Reason)
	f.ID(7, &t.Task)
	f.ID(8, &t.Request)
}

// deletion records that a schedule was deleted, so that an earlier call that arrives late can't recreate it.
type deletion struct {
	version uint64 // of the deletion
	existed bool   // there was a schedule to delete
	until   store.Time
}

func (g *deletion) encode() []byte { return schema.Encode(24, g, (*deletion).fields) }

func decodeDeletion(row []byte) (g deletion, err error) {
	err = schema.Decode(row, &g, (*deletion).fields)
	return g, err
}

func (g *deletion) fields(f *schema.Fields) {
	schema.Num(f, 1, &g.version)
	schema.Num(f, 2, &g.until)
	f.Flag(3, &g.existed)
}
