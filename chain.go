package pawl

import (
	"encoding/json"
	"fmt"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/spec"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Then enqueues another task when this one has succeeded, in the same instant, wherever its queue lies. It may be given several times,
// and the other task may have a Then of its own:
//
//	client.Enqueue(ctx, Fetch{URL: url}, pawl.Then(Resize{}, pawl.Then(Mail{}), pawl.Queue("cpu")))
//
// The handler of the other task reads the result of this one with ParentResult. Its In and ExpiresIn count from its enqueue. If this task
// dies, what follows waits for a replay that succeeds; if it is cancelled or discarded, the rest of the chain is dropped. At most 8 tasks
// follow one at once, 20 one behind the other, 100 and 1 MiB in all. docs/workflows.md has the rules.
func Then(args Args, opts ...Option) Option { return thenOption{args, opts} }

type thenOption struct {
	args Args
	opts []Option
}

func (t thenOption) Apply(s *pawlv1.TaskSpec) error {
	spec, err := spec.Of(t.args, t.opts)
	if err != nil {
		return convert.FieldIn(fmt.Sprintf("then[%d]", len(s.Then)), err)
	}
	s.Then = append(s.Then, spec)
	return nil
}

// ParentResult decodes the result of what the task follows from JSON into v: of the task that has Then, or the pawltype.GroupCounts of a
// group. Without a result v stays as it is. A task that follows nothing, or whose parent's result doesn't fit v or was too large to take
// along, is an error.
func (c *Claim) ParentResult(v any) error {
	switch p := c.Parent; {
	case p == nil:
		return fmt.Errorf("pawl: task %q follows no other", c.ID)
	case p.Omitted:
		return fmt.Errorf("pawl: the result of task %q, which task %q follows, was too large to take along: Client.Task has it", p.TaskID, c.ID)
	case len(p.Result) == 0:
		return nil
	case p.ContentType != "" && p.ContentType != "application/json":
		return fmt.Errorf("pawl: the result that task %q follows is %q, not JSON", c.ID, p.ContentType)
	default:
		if err := json.Unmarshal(p.Result, v); err != nil {
			return fmt.Errorf("pawl: the result that task %q follows: %w", c.ID, err)
		}
		return nil
	}
}
