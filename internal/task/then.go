package task

import "fmt"

// A task may specify tasks to be enqueued when it has succeeded, and those may specify others: a chain, or a tree.

// Limits on the tasks that follow a task.
const (
	MaxThen       = 8   // tasks that follow one directly: each includes the result, in one entry of the log
	MaxChain      = 100 // tasks that follow one in total
	MaxChainDepth = 20  // tasks one after the other
)

// Parent is what a task follows: another task, or an event of a group.
type Parent struct {
	ID          ID // zero: a group
	Group       ID // zero: a task
	Result      []byte
	ContentType string // "" or "application/json": a JSON value
	Omitted     bool   // the result was too large to include
}

// Member is a task's place in a group.
type Member struct {
	Group ID
	Ref   ID // its id among the members, assigned by the group's home; zero: not assigned yet
}

// fillThen fills the tasks that follow.
func (s *Spec) fillThen() {
	for i := range s.Then {
		s.Then[i].Fill()
	}
}

// chainCheck checks the tasks that follow a task.
type chainCheck struct {
	limits       Limits
	tasks, bytes int
}

func (c *chainCheck) check(path string, then []Spec, depth int) error {
	if len(then) > MaxThen {
		return Invalid(path, "%d tasks, at most %d may follow a task", len(then), MaxThen)
	}
	if depth > MaxChainDepth && len(then) > 0 {
		return Invalid(path, "more than %d tasks follow one after another", MaxChainDepth)
	}
	for i := range then {
		s, at := &then[i], fmt.Sprintf("%s[%d]", path, i)
		if c.tasks++; c.tasks > MaxChain {
			return Invalid(path, "more than %d tasks follow in total", MaxChain)
		}
		switch {
		case s.RequestID != (ID{}):
			return Invalid(at+".request_id", "%s is given, but the task is enqueued by the broker", s.RequestID)
		case s.Member != nil:
			return Invalid(at+".group_id", "%s is given, but a task that follows a member joins its group automatically", s.Member.Group)
		}
		if err := prefixField(at, s.checkOwn(c.limits)); err != nil {
			return err
		}
		if c.bytes += s.size(); c.bytes > c.limits.Payload {
			return &Error{Code: CodePayloadTooLarge, Field: "then",
				Message: Invalid("then", "the tasks that follow have more than %d bytes in total", c.limits.Payload).Message}
		}
		if err := c.check(at+".then", s.Then, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// size returns the approximate size of the spec in bytes, without the tasks that follow.
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

// prefixField prefixes the field of a refusal with that of its parent.
func prefixField(parent string, err error) error {
	e, ok := AsError(err)
	if !ok {
		return err
	}
	inner := *e
	inner.Field, inner.Message = parent+"."+e.Field, parent+"."+e.Message
	return &inner
}
