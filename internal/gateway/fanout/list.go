package fanout

import (
	"bytes"
	"context"
	"slices"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Page is a page of tasks in the answer's form.
type Page struct {
	Items    []*pawlv1.Task
	Next     string
	Searched *pawlv1.Searched // of a page that is not full and has a successor
	Missing  []*pawlv1.Missing
}

// List returns a page of tasks, newest first, from the shards that may have some.
func (g Queues) List(ctx context.Context, f broker.Filter, cursor string, limit int32, withPayload bool) (out Page, err error) {
	n, err := apiproto.LimitOf(limit)
	if err != nil {
		return out, err
	}
	byEnd := ListsDead(f)
	from, err := apiproto.DecodeTaskCursor(cursor, byEnd)
	if err != nil {
		return out, err
	}
	shards, err := g.ShardsOf(ctx, f.Queue, byEnd)
	if err != nil {
		return out, err
	}
	pages, err := verb.AskShards(ctx, shards, func(ctx context.Context, i int) (broker.Page, error) {
		out, err := broker.ListTasks.Call(ctx, g.Verbs, broker.TaskList{OnShard: callinfo.OnShard(ctx, shards[i]), Filter: f,
			Cursor: from, Limit: n})
		return out.Page, err
	})
	if err == nil {
		err = pages.CheckAny(len(shards))
	}
	if err != nil {
		return out, err
	}
	out.Missing = apiproto.MissingProto(pages.Missing)
	views, stop := merge(pages.Value, byEnd, n)
	items, fit := apiproto.TasksProto(views, withPayload)
	if fit < len(views) {
		stop = apiproto.PlaceOf(views[fit-1], byEnd)
	}
	out.Items = items
	if stop == nil {
		return out, nil
	}
	out.Next = apiproto.EncodeCursor(apiproto.TaskCursor, stop)
	if len(items) < n {
		out.Searched = apiproto.SearchedProto(pages.Value, stop)
	}
	return out, nil
}

// ShardsOf returns the shards with a queue's tasks; all if no queue is named. Ended tasks, other than dead letters, outlive a queue
// and its part in their shard.
func (g Queues) ShardsOf(ctx context.Context, queue string, dead bool) ([]uint32, error) {
	if queue == "" {
		return g.Cluster.Shards(), nil
	}
	q, ok, err := g.Cluster.Queue(ctx, callinfo.Namespace(ctx), queue)
	switch {
	case err != nil || dead && !ok:
		return nil, err
	case ok && (dead || !q.Spread()):
		return q.Shards(), nil
	}
	return g.Cluster.Shards(), nil
}

// ListsDead reports whether a shard orders such a list by the tasks' ends instead of their ids.
func ListsDead(f broker.Filter) bool {
	return f.Queue != "" && len(f.States) == 1 && (f.States[0] == task.Dead || f.States[0] == task.Poisoned)
}

// merge merges the pages of several shards, newest first, and returns where the next page begins in all of them: nil at the end.
//
// A shard's page may stop before it is full, when the shard had read enough: it may have matching tasks below, so no other shard's
// task below that place may be returned yet.
func merge(pages []broker.Page, byEnd bool, limit int) (views []*broker.View, next []byte) {
	if len(pages) == 1 {
		return pages[0].Tasks, pages[0].Next
	}
	for _, p := range pages {
		views = append(views, p.Tasks...)
		if p.Next != nil && (next == nil || bytes.Compare(p.Next, next) > 0) {
			next = p.Next
		}
	}
	slices.SortFunc(views, func(a, b *broker.View) int {
		return bytes.Compare(apiproto.PlaceOf(b, byEnd), apiproto.PlaceOf(a, byEnd))
	})
	if next != nil {
		views = slices.DeleteFunc(views, func(v *broker.View) bool { return bytes.Compare(apiproto.PlaceOf(v, byEnd), next) < 0 })
	}
	if len(views) > limit {
		views = views[:limit]
		next = apiproto.PlaceOf(views[limit-1], byEnd)
	}
	return views, next
}
