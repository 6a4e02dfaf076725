package workflow

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

func (c *Counts) fields() []*int64 {
	return []*int64{&c.Members, &c.Pending, &c.Succeeded, &c.Dead, &c.Poisoned, &c.Discarded, &c.Cancelled, &c.Refused}
}

func (g *taskGroup) encode() []byte {
	r := schema.NewRow(len(g.name) + 96)
	r.Text(1, g.name)
	r.Num(2, uint64(g.state))
	r.Num(3, schema.Flag(g.open))
	r.Num(4, g.added)
	r.Num(5, uint64(g.results)) // #nosec G115 -- a sum of lengths
	r.Num(6, uint64(g.waits))
	if g.retention != nil {
		r.Num(7, uint64(*g.retention)+1) // #nosec G115 -- checked
	}
	for i, at := range []store.Time{g.createdAt, g.endedAt, g.keptUntil, g.deadline} {
		r.Num(protowire.Number(8+i), uint64(at)) // #nosec G115 -- after 1970
	}
	r.Num(12, schema.Flag(g.cancelling))
	r.ID(13, g.cancelCursor)
	r.Num(14, schema.Flag(g.expired))
	for _, pattern := range g.within {
		r.Text(15, pattern)
	}
	for i, n := range g.counts.fields() {
		r.Num(protowire.Number(20+i), uint64(*n)) // #nosec G115 -- not negative
	}
	return r
}

func decodeGroup(id task.ID, row []byte) (*taskGroup, error) {
	g := &taskGroup{id: id}
	times := []*store.Time{&g.createdAt, &g.endedAt, &g.keptUntil, &g.deadline}
	counts := g.counts.fields()
	err := schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch {
		case tag == 2:
			g.state = State(v) // #nosec G115 -- a few
		case tag == 3:
			g.open = v != 0
		case tag == 4:
			g.added = v
		case tag == 5:
			g.results = int64(v) // #nosec G115 -- as written
		case tag == 6:
			g.waits = uint8(v) // #nosec G115 -- as written
		case tag == 7:
			d := time.Duration(v - 1) // #nosec G115 -- as written
			g.retention = &d
		case tag >= 8 && tag < 12:
			*times[tag-8] = store.Time(v) // #nosec G115 -- as written
		case tag == 12:
			g.cancelling = v != 0
		case tag == 14:
			g.expired = v != 0
		case tag >= 20 && int(tag) < 20+len(counts):
			*counts[tag-20] = int64(v) // #nosec G115 -- as written
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 1:
			g.name = string(b)
		case 13:
			copy(g.cancelCursor[:], b)
		case 15:
			g.within = append(g.within, string(b))
		}
	})
	return g, err
}

func (m *member) encode() []byte {
	r := schema.NewRow(48 + len(m.typ) + len(m.queue) + len(m.result.Data))
	r.Num(1, m.revision)
	r.Num(2, uint64(m.state))
	r.ID(3, m.id)
	r.Text(4, m.typ)
	r.Text(5, m.queue)
	r.Text(6, m.refused)
	r.Bytes(7, m.result.Data)
	r.Text(8, m.result.ContentType)
	r.Num(9, schema.Flag(m.omitted))
	return r
}

func decodeMember(row []byte) (*member, error) {
	m := &member{}
	err := schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			m.revision = v
		case 2:
			m.state = task.State(v) // #nosec G115 -- as written
		case 9:
			m.omitted = v != 0
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 3:
			copy(m.id[:], b)
		case 4:
			m.typ = string(b)
		case 5:
			m.queue = string(b)
		case 6:
			m.refused = string(b)
		case 7:
			m.result.Data = b
		case 8:
			m.result.ContentType = string(b)
		}
	})
	return m, err
}
