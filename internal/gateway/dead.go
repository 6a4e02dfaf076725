package gateway

import (
	"context"
	"fmt"
	"strconv"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// ListDead reads a page of a queue's dead letters, newest first.
func (g operators) ListDead(ctx context.Context, r *pawlv1.ListDeadRequest) (*pawlv1.ListDeadResponse, error) {
	p, err := g.listDead(ctx, task.Dead, r.GetFilter(), r.GetCursor(), r.GetLimit())
	return &pawlv1.ListDeadResponse{Items: p.items, NextCursor: p.next, Searched: p.searched}, err
}

// ListPoisoned reads a page of a queue's poisoned tasks, newest first.
func (g operators) ListPoisoned(ctx context.Context, r *pawlv1.ListPoisonedRequest) (*pawlv1.ListPoisonedResponse, error) {
	p, err := g.listDead(ctx, task.Poisoned, r.GetFilter(), r.GetCursor(), r.GetLimit())
	return &pawlv1.ListPoisonedResponse{Items: p.items, NextCursor: p.next, Searched: p.searched}, err
}

func (g *Gateway) listDead(ctx context.Context, s task.State, p *pawlv1.Filter, cursor string, limit int32) (page, error) {
	if _, err := g.known(ctx, p.GetQueue()); err != nil {
		return page{}, err
	}
	f, err := deadFilterOf(p, p.GetQueue(), s, g.limits)
	if err != nil {
		return page{}, err
	}
	return g.list(ctx, f, cursor, limit, true)
}

// deadFilterOf reads a filter among the tasks of a queue that are in one state.
func deadFilterOf(p *pawlv1.Filter, queue string, s task.State, l task.Limits) (broker.Filter, error) {
	f, err := filterOf(p, l)
	if err != nil {
		return f, err
	}
	if f.Queue != "" && f.Queue != queue {
		return f, task.Invalid("filter.queue", "%q is not %q", f.Queue, queue)
	}
	if len(f.States) > 1 || len(f.States) == 1 && f.States[0] != s {
		return f, task.Invalid("filter.state", "only %s can be selected here", s)
	}
	f.Queue, f.States = queue, []task.State{s}
	return f, nil
}

func deadState(poisoned bool) task.State {
	if poisoned {
		return task.Poisoned
	}
	return task.Dead
}

// GroupDead counts dead letters that read alike.
func (g operators) GroupDead(ctx context.Context, r *pawlv1.GroupDeadRequest) (*pawlv1.GroupDeadResponse, error) {
	shards := g.cluster.Shards()
	if r.GetQueue() != "" {
		q, err := g.known(ctx, r.GetQueue())
		if err != nil {
			return nil, err
		}
		shards = q.Shards()
	}
	groups, partial, err := g.groupDead(ctx, shards, r.GetQueue(), deadState(r.GetPoisoned()))
	if err != nil {
		return nil, err
	}
	if len(groups) > contract.MaxPage {
		groups, partial = groups[:contract.MaxPage], true
	}
	out := &pawlv1.GroupDeadResponse{Partial: partial, Groups: make([]*pawlv1.DeadGroup, len(groups))}
	for i, d := range groups {
		out.Groups[i] = &pawlv1.DeadGroup{Fingerprint: broker.PrintText(d.Fingerprint), Type: d.Type, Message: d.Message, Count: d.Count,
			FirstAt: timeProto(d.First), LastAt: timeProto(d.Last), SampleTaskId: d.Sample.String(),
			Queues: int32Of(len(d.Queues)), Queue: d.Most(), Trend: d.Trend[:]}
	}
	return out, nil
}

// selection is what the two bulk calls have in common.
type selection interface {
	GetQueue() string
	GetTaskIds() []string
	GetFilter() *pawlv1.Filter
	GetMax() int64
	GetDryRun() bool
	GetPoisoned() bool
	GetReason() string
}

// selectionOf reads and checks which dead letters are meant.
func selectionOf(ctx context.Context, r selection, l task.Limits) (s broker.Selection, err error) {
	s = broker.Selection{Queue: r.GetQueue(), State: deadState(r.GetPoisoned()), Max: r.GetMax(), DryRun: r.GetDryRun()}
	if s.By, err = authorOf(ctx, r.GetReason()); err != nil {
		return s, err
	}
	if s.Max < 0 {
		return s, task.Invalid("max", "%d is negative", s.Max)
	}
	switch ids := r.GetTaskIds(); {
	case len(ids) > contract.MaxSelected:
		return s, task.Invalid("task_ids", "%d ids, at most %d are allowed", len(ids), contract.MaxSelected)
	case len(ids) > 0 && r.GetFilter() != nil:
		return s, task.Invalid("filter", "is given beside task_ids: only one of them is allowed")
	case len(ids) == 0 && r.GetFilter() == nil:
		return s, task.Invalid("filter", "name tasks by task_ids or by filter; an empty filter means all")
	case len(ids) > 0:
		s.IDs, err = idsOf(ids)
		return s, err
	}
	s.Filter, err = deadFilterOf(r.GetFilter(), s.Queue, s.State, l)
	return s, err
}

// idsOf reads ids, each once.
func idsOf(texts []string) ([]task.ID, error) {
	seen := make(map[task.ID]bool, len(texts))
	ids := make([]task.ID, 0, len(texts))
	for _, text := range texts {
		id, err := task.ParseID(text)
		if err != nil {
			return nil, task.Invalid("task_ids", "%v", err)
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// ReplayDead puts dead letters back into their queue.
func (g operators) ReplayDead(ctx context.Context, r *pawlv1.ReplayDeadRequest) (*pawlv1.ReplayDeadResponse, error) {
	q, err := g.known(ctx, r.GetQueue())
	if err != nil {
		return nil, err
	}
	s, err := selectionOf(ctx, r, g.limits)
	if err != nil {
		return nil, err
	}
	if s.Rate = r.GetRate(); !(s.Rate >= 0 && s.Rate <= contract.MaxRate) {
		return nil, task.Invalid("rate", "%v is not between 0 and %v", s.Rate, float64(contract.MaxRate))
	}
	matched, done, err := g.bulk(ctx, q, s, g.broker.Replay)
	g.logBulk("dead letters replayed", s, matched, done)
	return &pawlv1.ReplayDeadResponse{Matched: matched, Replayed: done}, err
}

// DiscardDead drops dead letters.
func (g operators) DiscardDead(ctx context.Context, r *pawlv1.DiscardDeadRequest) (*pawlv1.DiscardDeadResponse, error) {
	q, err := g.known(ctx, r.GetQueue())
	if err != nil {
		return nil, err
	}
	s, err := selectionOf(ctx, r, g.limits)
	if err != nil {
		return nil, err
	}
	matched, done, err := g.bulk(ctx, q, s, g.broker.DiscardDead)
	g.logBulk("dead letters discarded", s, matched, done)
	return &pawlv1.DiscardDeadResponse{Matched: matched, Discarded: done}, err
}

func (g *Gateway) logBulk(what string, s broker.Selection, matched, done int64) {
	if !s.DryRun {
		g.log.Info(what, "queue", s.Queue, "state", s.State.String(), "matched", matched, "done", done, "by", s.By)
	}
}

// ListArchive reads a page of the dead-letter archive, newest first.
func (g operators) ListArchive(ctx context.Context, r *pawlv1.ListArchiveRequest) (*pawlv1.ListArchiveResponse, error) {
	n, err := limitOf(r.GetLimit())
	if err != nil {
		return nil, err
	}
	if r.GetQueue() != "" {
		if err := task.CheckQueue("queue", r.GetQueue(), g.limits); err != nil {
			return nil, err
		}
		if err := mayUse(ctx, r.GetQueue()); err != nil {
			return nil, err
		}
	}
	from, err := decodeCursor(archiveCursor, r.GetCursor())
	if err != nil {
		return nil, err
	}
	tasks, places, cursors, err := g.broker.Archived(ctx, namespaceOf(ctx), r.GetQueue(), string(from), n)
	if err != nil {
		return nil, err
	}
	out := &pawlv1.ListArchiveResponse{}
	size, next, scope := 0, "", task.ScopeOf(ctx)
	for i := range tasks {
		if size += len(tasks[i].Payload); size > maxPageBytes && i > 0 {
			break
		}
		if scope.Sees(tasks[i].Queue) {
			out.Items = append(out.Items, archivedProto(&tasks[i], places[i]))
		}
		next = cursors[i]
	}
	if next != "" {
		out.NextCursor = encodeCursor(archiveCursor, []byte(next))
	}
	return out, nil
}

func archivedProto(a *broker.ArchivedTask, place string) *pawlv1.ArchivedTask {
	state, _ := task.ParseState(a.State)
	priority, _ := task.ParsePriority(a.Priority)
	t := &pawlv1.Task{TaskId: a.ID, Type: a.Type, Queue: a.Queue, Status: statusProto(state), State: stateProto(state), Reason: a.Reason,
		Priority: priorityProto(priority), Payload: a.Payload, ContentType: a.ContentType, CreatedAt: wallProto(a.CreatedAt),
		EndedAt: wallProto(a.EndedAt), IdempotencyKey: a.IdempotencyKey, Key: a.Key, Tags: a.Tags, Headers: a.Headers,
		Unique: archivedUnique(a.Unique)}
	for _, at := range a.Attempts {
		p := &pawlv1.Attempt{Attempt: int32Of(at.Attempt), Fence: int64(at.Fence), Worker: at.Worker, StartedAt: wallProto(at.StartedAt),
			EndedAt: wallProto(at.EndedAt), Outcome: outcomeNamed(at.Outcome)}
		if at.Message != "" || at.ErrorType != "" || at.Stack != "" {
			p.Error = &pawlv1.TaskError{Message: at.Message, Type: at.ErrorType, Stack: at.Stack}
		}
		t.AttemptLog = append(t.AttemptLog, p)
		t.Attempts, t.Fence, t.Worker = p.Attempt, p.Fence, p.Worker
	}
	return &pawlv1.ArchivedTask{Task: t, ArchivedAt: wallProto(a.ArchivedAt), Cause: a.Cause, Place: place}
}

// outcomeNamed is the inverse of task.Outcome's String.
func outcomeNamed(name string) pawlv1.Outcome {
	for o := task.OutcomeSucceeded; o <= task.OutcomeLeaderless; o++ {
		if o.String() == name {
			return outcomeProto(o)
		}
	}
	return pawlv1.Outcome_OUTCOME_UNSPECIFIED
}

// RestoreArchive enqueues archived dead letters as new tasks.
func (g operators) RestoreArchive(ctx context.Context, r *pawlv1.RestoreArchiveRequest) (*pawlv1.RestoreArchiveResponse, error) {
	if n := len(r.GetPlaces()); n == 0 || n > contract.MaxSelected {
		return nil, task.Invalid("places", "%d places, 1 to %d are allowed", n, contract.MaxSelected)
	}
	by, err := authorOf(ctx, "")
	if err != nil {
		return nil, err
	}
	out := &pawlv1.RestoreArchiveResponse{}
	var specs []*pawlv1.TaskSpec
	var restored []*pawlv1.RestoredTask // of each spec
	for _, place := range r.GetPlaces() {
		one := &pawlv1.RestoredTask{Place: place}
		out.Results = append(out.Results, one)
		spec, err := g.archivedSpec(ctx, place)
		if err != nil {
			one.Error = g.itemError(err)
			continue
		}
		specs, restored = append(specs, spec), append(restored, one)
	}
	for i, result := range g.enqueue(ctx, specs, &by) {
		restored[i].TaskId, restored[i].Error = result.GetTask().GetTaskId(), result.GetError()
	}
	return out, nil
}

// maxPlace bounds the name of a place in an archive: those of a node, a file and a line.
const maxPlace = 256

// archivedSpec makes of an archived task what a producer would say to enqueue it again. Its idempotency key may live on
// with the old task's id, so the new task goes without. Its unique key it asks for anew. What was to
// follow it follows the new one.
func (g *Gateway) archivedSpec(ctx context.Context, place string) (*pawlv1.TaskSpec, error) {
	if len(place) > maxPlace {
		return nil, task.Invalid("places", "%d bytes are not a place", len(place))
	}
	a, err := g.broker.ArchivedAt(ctx, place)
	if err != nil {
		return nil, err
	}
	if a.Namespace != namespaceOf(ctx) || !task.ScopeOf(ctx).Sees(a.Queue) {
		return nil, task.NotFound("archived task", place)
	}
	priority, _ := task.ParsePriority(a.Priority)
	then, err := restoredThen(a.Then)
	if err != nil {
		return nil, fmt.Errorf("archive %q: %w", place, err)
	}
	return &pawlv1.TaskSpec{Type: a.Type, Payload: a.Payload, ContentType: a.ContentType, Queue: a.Queue, Priority: priorityProto(priority),
		Key: a.Key, Tags: a.Tags, Headers: a.Headers, Unique: restoredUnique(a.Unique), Then: then}, nil
}

func (g *Gateway) nodeName(node uint64) string {
	switch {
	case node == 0:
		return ""
	case g.cfg.NodeName != nil:
		return g.cfg.NodeName(node)
	}
	return "n" + strconv.FormatUint(node, 10)
}
