package gateway

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/convert"
	"github.com/pawlq/pawl/internal/task"
)

// ListArchive returns a page of the dead-letter archive, newest first.
func (g *operatorService) ListArchive(ctx context.Context, r *pawlv1.ListArchiveRequest) (*pawlv1.ListArchiveResponse, error) {
	n, err := convert.LimitOf(r.GetLimit())
	if err != nil {
		return nil, err
	}
	if r.GetQueue() != "" {
		if err := task.CheckQueue("queue", r.GetQueue(), g.limits); err != nil {
			return nil, err
		}
		if err := callinfo.MayUse(ctx, r.GetQueue()); err != nil {
			return nil, err
		}
	}
	from, err := convert.DecodeCursor(convert.ArchiveCursor, r.GetCursor())
	if err != nil {
		return nil, err
	}
	found, err := g.broker.Archived(ctx, callinfo.Namespace(ctx), r.GetQueue(), string(from), n)
	if err != nil {
		return nil, err
	}
	page, scope := found.Value, task.ScopeOf(ctx)
	out := &pawlv1.ListArchiveResponse{Missing: convert.MissingProto(found.Missing), NextCursor: convert.NextCursor(convert.ArchiveCursor, page.Next)}
	for i := range page.Tasks {
		if t := &page.Tasks[i]; scope.Sees(t.Queue) {
			out.Items = append(out.Items, convert.ArchivedProto(t, page.Places[i]))
		}
	}
	return out, nil
}

// RestoreArchive enqueues archived dead letters as new tasks.
func (g *operatorService) RestoreArchive(ctx context.Context, r *pawlv1.RestoreArchiveRequest) (*pawlv1.RestoreArchiveResponse, error) {
	if n := len(r.GetPlaces()); n == 0 || n > contract.MaxSelected {
		return nil, task.Invalid("places", "%d places, 1 to %d are allowed", n, contract.MaxSelected)
	}
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return nil, err
	}
	out := &pawlv1.RestoreArchiveResponse{}
	back := &restoring{by: by}
	for _, place := range r.GetPlaces() {
		one := &pawlv1.RestoredTask{Place: place}
		out.Results = append(out.Results, one)
		spec, of, err := g.archivedSpec(ctx, place)
		if err != nil {
			one.Error = g.enqueuer.Item(err)
			continue
		}
		size := proto.Size(spec) + of.Bytes()
		if back.bytes+size > contract.MaxMessage {
			g.restore(ctx, back)
			back = &restoring{by: by}
		}
		back.specs, back.of, back.results, back.bytes = append(back.specs, spec), append(back.of, of), append(back.results, one), back.bytes+size
	}
	g.restore(ctx, back)
	return out, nil
}

// restore enqueues restored tasks.
func (g *operatorService) restore(ctx context.Context, back *restoring) {
	for i, result := range g.enqueuer.enqueue(ctx, back.specs, back) {
		to := back.results[i]
		to.TaskId, to.Error, to.Duplicate = result.GetTask().GetTaskId(), result.GetError(), result.GetTask().GetDuplicate()
	}
}

// restoring are tasks restored from the archive, no more than fit into one message: a shard takes no larger calls.
type restoring struct {
	by      task.Author
	specs   []*pawlv1.TaskSpec
	of      []convert.Origin       // one per spec
	results []*pawlv1.RestoredTask // one per spec
	bytes   int
}

// complete sets the fields of a task that no producer can set.
func (b *restoring) complete(s *task.Spec, ns string, i int) {
	s.Restored, s.Parent = &b.by, b.of[i].Parent
	s.Restore(ns, b.of[i].ID, b.of[i].EndedAt)
}

// maxPlace bounds the name of a place in an archive: a node, a file and a byte of it.
const maxPlace = 256

// archivedSpec returns the spec of the archived task at a place, and the dead letter that it was.
func (g *operatorService) archivedSpec(ctx context.Context, place string) (spec *pawlv1.TaskSpec, of convert.Origin, err error) {
	if len(place) > maxPlace {
		return nil, of, task.Invalid("places", "%d bytes, at most %d are allowed", len(place), maxPlace)
	}
	a, err := g.broker.ArchivedAt(ctx, callinfo.Namespace(ctx), place)
	if err != nil {
		return nil, of, err
	}
	if !task.ScopeOf(ctx).Sees(a.Queue) {
		return nil, of, task.NotFound("archived task", place)
	}
	if of, err = convert.OriginOf(a); err == nil {
		spec, err = convert.RestoredSpec(a)
	}
	if err != nil {
		return nil, of, fmt.Errorf("archive %q: %w", place, err)
	}
	return spec, of, nil
}
