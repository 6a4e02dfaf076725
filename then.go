package pawl

import (
	"encoding/json"
	"errors"
	"fmt"

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

func (t thenOption) apply(s *pawlv1.TaskSpec) error {
	spec, err := describe(t.args, t.opts)
	if err != nil {
		return fieldIn(fmt.Sprintf("then[%d]", len(s.Then)), err)
	}
	s.Then = append(s.Then, spec)
	return nil
}

// Parent is what a task follows: another task, or a group.
type Parent struct {
	TaskID  string // either this or GroupID
	GroupID string
	// Result is that of the task, nil if it has none or it was too large to take along. Of a group it is its GroupCounts as JSON.
	Result      []byte
	ContentType string // "" and "application/json": Result is a JSON value
	Omitted     bool   // the result was too large to take along: Client.Task has it
}

// ParentResult decodes the result of what the task follows from JSON: of the task that has Then, or the GroupCounts of a group. Without a
// result it gives the zero R. A task that follows nothing, or whose parent's result doesn't fit R or was too large to take along, is an
// error.
func ParentResult[R any](t Claimed) (R, error) {
	var out R
	c := t.claim()
	switch p := c.Parent; {
	case p == nil:
		return out, fmt.Errorf("pawl: task %q follows no other", c.ID)
	case p.Omitted:
		return out, fmt.Errorf("pawl: the result of task %q, which task %q follows, was too large to take along: Client.Task has it", p.TaskID, c.ID)
	case len(p.Result) == 0:
		return out, nil
	case p.ContentType != "" && p.ContentType != "application/json":
		return out, fmt.Errorf("pawl: the result that task %q follows is %q, not JSON", c.ID, p.ContentType)
	default:
		if err := json.Unmarshal(p.Result, &out); err != nil {
			return out, fmt.Errorf("pawl: the result that task %q follows: %w", c.ID, err)
		}
		return out, nil
	}
}

func parentOf(p *pawlv1.Parent) *Parent {
	if p == nil {
		return nil
	}
	return &Parent{TaskID: p.GetTaskId(), GroupID: p.GetGroupId(), Result: p.GetResult(), ContentType: p.GetContentType(), Omitted: p.GetResultOmitted()}
}

// Follower is a task that follows another, or a group, and what became of it.
type Follower struct {
	Type   string
	Queue  string
	State  FollowerState
	TaskID string // when it is born; of a duplicate that of the other task
	Reason string // the code of a refusal, or the state in which its parent ended
}

// FollowerState is what became of a task that follows another.
type FollowerState string

// The states of a task that follows another.
const (
	FollowerWaiting   FollowerState = "waiting"   // for the success of its parent, or the point that its group is to come to
	FollowerSent      FollowerState = "sent"      // on its way to another shard, or to a queue that is full
	FollowerBorn      FollowerState = "born"      // it is a task like any other
	FollowerDuplicate FollowerState = "duplicate" // an idempotency key or unique key stood for another task
	FollowerRefused   FollowerState = "refused"   // its queue would not take it
	FollowerDropped   FollowerState = "dropped"   // its parent ended otherwise
)

// Read only.
var followerWords = words[FollowerState](pawlv1.FollowerState_name, "FOLLOWER_STATE_")

func followerOf(p *pawlv1.Follower) *Follower {
	if p == nil {
		return nil
	}
	return &Follower{Type: p.GetType(), Queue: p.GetQueue(), State: followerWords[int32(p.GetState())], TaskID: p.GetTaskId(), Reason: p.GetReason()}
}

func followersOf(list []*pawlv1.Follower) (out []Follower) {
	for _, p := range list {
		out = append(out, *followerOf(p))
	}
	return out
}

// fieldIn says in which field of a request the field of a refusal lies.
func fieldIn(parent string, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Field == "" {
		return fmt.Errorf("%s: %w", parent, err)
	}
	named := *e
	named.Field, named.Message = parent+"."+e.Field, parent+"."+e.Message
	return &named
}
