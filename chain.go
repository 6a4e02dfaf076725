package pawl

import (
	"encoding/json"
	"fmt"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/spec"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Then enqueues another task in the same instant as this one succeeds, whatever queue it goes to. It can be used several times, and the
// other task can have a Then of its own:
//
//	client.Enqueue(ctx, Fetch{URL: url}, pawl.Then(Resize{}, pawl.Then(Mail{}), pawl.Queue("cpu")))
//
// The handler of the other task reads the result of this one with ParentResult. Its In and ExpiresIn count from its enqueue. If this task
// dies, its follow-up tasks wait for a replay that succeeds; if it is cancelled or discarded, the rest of the chain is dropped. A task
// can have at most 8 direct follow-ups, a chain 20 levels, and all of it 100 tasks and 1 MiB. docs/workflows.md has the rules.
func Then(args Args, opts ...Option) Option {
	return spec.Set(func(s *pawlv1.TaskSpec) error {
		next, err := spec.Of(args, opts)
		if err != nil {
			return convert.FieldIn(fmt.Sprintf("then[%d]", len(s.Then)), err)
		}
		s.Then = append(s.Then, next)
		return nil
	})
}

// ParentResult decodes the result of the task's parent from JSON into v: that of the task with Then, or the GroupCounts of a
// group. If there is no result, v is left unchanged. It is an error if the task has no parent, or if the parent's result doesn't fit v or
// was too large to be passed along.
func (c *Claim) ParentResult(v any) error {
	switch p := c.Parent; {
	case p == nil:
		return fmt.Errorf("pawl: task %q has no parent", c.ID)
	case p.Omitted:
		return fmt.Errorf("pawl: the result of task %q, the parent of task %q, was too large to be passed along: read it with Client.Task",
			p.TaskID, c.ID)
	case len(p.Result) == 0:
		return nil
	case p.ContentType != "" && p.ContentType != "application/json":
		return fmt.Errorf("pawl: the parent result of task %q is %q, not JSON", c.ID, p.ContentType)
	default:
		if err := json.Unmarshal(p.Result, v); err != nil {
			return fmt.Errorf("pawl: the parent result of task %q: %w", c.ID, err)
		}
		return nil
	}
}
