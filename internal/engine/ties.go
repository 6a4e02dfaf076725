package engine

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/task"
)

// Ties are what binds a task to others. A task that is bound to none has none, and costs nothing for it. They are replaced, never
// changed.
type Ties struct {
	Followed bool    // a row says what follows the task
	Group    task.ID // zero: it is a member of none
	Ref      task.ID // its name among the members
	// Turn counts how often a member ended or was brought back to life: by it the group's home knows which notice is the newest.
	Turn uint64
}

// tiesOf are those of a new task.
func tiesOf(s *task.Spec) *Ties {
	if len(s.Then) == 0 && s.Member == nil {
		return nil
	}
	t := &Ties{Followed: len(s.Then) > 0}
	if s.Member != nil {
		t.Group, t.Ref = s.Member.Group, s.Member.Ref
	}
	return t
}

// turned are the ties of a task that has ended or lives again.
func (t *Ties) turned() *Ties {
	if t == nil || t.Group == (task.ID{}) {
		return t
	}
	to := *t
	to.Turn++
	return &to
}

// member says whether the task is in a group.
func (t *Ties) member() bool { return t != nil && t.Group != (task.ID{}) }

func (t *Ties) encode() []byte {
	var r encoder
	r.num(1, flag(t.Followed))
	if t.member() {
		r.bytes(2, t.Group[:])
		r.bytes(3, t.Ref[:])
	}
	r.num(4, t.Turn)
	return r
}

func decodeTies(b []byte) (*Ties, error) {
	t := &Ties{}
	err := decodeFields(b, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			t.Followed = v != 0
		case 4:
			t.Turn = v
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 2:
			copy(t.Group[:], b)
		case 3:
			copy(t.Ref[:], b)
		}
	})
	return t, err
}

func encodeParent(p *task.Parent) []byte {
	var r encoder
	r.id(1, p.ID)
	r.id(2, p.Group)
	r.bytes(3, p.Result)
	r.text(4, p.ContentType)
	r.num(5, flag(p.Omitted))
	return r
}

func decodeParent(b []byte) (*task.Parent, error) {
	p := &task.Parent{}
	err := decodeFields(b, func(tag protowire.Number, v uint64) {
		if tag == 5 {
			p.Omitted = v != 0
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 1:
			copy(p.ID[:], b)
		case 2:
			copy(p.Group[:], b)
		case 3:
			p.Result = b
		case 4:
			p.ContentType = string(b)
		}
	})
	return p, err
}

// partID names what belongs to something that has an id of its own, by a number or another id: the same on every try, and the same
// as no other's. It is a UUID of version 8.
func partID(of, part task.ID) task.ID {
	return requestOf(of, mix(binary.BigEndian.Uint64(part[:8])^mix(binary.BigEndian.Uint64(part[8:]))))
}
