package gateway

import (
	"context"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/convert"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/task"
)

// ListDead returns a page of a queue's dead letters, newest first.
func (g *operatorService) ListDead(ctx context.Context, r *pawlv1.ListDeadRequest) (*pawlv1.ListDeadResponse, error) {
	p, err := g.listDead(ctx, task.Dead, r.GetFilter(), r.GetCursor(), r.GetLimit())
	return &pawlv1.ListDeadResponse{Items: p.Items, NextCursor: p.Next, Searched: p.Searched, Missing: p.Missing}, err
}

// ListPoisoned returns a page of a queue's poisoned tasks, newest first.
func (g *operatorService) ListPoisoned(ctx context.Context, r *pawlv1.ListPoisonedRequest) (*pawlv1.ListPoisonedResponse, error) {
	p, err := g.listDead(ctx, task.Poisoned, r.GetFilter(), r.GetCursor(), r.GetLimit())
	return &pawlv1.ListPoisonedResponse{Items: p.Items, NextCursor: p.Next, Searched: p.Searched, Missing: p.Missing}, err
}

func (g *operatorService) listDead(ctx context.Context, s task.State, p *pawlv1.Filter, cursor string, limit int32) (fanout.Page, error) {
	if _, err := g.Known(ctx, p.GetQueue()); err != nil {
		return fanout.Page{}, err
	}
	f, err := convert.DeadFilterOf(p, p.GetQueue(), s, g.limits)
	if err != nil {
		return fanout.Page{}, err
	}
	return g.List(ctx, f, cursor, limit, true)
}

func deadState(poisoned bool) task.State {
	if poisoned {
		return task.Poisoned
	}
	return task.Dead
}

// GroupDead counts dead letters by error.
func (g *operatorService) GroupDead(ctx context.Context, r *pawlv1.GroupDeadRequest) (*pawlv1.GroupDeadResponse, error) {
	shards := g.cluster.Shards()
	if r.GetQueue() != "" {
		q, err := g.Known(ctx, r.GetQueue())
		if err != nil {
			return nil, err
		}
		shards = q.Shards()
	}
	found, partial, err := g.DeadGroups(ctx, shards, r.GetQueue(), deadState(r.GetPoisoned()))
	if err != nil {
		return nil, err
	}
	groups := found.Value
	if len(groups) > contract.MaxPage {
		groups, partial = groups[:contract.MaxPage], true
	}
	out := &pawlv1.GroupDeadResponse{Partial: partial, Missing: convert.MissingProto(found.Missing),
		Groups: make([]*pawlv1.DeadGroup, len(groups))}
	for i, d := range groups {
		out.Groups[i] = &pawlv1.DeadGroup{Fingerprint: broker.PrintText(d.Fingerprint), Type: d.Type, Message: d.Message, Count: d.Count,
			FirstAt: convert.TimeProto(d.First), LastAt: convert.TimeProto(d.Last), SampleTaskId: d.Sample.String(),
			Queues: convert.Int32Of(len(d.Queues)), Queue: d.Most(), Trend: d.Trend[:]}
	}
	return out, nil
}

// selection is what the requests of the two bulk calls have in common.
type selection interface {
	GetQueue() string
	GetTaskIds() []string
	GetFilter() *pawlv1.Filter
	GetMax() int64
	GetDryRun() bool
	GetPoisoned() bool
	GetReason() string
}

// selectionOf decodes and validates a selection of dead letters.
func selectionOf(ctx context.Context, r selection, l task.Limits) (s broker.Selection, err error) {
	s = broker.Selection{Queue: r.GetQueue(), State: deadState(r.GetPoisoned()), Max: r.GetMax(), DryRun: r.GetDryRun()}
	if s.By, err = callinfo.Author(ctx, r.GetReason()); err != nil {
		return s, err
	}
	if s.Max < 0 {
		return s, task.Invalid("max", "%d is negative", s.Max)
	}
	switch ids := r.GetTaskIds(); {
	case len(ids) > contract.MaxSelected:
		return s, task.Invalid("task_ids", "%d ids, at most %d are allowed", len(ids), contract.MaxSelected)
	case len(ids) > 0 && r.GetFilter() != nil:
		return s, task.Invalid("filter", "is given together with task_ids: only one of them is allowed")
	case len(ids) == 0 && r.GetFilter() == nil:
		return s, task.Invalid("filter", "name tasks by task_ids or by filter; an empty filter means all")
	case len(ids) > 0:
		s.IDs, err = convert.IDsOf(ids)
		return s, err
	}
	s.Filter, err = convert.DeadFilterOf(r.GetFilter(), s.Queue, s.State, l)
	return s, err
}

// ReplayDead puts dead letters back into their queue.
func (g *operatorService) ReplayDead(ctx context.Context, r *pawlv1.ReplayDeadRequest) (*pawlv1.ReplayDeadResponse, error) {
	q, err := g.Current(ctx, r.GetQueue())
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
	matched, done, err := g.Bulk(ctx, q, s, broker.ReplayDead)
	g.logBulk("dead letters replayed", s, matched, done)
	return &pawlv1.ReplayDeadResponse{Matched: matched, Replayed: done}, err
}

// DiscardDead discards dead letters.
func (g *operatorService) DiscardDead(ctx context.Context, r *pawlv1.DiscardDeadRequest) (*pawlv1.DiscardDeadResponse, error) {
	q, err := g.Current(ctx, r.GetQueue())
	if err != nil {
		return nil, err
	}
	s, err := selectionOf(ctx, r, g.limits)
	if err != nil {
		return nil, err
	}
	matched, done, err := g.Bulk(ctx, q, s, broker.DiscardDead)
	g.logBulk("dead letters discarded", s, matched, done)
	return &pawlv1.DiscardDeadResponse{Matched: matched, Discarded: done}, err
}

func (g *operatorService) logBulk(what string, s broker.Selection, matched, done int64) {
	if !s.DryRun {
		g.log.Info(what, "queue", s.Queue, "state", s.State.String(), "matched", matched, "done", done, "by", s.By)
	}
}
