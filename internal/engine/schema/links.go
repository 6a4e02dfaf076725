package schema

import "github.com/pawlq/pawl/internal/task"

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

// fields are a part of the row of a task's state.
func (l *Links) fields(f *Fields) {
	f.Flag(1, &l.Followed)
	f.ID(2, &l.Group)
	f.ID(3, &l.Ref)
	Num(f, 4, &l.Revision)
}
