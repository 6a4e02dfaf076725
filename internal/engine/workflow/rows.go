package workflow

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

func (c *Counts) fields() []*int64 {
	return []*int64{&c.Members, &c.Pending, &c.Succeeded, &c.Dead, &c.Poisoned, &c.Discarded, &c.Cancelled, &c.Refused}
}

func (g *taskGroup) encode() []byte { return schema.Encode(len(g.name)+96, g, (*taskGroup).fields) }

func decodeGroup(id task.ID, row []byte) (*taskGroup, error) {
	g := &taskGroup{id: id}
	return g, schema.Decode(row, g, (*taskGroup).fields)
}

func (g *taskGroup) fields(f *schema.Fields) {
	f.Text(1, &g.name)
	schema.Num(f, 2, &g.state)
	f.Flag(3, &g.open)
	schema.Num(f, 4, &g.added)
	schema.Num(f, 5, &g.results)
	schema.Num(f, 6, &g.waits)
	f.Optional(7, &g.retention)
	schema.Num(f, 8, &g.createdAt)
	schema.Num(f, 9, &g.endedAt)
	schema.Num(f, 10, &g.keptUntil)
	schema.Num(f, 11, &g.deadline)
	f.Flag(12, &g.cancelling)
	f.ID(13, &g.cancelCursor)
	f.Flag(14, &g.expired)
	f.Texts(15, &g.within)
	schema.Num(f, 16, &g.digest)
	for i, n := range g.counts.fields() {
		schema.Num(f, uint64(20+i), n)
	}
}

func (m *member) encode() []byte {
	return schema.Encode(48+len(m.typ)+len(m.queue)+len(m.result.Data), m, (*member).fields)
}

func decodeMember(row []byte) (*member, error) {
	m := &member{}
	return m, schema.Decode(row, m, (*member).fields)
}

func (m *member) fields(f *schema.Fields) {
	schema.Num(f, 1, &m.revision)
	schema.Num(f, 2, &m.state)
	f.ID(3, &m.id)
	f.Text(4, &m.typ)
	f.Text(5, &m.queue)
	f.Text(6, &m.refused)
	f.Bytes(7, &m.result.Data)
	f.Text(8, &m.result.ContentType)
	f.Flag(9, &m.omitted)
	schema.Num(f, 10, &m.digest)
}
