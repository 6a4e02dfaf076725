package schema

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/task"
)

// Links are what binds a task to others. A task that is bound to none has none, and costs nothing for it. They are replaced, never
// changed.
type Links struct {
	Followed bool    // a row says what follows the task
	Group    task.ID // zero: it is a member of none
	Ref      task.ID // its name among the members
	// Turn counts how often a member ended or was brought back to life: by it the group's home knows which notice is the newest.
	Turn uint64
}

// LinksOf are those of a new task.
func LinksOf(s *task.Spec) *Links {
	if len(s.Then) == 0 && s.Member == nil {
		return nil
	}
	l := &Links{Followed: len(s.Then) > 0}
	if s.Member != nil {
		l.Group, l.Ref = s.Member.Group, s.Member.Ref
	}
	return l
}

// Turned are the links of a task that has ended or lives again.
func (l *Links) Turned() *Links {
	if l == nil || l.Group == (task.ID{}) {
		return l
	}
	to := *l
	to.Turn++
	return &to
}

// Member says whether the task is in a group.
func (l *Links) Member() bool { return l != nil && l.Group != (task.ID{}) }

// Encode is a part of the row of a task's state.
func (l *Links) Encode() []byte {
	var r Encoder
	r.Num(1, Flag(l.Followed))
	if l.Member() {
		r.Bytes(2, l.Group[:])
		r.Bytes(3, l.Ref[:])
	}
	r.Num(4, l.Turn)
	return r
}

func decodeLinks(b []byte) (*Links, error) {
	l := &Links{}
	err := DecodeFields(b, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			l.Followed = v != 0
		case 4:
			l.Turn = v
		}
	}, func(tag protowire.Number, b []byte) {
		switch tag {
		case 2:
			copy(l.Group[:], b)
		case 3:
			copy(l.Ref[:], b)
		}
	})
	return l, err
}
