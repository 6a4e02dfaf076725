package schema

import (
	"github.com/pawlq/pawl/internal/task"
)

// Encode returns the row.
func (p *Message) Encode() []byte {
	return Encode(len(p.Spec.Payload)+len(p.From.Schedule)+128, p, (*Message).fields)
}

// DecodeMessage decodes the row of a message.
func DecodeMessage(request task.ID, row []byte) (*Message, error) {
	p := &Message{Request: request}
	err := Decode(row, p, (*Message).fields)
	p.From.N = max(p.From.N, 0) % (task.MaxThen + 1)
	return p, err
}

// DecodeAddress decodes a message's address, with which its row begins, and nothing else of the row.
func DecodeAddress(row []byte) (a Address) {
	f := Decoding(row)
	a.fields(&f)
	return a
}

func (p *Message) fields(f *Fields) {
	to := p.Address()
	to.fields(f)
	if f.Encoding() && p.IsTask() {
		f.Put(1, task.EncodeSpec(&p.Spec))
	}
	for b := range f.Each(1) {
		var err error
		if p.Spec, err = task.DecodeSpec(b); err != nil {
			f.Fail(err)
		}
	}
	Num(f, 2, &p.SentAt)
	f.Text(3, &p.From.Schedule)
	f.ID(4, &p.From.Plan)
	Num(f, 5, &p.From.Tick)
	f.ID(6, &p.From.Parent)
	Num(f, 7, &p.From.N)
	Part(f, 8, &p.Notice, (*Notice).fields)
	f.ID(9, &p.Cancel)
	f.ID(10, &p.From.Operation)
	f.JSON(11, &p.Notification, p.Notification != nil)
}

func (a *Address) fields(f *Fields) {
	Num(f, 12, &a.Shard)
	f.Text(13, &a.Queue)
	Num(f, 14, &a.Slot)
	a.Slot = max(a.Slot, 0) % task.SlotCount
}

func (n *Notice) fields(f *Fields) {
	f.ID(1, &n.Group)
	f.ID(2, &n.Ref)
	Num(f, 3, &n.Revision)
	f.ID(4, &n.ID)
	Num(f, 5, &n.State)
	f.Text(6, &n.Type)
	f.Text(7, &n.Queue)
	f.Text(8, &n.Refused)
	f.Bytes(9, &n.Result.Data)
	f.Text(10, &n.Result.ContentType)
	f.Flag(11, &n.Omitted)
	Parts(f, 12, &n.NewMembers, (*NewMember).fields)
}

func (m *NewMember) fields(f *Fields) {
	f.ID(1, &m.Ref)
	f.ID(2, &m.ID)
	f.Text(3, &m.Type)
	f.Text(4, &m.Queue)
	f.Text(5, &m.Refused)
}
