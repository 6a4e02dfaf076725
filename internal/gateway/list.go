package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// A cursor is opaque to callers: a version, the kind of list, and where to continue.
const cursorVersion = 1

type cursorKind byte

const (
	taskCursor      cursorKind = 't'
	queueCursor     cursorKind = 'q'
	typeCursor      cursorKind = 'p'
	archiveCursor   cursorKind = 'a'
	scheduleCursor  cursorKind = 's'
	tickCursor      cursorKind = 'h'
	auditCursor     cursorKind = 'w'
	groupCursor     cursorKind = 'g'
	memberCursor    cursorKind = 'm'
	operationCursor cursorKind = 'o'
	workerCursor    cursorKind = 'k'
	tokenCursor     cursorKind = 'x'
	namespaceCursor cursorKind = 'n'
	eventCursor     cursorKind = 'e'
	webhookCursor   cursorKind = 'y'
	markerCursor    cursorKind = 'd'
)

// maxCursor bounds what is decoded. The longest is that of the archive: it has a place for each node.
const maxCursor = 16 << 10

func encodeCursor(kind cursorKind, at []byte) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{cursorVersion, byte(kind)}, at...))
}

// decodeCursor is the inverse of encodeCursor; nil for "".
func decodeCursor(kind cursorKind, s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) > maxCursor {
		return nil, badCursor(s)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 3 || b[0] != cursorVersion || b[1] != byte(kind) {
		return nil, badCursor(s)
	}
	return b[2:], nil
}

// paged is the request of a list.
type paged interface {
	GetLimit() int32
	GetCursor() string
}

// pageOf returns how many items a page may have, and the position it starts after; nil: it is the first page.
func pageOf(r paged, kind cursorKind) (n int, at []byte, err error) {
	if n, err = limitOf(r.GetLimit()); err != nil {
		return 0, nil, err
	}
	at, err = decodeCursor(kind, r.GetCursor())
	return n, at, err
}

// pageByID is pageOf for a list by ids.
func pageByID(r paged, kind cursorKind) (n int, behind task.ID, err error) {
	n, at, err := pageOf(r, kind)
	if err == nil && at != nil && len(at) != len(behind) {
		err = badCursor(r.GetCursor())
	}
	copy(behind[:], at)
	return n, behind, err
}

// nextCursor returns the cursor of the page after a name; "": there is none.
func nextCursor(kind cursorKind, name string) string {
	if name == "" {
		return ""
	}
	return encodeCursor(kind, []byte(name))
}

func badCursor(s string) error {
	return task.Invalid("cursor", "%q was not returned by this list", task.Cut(s, 64))
}

// maxPageBytes ends a page early, so that the answer fits into a message.
const maxPageBytes = 12 << 20

// page is a page of tasks in the answer's form.
type page struct {
	items    []*pawlv1.Task
	next     string
	searched *pawlv1.Searched // of a page that is not full and has a successor
}

// list returns a page of tasks, newest first, from the shards that may have some.
func (g *Gateway) list(ctx context.Context, f broker.Filter, cursor string, limit int32, withPayload bool) (out page, err error) {
	n, err := limitOf(limit)
	if err != nil {
		return out, err
	}
	byEnd := listsDead(f)
	from, err := decodeTaskCursor(cursor, byEnd)
	if err != nil {
		return out, err
	}
	shards, err := g.shardsOf(ctx, f.Queue, byEnd)
	if err != nil {
		return out, err
	}
	pages := make([]broker.Page, len(shards))
	errs := each(len(shards), func(i int) error {
		out, err := broker.ListTasks.Call(ctx, g.verbs, broker.TaskList{OnShard: onShard(ctx, shards[i]), Filter: f, Cursor: from, Limit: n})
		pages[i] = out.Page
		return err
	})
	if err := firstError(errs); err != nil {
		return out, err
	}
	views, stop := merge(pages, byEnd, n)
	items, fit := tasksProto(views, withPayload)
	if fit < len(views) {
		stop = placeOf(views[fit-1], byEnd)
	}
	out.items = items
	if stop == nil {
		return out, nil
	}
	out.next = encodeCursor(taskCursor, stop)
	if len(items) < n {
		out.searched = searchedProto(pages, stop)
	}
	return out, nil
}

// decodeTaskCursor decodes where a list of tasks continues: after a task's id, or its end and its id.
func decodeTaskCursor(s string, byEnd bool) ([]byte, error) {
	at, err := decodeCursor(taskCursor, s)
	size := len(task.ID{})
	if byEnd {
		size += 8
	}
	if err == nil && at != nil && len(at) != size {
		err = badCursor(s)
	}
	return at, err
}

// searchedProto returns how far a search over several shards that continues after a place has come.
func searchedProto(pages []broker.Page, stop []byte) *pawlv1.Searched {
	out := &pawlv1.Searched{Until: timestamppb.New(placeTime(stop))}
	for _, p := range pages {
		out.Rows += int64(p.Rows)
	}
	return out
}

// placeTime returns when the task of a place ended, or was created according to its id.
func placeTime(at []byte) time.Time {
	if len(at) > len(task.ID{}) {
		return broker.Time(binary.BigEndian.Uint64(at)).Time() // #nosec G115 -- a time, as it was written
	}
	return time.UnixMilli(task.ID(at).UnixMilli())
}

// shardsOf returns the shards with a queue's tasks; all if no queue is named. Ended tasks, other than dead letters, outlive a queue
// and its part in their shard.
func (g *Gateway) shardsOf(ctx context.Context, queue string, dead bool) ([]uint32, error) {
	if queue == "" {
		return g.cluster.Shards(), nil
	}
	q, ok, err := g.cluster.Queue(ctx, namespaceOf(ctx), queue)
	switch {
	case err != nil || dead && !ok:
		return nil, err
	case ok && (dead || !q.Spread()):
		return q.Shards(), nil
	}
	return g.cluster.Shards(), nil
}

// listsDead reports whether a shard orders such a list by the tasks' ends instead of their ids.
func listsDead(f broker.Filter) bool {
	return f.Queue != "" && len(f.States) == 1 && (f.States[0] == task.Dead || f.States[0] == task.Poisoned)
}

// placeOf returns where a list continues after a task.
func placeOf(v *broker.View, byEnd bool) []byte {
	if !byEnd {
		return v.ID[:]
	}
	at := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(v.ID)), uint64(v.Exec.EndedAt)) // #nosec G115 -- not negative
	return append(at, v.ID[:]...)
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
	slices.SortFunc(views, func(a, b *broker.View) int { return bytes.Compare(placeOf(b, byEnd), placeOf(a, byEnd)) })
	if next != nil {
		views = slices.DeleteFunc(views, func(v *broker.View) bool { return bytes.Compare(placeOf(v, byEnd), next) < 0 })
	}
	if len(views) > limit {
		views = views[:limit]
		next = placeOf(views[limit-1], byEnd)
	}
	return views, next
}

// tasksProto converts as many tasks as fit into one answer, at least one.
func tasksProto(views []*broker.View, withPayload bool) (items []*pawlv1.Task, fit int) {
	size := 0
	items = make([]*pawlv1.Task, 0, len(views))
	for _, v := range views {
		t := taskProto(v, withPayload)
		if !withPayload {
			t.Result, t.Checkpoint = nil, nil
			if t.Parent != nil {
				t.Parent.Result = nil
			}
		}
		if size += proto.Size(t); size > maxPageBytes && len(items) > 0 {
			break
		}
		items = append(items, t)
	}
	return items, len(items)
}
