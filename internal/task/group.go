package task

import (
	"fmt"
	"time"
)

// Limits of groups.
const (
	MaxGroupMembers = 100_000  // added explicitly; tasks that follow them by `then` come on top
	MaxGroupBytes   = 8 << 20  // of the tasks of one call, including their chains: it is one entry of the log
	MaxMemberResult = 16 << 10 // bytes of a member's result kept by its group; larger ones are read from the task
	MaxGroupResults = 64 << 20 // bytes of results that a group keeps in total
)

// Group is a producer's specification of a group of tasks.
type Group struct {
	Name       string // for people: need not be unique
	Tasks      []Spec
	OnComplete *Spec          // when all members have ended, in whatever state
	OnSuccess  *Spec          // when all of them have succeeded
	OnDeath    *Spec          // when the first member is dead or poisoned
	Open       bool           // not complete until it is closed
	Retention  *time.Duration // how long it is kept once it is complete; nil: depends on its outcome
	Within     []string       // patterns of the queues that its creator is limited to; nil: all
	RequestID  ID             // a UUID of any version; repeating it finds the same group
	// Home has the keys of the task by which the group's shard was chosen, with Routed and Left. It is not set by producers.
	Home Spec
}

// Callbacks returns the tasks of a group that are not members, by the event that they wait for.
func (g *Group) Callbacks() map[string]*Spec {
	return map[string]*Spec{"on_complete": g.OnComplete, "on_success": g.OnSuccess, "on_death": g.OnDeath}
}

// Fill sets defaults for fields that were not set.
func (g *Group) Fill() {
	for i := range g.Tasks {
		g.Tasks[i].Fill()
	}
	for _, s := range g.Callbacks() {
		if s != nil {
			s.Fill()
		}
	}
}

// Check refuses a filled group that breaks a rule. The error names field, value and rule.
func (g *Group) Check(l Limits) error {
	if err := CheckName("name", g.Name, l); err != nil {
		return err
	}
	if len(g.Tasks) == 0 && !g.Open {
		return Invalid("tasks", "is required, unless the group is open")
	}
	if g.Retention != nil {
		if err := checkRetention("retention", *g.Retention); err != nil {
			return err
		}
	}
	bytes := 0
	for _, field := range []string{"on_complete", "on_success", "on_death"} {
		s := g.Callbacks()[field]
		if s == nil {
			continue
		}
		if err := checkMember(field, s, l); err != nil {
			return err
		}
		if s.RequestID != (ID{}) {
			return Invalid(field+".request_id", "%s is given, but the task is enqueued by the broker", s.RequestID)
		}
		bytes += s.sizeInAll()
	}
	return checkMembers(g.Tasks, bytes, l)
}

// CheckMembers refuses filled tasks that can't be added to a group in one call.
func CheckMembers(tasks []Spec, l Limits) error { return checkMembers(tasks, 0, l) }

func checkMembers(tasks []Spec, bytes int, l Limits) error {
	if len(tasks) > l.Batch {
		return Invalid("tasks", "%d tasks, at most %d are allowed in one call", len(tasks), l.Batch)
	}
	for i := range tasks {
		if err := checkMember(fmt.Sprintf("tasks[%d]", i), &tasks[i], l); err != nil {
			return err
		}
		if bytes += tasks[i].sizeInAll(); bytes > MaxGroupBytes {
			return &Error{Code: CodePayloadTooLarge, Field: "tasks",
				Message: Invalid("tasks", "more than %d bytes in one call: add the rest to the group in further calls",
					MaxGroupBytes).Message}
		}
	}
	return nil
}

func checkMember(path string, s *Spec, l Limits) error {
	if s.Member != nil {
		return Invalid(path+".group_id", "%s is given, but the call already names the group", s.Member.Group)
	}
	return prefixField(path, s.Check(l))
}

// sizeInAll returns the approximate size of the spec in bytes, including the tasks that follow.
func (s *Spec) sizeInAll() int {
	n := s.size()
	for i := range s.Then {
		n += s.Then[i].sizeInAll()
	}
	return n
}
