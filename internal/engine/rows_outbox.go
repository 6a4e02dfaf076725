package engine

import (
	"encoding/json"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

func (p *OutboxMessage) encode() []byte {
	var spec []byte
	if p.IsTask() {
		spec = task.EncodeSpec(&p.Spec)
	}
	r := schema.NewRow(len(spec) + len(p.From.Schedule) + 64)
	r.Bytes(1, spec)
	r.Num(2, uint64(p.SentAt))
	r.Text(3, p.From.Schedule)
	if p.From.Schedule != "" {
		r.Bytes(4, p.From.Plan[:])
	}
	r.Num(5, p.From.Tick)
	r.ID(6, p.From.Parent)
	r.Num(7, uint64(p.From.N)) // #nosec G115 -- a few
	if p.Notice != nil {
		r.Bytes(8, p.Notice.encode())
	}
	r.ID(9, p.Cancel)
	r.ID(10, p.From.Operation)
	if p.News != nil {
		b, err := json.Marshal(p.News)
		if err != nil {
			panic(err) // texts, numbers and times always have a form
		}
		r.Bytes(11, b)
	}
	return r
}

func decodeMessage(request task.ID, row []byte) (*OutboxMessage, error) {
	p := &OutboxMessage{Request: request}
	var bad error
	err := schema.Decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 2:
			p.SentAt = store.Time(v)
		case 5:
			p.From.Tick = v
		case 7:
			p.From.N = int(v % (task.MaxThen + 1))
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 1:
			p.Spec, bad = task.DecodeSpec(b)
		case 3:
			p.From.Schedule = string(b)
		case 4:
			copy(p.From.Plan[:], b)
		case 6:
			copy(p.From.Parent[:], b)
		case 8:
			n, err := decodeNotice(b)
			if p.Notice = n; err != nil {
				bad = err
			}
		case 9:
			copy(p.Cancel[:], b)
		case 10:
			copy(p.From.Operation[:], b)
		case 11:
			p.News = &task.News{}
			if err := json.Unmarshal(b, p.News); err != nil {
				bad = err
			}
		}
	})
	if err == nil {
		err = bad
	}
	return p, err
}
