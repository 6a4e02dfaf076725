package outbox

import (
	"encoding/json"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Encode returns the row.
func (p *Message) Encode() []byte {
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
	if p.Notification != nil {
		b, err := json.Marshal(p.Notification)
		if err != nil {
			panic(err) // strings, numbers and times can always be encoded
		}
		r.Bytes(11, b)
	}
	return r
}

// Decode decodes the row of a message.
func Decode(request task.ID, row []byte) (*Message, error) {
	p := &Message{Request: request}
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
			p.Notification = &task.Notification{}
			if err := json.Unmarshal(b, p.Notification); err != nil {
				bad = err
			}
		}
	})
	if err == nil {
		err = bad
	}
	return p, err
}

func (n *Notice) encode() []byte {
	var r schema.Encoder
	r.Bytes(1, n.Group[:])
	r.Bytes(2, n.Ref[:])
	r.Num(3, n.Revision)
	r.ID(4, n.ID)
	r.Num(5, uint64(n.State))
	r.Text(6, n.Type)
	r.Text(7, n.Queue)
	r.Text(8, n.Refused)
	r.Bytes(9, n.Result.Data)
	r.Text(10, n.Result.ContentType)
	r.Num(11, schema.Flag(n.Omitted))
	for i := range n.NewMembers {
		r.Bytes(12, n.NewMembers[i].encode())
	}
	return r
}

func decodeNotice(b []byte) (*Notice, error) {
	n := &Notice{}
	var bad error
	err := schema.DecodeFields(b, func(tag protowire.Number, v uint64) {
		switch tag {
		case 3:
			n.Revision = v
		case 5:
			n.State = task.State(v) // #nosec G115 -- as written
		case 11:
			n.Omitted = v != 0
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 1:
			copy(n.Group[:], b)
		case 2:
			copy(n.Ref[:], b)
		case 4:
			copy(n.ID[:], b)
		case 6:
			n.Type = string(b)
		case 7:
			n.Queue = string(b)
		case 8:
			n.Refused = string(b)
		case 9:
			n.Result.Data = b
		case 10:
			n.Result.ContentType = string(b)
		case 12:
			birth, err := decodeNewMember(b)
			if n.NewMembers = append(n.NewMembers, birth); err != nil {
				bad = err
			}
		}
	})
	if err == nil {
		err = bad
	}
	return n, err
}

func (b *NewMember) encode() []byte {
	var r schema.Encoder
	r.Bytes(1, b.Ref[:])
	r.ID(2, b.ID)
	r.Text(3, b.Type)
	r.Text(4, b.Queue)
	r.Text(5, b.Refused)
	return r
}

func decodeNewMember(row []byte) (b NewMember, err error) {
	err = schema.DecodeFields(row, schema.NoNumbers, func(tag protowire.Number, v []byte) {
		switch tag {
		case 1:
			copy(b.Ref[:], v)
		case 2:
			copy(b.ID[:], v)
		case 3:
			b.Type = string(v)
		case 4:
			b.Queue = string(v)
		case 5:
			b.Refused = string(v)
		}
	})
	return b, err
}
