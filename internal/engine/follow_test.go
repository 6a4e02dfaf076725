package engine_test

import (
	"fmt"
	"strings"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// thenOf parses follow-ups in a story: a>b is a followed by b, a,c are two follow-ups, a@q is of queue q, and a/key:k has an option.
func thenOf(s string) (then []task.Spec) {
	if s == "" {
		return nil
	}
	for _, branch := range strings.Split(s, ",") {
		first, rest, _ := strings.Cut(strings.TrimSpace(branch), ">")
		parts := strings.Split(first, "/")
		spec := task.Spec{Then: thenOf(rest)}
		spec.Type, spec.Queue, _ = strings.Cut(parts[0], "@")
		for _, option := range parts[1:] {
			name, value, _ := strings.Cut(option, ":")
			switch name {
			case "key":
				spec.Key = value
			case "headers":
				spec.Headers = headersOf(value)
			case "idempotency-key":
				spec.IdempotencyKey = value
			case "unique":
				spec.Unique = &task.Unique{Key: value}
			case "reject":
				spec.Unique = &task.Unique{Key: value, OnConflict: task.Reject}
			case "replace":
				spec.Unique = &task.Unique{Key: value, OnConflict: task.Replace}
			case "keep-last":
				spec.Unique = &task.Unique{Key: value, OnConflict: task.KeepLast}
			case "delay":
				spec.Delay = duration(value)
			case "at":
				spec.RunAt = engine.Dawn.Time().Add(duration(value))
			case "expires-in":
				spec.ExpiresIn = duration(value)
			case "payload":
				spec.Payload = []byte(value)
			default:
				panic("no option " + name)
			}
		}
		then = append(then, spec)
	}
	return then
}

// behind shows which task a task follows, and the result it got.
func (s *story) behind(e *schema.Envelope) string {
	switch p := e.Parent; {
	case p == nil:
		return ""
	case p.Group != (task.ID{}):
		return fmt.Sprintf(", of %s: %s", s.groupName(p.Group), uuids.ReplaceAllString(string(p.Result), "ID"))
	case p.Omitted:
		return fmt.Sprintf(", behind %s, whose result is too large", s.name(p.ID))
	default:
		return fmt.Sprintf(", behind %s with %q", s.name(p.ID), p.Result)
	}
}

// followers shows the follow-ups of a task.
func (s *story) followers(v *query.View) string {
	var b strings.Builder
	if v.Parent != nil {
		fmt.Fprintf(&b, " %s\n", s.behind(v.Envelope)[1:])
	}
	for _, f := range v.Then {
		fmt.Fprintf(&b, "  then %s@%s %s", f.Type, f.Queue, f.State)
		if f.ID != (task.ID{}) {
			fmt.Fprintf(&b, " %s", s.know(f.ID))
		}
		if f.Reason != "" {
			fmt.Fprintf(&b, ": %s", f.Reason)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func hasQueue(w *engine.World, name string) (has bool) {
	w.Round(func(r *engine.Round) { has = engine.HasQueue(r, "default", name) })
	return has
}
