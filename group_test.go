package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/pawltype"
)

// Each call about a group returns the broker's response, is retried while the broker is unavailable, and reports refusals.
func TestGroupCalls(t *testing.T) {
	item := pawl.Item{Args: welcome{}}
	bad := pawl.Item{Args: pawl.RawTask{}}
	for what, x := range map[string]struct {
		call   func(c *pawl.Client) (string, error)
		answer any
		want   string
		fails  string // the prefix of its error
	}{
		"CreateGroup": {func(c *pawl.Client) (string, error) {
			g, err := c.EnqueueGroup(t.Context(), pawl.GroupSpec{Name: "import", Tasks: []pawl.Item{item, item, item}, OnSuccess: &item})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(g.ID, g.Duplicate, g.Tasks[0].Ref.ID, g.Tasks[1].Err, g.Tasks[2]), nil
		}, &pawlv1.CreateGroupResponse{Group: &pawlv1.Group{GroupId: "g"}, Duplicate: true, Tasks: []*pawlv1.EnqueueResult{
			{Task: &pawlv1.Enqueued{TaskId: "1"}}, {Error: &pawlv1.Error{Code: "conflict"}}, {}}},
			"gtrue1pawl: conflict {<nil> <nil>}", `enqueue group "import": `},
		"AddGroupTasks": {func(c *pawl.Client) (string, error) {
			out, err := c.AddToGroup(t.Context(), "g", []pawl.Item{bad, item})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(out[0].Err, " ", out[1].Ref.ID), nil
		}, &pawlv1.AddGroupTasksResponse{Results: []*pawlv1.EnqueueResult{{Task: &pawlv1.Enqueued{TaskId: "1"}}}},
			`add to group "g": item 0: pawl: invalid_argument: type: is empty 1`, `add to group "g": `},
		"GetGroup": {func(c *pawl.Client) (string, error) {
			g, err := c.Group(t.Context(), "g")
			if err != nil {
				return "", err
			}
			return g.ID, nil
		}, &pawlv1.GetGroupResponse{Group: &pawlv1.Group{GroupId: "g"}}, "g", `group "g": `},
		"CloseGroup": {func(c *pawl.Client) (string, error) {
			g, err := c.CloseGroup(t.Context(), "g")
			if err != nil {
				return "", err
			}
			return g.ID, nil
		}, &pawlv1.CloseGroupResponse{Group: &pawlv1.Group{GroupId: "g"}}, "g", `close group "g": `},
		"CancelGroup": {func(c *pawl.Client) (string, error) {
			g, err := admin.New(c).Groups().Cancel(t.Context(), "g")
			if err != nil {
				return "", err
			}
			return g.ID, nil
		}, &pawlv1.CancelGroupResponse{Group: &pawlv1.Group{GroupId: "g"}}, "g", `cancel group "g": `},
		"ListGroupMembers": {func(c *pawl.Client) (said string, err error) {
			for m, err := range c.GroupMembers(t.Context(), "g") {
				if err != nil {
					return "", err
				}
				said += fmt.Sprintf("%+v", *m)
			}
			return said, nil
		}, &pawlv1.ListGroupMembersResponse{Items: []*pawlv1.GroupMember{{TaskId: "1", Type: "t", Queue: "q",
			State: pawlv1.State_STATE_DEAD, Refused: "r", Result: []byte("7"), ResultContentType: "c", ResultOmitted: true},
			{TaskId: "2"}}},
			"{TaskID:1 Type:t Queue:q State:dead Refused:r Result:[55] ResultContentType:c ResultOmitted:true}" +
				"{TaskID:2 Type: Queue: State: Refused: Result:[] ResultContentType: ResultOmitted:false}", `members of group "g": `},
	} {
		f, client := start(t)
		away := true
		f.set(func() {
			f.operator = func(method string, _ any) (any, bool) { return x.answer, method == what }
			f.before = func(method string) error {
				if away && method == what {
					away = false
					return refusal(codes.Unavailable, &pawlv1.Error{Code: "unavailable"})
				}
				return nil
			}
		})
		if got, err := x.call(client); err != nil || got != x.want || away {
			t.Errorf("%s: got %q, %v, want %q after a retry", what, got, err, x.want)
		}
		f.set(func() {
			f.before = func(string) error { return refusal(codes.NotFound, &pawlv1.Error{Code: "not_found"}) }
		})
		if _, err := x.call(client); !errors.Is(err, pawltype.ErrNotFound) || !strings.HasPrefix(err.Error(), x.fails) {
			t.Errorf("%s of a missing group: %v, want ErrNotFound with %s", what, err, x.fails)
		}
	}
}

// WaitGroup asks until the group has ended, whatever its state, or until its context does.
func TestWaitGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		asked, last := 0, pawlv1.GroupState_GROUP_STATE_CANCELLED
		f.set(func() {
			f.operator = func(string, any) (any, bool) {
				asked++
				g := &pawlv1.Group{GroupId: "g", State: last}
				if asked == 5 {
					g.EndedAt = timestamppb.Now()
				}
				return &pawlv1.GetGroupResponse{Group: g}, true
			}
		})
		if g, err := client.WaitGroup(t.Context(), "g"); err != nil || g.State != pawltype.GroupCancelled || asked != 5 {
			t.Errorf("WaitGroup = %+v, %v after %d calls, want the group at the fifth", g, err, asked)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := client.WaitGroup(ctx, "g"); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.HasPrefix(err.Error(), `group "g": `) || asked < 60 || asked > 150 {
			t.Errorf("WaitGroup of a group that runs: %v after %d calls", err, asked)
		}
	})
}

// An invalid group is refused before it is sent, and the error names the invalid field.
func TestInvalidGroups(t *testing.T) {
	f, client := start(t)
	asked := 0
	f.set(func() {
		f.operator = func(string, any) (any, bool) { asked++; return &pawlv1.AddGroupTasksResponse{}, true }
	})
	item, bad := pawl.Item{Args: welcome{}}, pawl.Item{Args: pawl.RawTask{}}
	for field, g := range map[string]pawl.GroupSpec{
		"name":             {Name: "\xff"},
		"request_id":       {RequestID: "\xff"},
		"tasks[1].type":    {Tasks: []pawl.Item{item, bad}},
		"on_complete.type": {OnComplete: &bad},
		"on_success.type":  {OnSuccess: &bad},
		"on_death.type":    {OnDeath: &bad},
	} {
		_, err := client.EnqueueGroup(t.Context(), g)
		if refused, ok := errors.AsType[*pawltype.Error](err); !ok || refused.Field != field || !strings.HasPrefix(err.Error(),
			"enqueue group") || strings.HasPrefix(err.Error(), `enqueue group ""`) {
			t.Errorf("%s: got %v, want an error of that field", field, err)
		}
	}
	if out, err := client.AddToGroup(t.Context(), "g", []pawl.Item{bad}); err != nil || len(out) != 1 ||
		!errors.Is(out[0].Err, pawltype.ErrInvalidArgument) {
		t.Errorf("adding only an invalid task: %v, %v, want its error", out, err)
	}
	if _, err := client.AddToGroup(t.Context(), "g", []pawl.Item{item}); err == nil || !strings.Contains(err.Error(),
		"1 tasks got 0 answers") {
		t.Errorf("a response without a result for a task: %v, want an error", err)
	}
	if out, err := client.AddToGroup(t.Context(), "g", nil); err != nil || len(out) != 0 || asked != 2 {
		t.Errorf("adding no tasks: %v, %v, the broker was called %d times, want 2", out, err, asked)
	}
}
