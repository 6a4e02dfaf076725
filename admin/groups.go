package admin

import (
	"context"
	"fmt"
	"iter"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"
)

// List iterates over the groups, newest first by the time in their ids. If a group has a request id, its id takes the
// time from there: one that is not a UUIDv7 has none, so such a group may be anywhere in the list.
func (a Groups) List(ctx context.Context) iter.Seq2[*pawltype.Group, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*pawltype.Group], error) {
		return a.ListPage(ctx, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage returns one page of groups, in the order of List.
func (a Groups) ListPage(ctx context.Context, page pawltype.PageRequest) (pawltype.Page[*pawltype.Group], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewGroupServiceClient(a.rpc).ListGroups, &pawlv1.ListGroupsRequest{
		Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*pawltype.Group]{}, fmt.Errorf("list groups: %w", err)
	}
	return convert.Page(resp, convert.Group), nil
}

// Cancel cancels a group and all its members, and drops the tasks that it would have enqueued. It is idempotent. If the group is
// complete, the error is ErrWrongState.
func (a Groups) Cancel(ctx context.Context, id string) (*pawltype.Group, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewGroupServiceClient(a.rpc).CancelGroup, &pawlv1.CancelGroupRequest{GroupId: id})
	if err != nil {
		return nil, fmt.Errorf("cancel group %q: %w", id, err)
	}
	return convert.Group(resp.GetGroup()), nil
}
