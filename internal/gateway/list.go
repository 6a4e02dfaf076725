package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"slices"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// A cursor is opaque to callers: a version, the kind of list, and where to go on.
const cursorVersion = 1

type cursorKind byte

const (
	taskCursor      cursorKind = 't'
	queueCursor     cursorKind = 'q'
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
)

// maxCursor bounds what is decoded. The longest is that of an archive: it has a place for each node.
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

func badCursor(s string) error {
	return task.Invalid("cursor", "%q is not one that this list gave", task.Cut(s, 64))
}

// maxPageBytes ends a page early, so that its answer fits a message.
const maxPageBytes = 12 << 20

// list reads a page of tasks, newest first, from the shards that can have some.
func (g *Gateway) list(ctx context.Context, f broker.Filter, cursor string, limit int32, withPayload bool) (items []*pawlv1.Task, next string, err error) {
	n, err := limitOf(limit)
	if err != nil {
		return nil, "", err
	}
	from, err := decodeCursor(taskCursor, cursor)
	if err != nil {
		return nil, "", err
	}
	if n := len(from); from != nil && n != len(task.ID{}) && n != 8+len(task.ID{}) {
		return nil, "", badCursor(cursor)
	}
	byEnd := listsDead(f)
	shards, err := g.shardsOf(ctx, f.Queue, byEnd)
	if err != nil {
		return nil, "", err
	}
	pages := make([]broker.Page, len(shards))
	errs := each(len(shards), func(i int) error {
		page, at, err := g.broker.Tasks(ctx, shards[i], namespaceOf(ctx), f, from, n)
		saw(ctx, at)
		pages[i] = page
		return err
	})
	if err := firstError(errs); err != nil {
		return nil, "", err
	}
	views, stop := merge(pages, byEnd, n)
	items, fit := tasksProto(views, withPayload)
	if fit < len(views) {
		stop = placeOf(views[fit-1], byEnd)
	}
	if stop == nil {
		return items, "", nil
	}
	return items, encodeCursor(taskCursor, stop), nil
}

// shardsOf are the shards where a queue's tasks lie; all if no queue is named. Tasks that have ended outlive a queue, and a
// queue's part in their shard; dead letters don't.
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

// listsDead says whether a shard orders such a list by the ends of the tasks, not by their ids.
func listsDead(f broker.Filter) bool {
	return f.Queue != "" && len(f.States) == 1 && (f.States[0] == task.Dead || f.States[0] == task.Poisoned)
}

// placeOf is where a list goes on behind a task.
func placeOf(v *broker.View, byEnd bool) []byte {
	if !byEnd {
		return v.ID[:]
	}
	at := make([]byte, 0, 8+len(v.ID))
	for shift := 56; shift >= 0; shift -= 8 {
		at = append(at, byte(uint64(v.Exec.EndedAt)>>shift))
	}
	return append(at, v.ID[:]...)
}

// merge puts the pages of several shards together, newest first, and returns where the next page begins in all of them:
// nil at the end.
//
// A shard's page may stop before it is full, where the shard had read enough: it may have matching tasks below, so no
// other shard's task below that place may be answered yet.
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

// tasksProto converts as many tasks as fit one answer, at least one.
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
