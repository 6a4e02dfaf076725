package schema

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/task"
)

// Links connects a task to others. A task without links has a nil *Links, which costs nothing. Links are replaced, never changed.
type Links struct {
	Followed bool    // a row lists the task's follow-ups
	Group    task.ID // zero: none
	Ref      task.ID // the task's name among the members
	// Revision counts how often a member ended or was replayed: it tells the group's home shard which notice is the newest.
	Revision uint64
}

// LinksOf returns the links of a new task.
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

// NextRevision returns the links of a task that has just ended or was replayed.
func (l *Links) NextRevision() *Links {
	if l == nil || l.Group == (task.ID{}) {
		return l
	}
	to := *l
	to.Revision++
	return &to
}

// Member reports whether the task is in a group.
func (l *Links) Member() bool { return l != nil && l.Group != (task.ID{}) }

// Encode returns the links as a part of the row of a task's state.
func (l *Links) Encode() []byte {
	var r Encoder
	r.Num(1, Flag(l.Followed))
	if l.Member() {
		r.Bytes(2, l.Group[:])
		r.Bytes(3, l.Ref[:])
	}
	r.Num(4, l.Revision)
	return r
}

func decodeLinks(b []byte) (*Links, error) {
	l := &Links{}
	err := DecodeFields(b, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			l.Followed = v != 0
		case 4:
			l.Revision = v
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
