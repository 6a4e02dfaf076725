package task

import "fmt"

// A task may say what is to be enqueued when it has succeeded, and those tasks what follows them: a chain, or a tree.

// Limits of what follows a task.
const (
	MaxThen       = 8   // tasks that follow one at once: each takes the result along, in one entry of the log
	MaxChain      = 100 // tasks that follow one in all
	MaxChainDepth = 20  // one behind the other
)

// Parent is what a task follows: another task, or a group that came to a point.
type Parent struct {
	ID          ID // zero: a group
	Group       ID // zero: a task
	Result      []byte
	ContentType string // "" or "application/json": a JSON value
	Omitted     bool   // the result was too large to take along
}

// Member is a task's place in a group.
type Member struct {
	Group ID
	Ref   ID // its name among the members, given by the group's home; zero: not given yet
}

// fillThen fills what follows.
func (s *Spec) fillThen() {
	for i := range s.Then {
		s.Then[i].Fill()
	}
}

// chainCheck goes through what follows a task.
type chainCheck struct {
	limits       Limits
	tasks, bytes int
}

func (c *chainCheck) check(path string, then []Spec, depth int) error {
	if len(then) > MaxThen {
		return Invalid(path, "%d tasks, at most %d may follow one", len(then), MaxThen)
	}
	if depth > MaxChainDepth && len(then) > 0 {
		return Invalid(path, "more than %d tasks follow one behind the other", MaxChainDepth)
	}
	for i := range then {
		s, at := &then[i], fmt.Sprintf("%s[%d]", path, i)
		if c.tasks++; c.tasks > MaxChain {
			return Invalid(path, "more than %d tasks follow in all", MaxChain)
		}
		switch {
		case s.RequestID != (ID{}):
			return Invalid(at+".request_id", "%s is given, but the task is enqueued by the broker", s.RequestID)
		case s.Member != nil:
			return Invalid(at+".group_id", "%s is given, but what follows a member is in its group by itself", s.Member.Group)
		}
		if err := within(at, s.checkOwn(c.limits)); err != nil {
			return err
		}
		if c.bytes += s.size(); c.bytes > c.limits.Payload {
			return &Error{Code: CodePayloadTooLarge, Field: "then",
				Message: Invalid("then", "more than %d bytes follow in all", c.limits.Payload).Message}
		}
		if err := c.check(at+".then", s.Then, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// size is about how many bytes the spec takes, without what follows.
func (s *Spec) size() int {
	const fixed = 64
	n := fixed + len(s.Type) + len(s.Queue) + len(s.Key) + len(s.IdempotencyKey) + len(s.Payload) + len(s.ContentType)
	for _, tag := range s.Tags {
		n += len(tag)
	}
	for name, value := range s.Headers {
		n += len(name) + len(value)
	}
	return n
}

// within says in which field the field of a refusal lies.
func within(parent string, err error) error {
	e, ok := AsError(err)
	if !ok {
		return err
	}
	inner := *e
	inner.Field, inner.Message = parent+"."+e.Field, parent+"."+e.Message
	return &inner
}
