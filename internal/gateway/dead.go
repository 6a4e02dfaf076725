package gateway

import (
	"context"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
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
	f, err := apiproto.FilterOf(p, g.limits)
	if err == nil && (len(f.States) > 1 || len(f.States) == 1 && f.States[0] != s) {
		err = task.Invalid("filter.state", "only %s can be selected here", s)
	}
	if err != nil {
		return fanout.Page{}, err
	}
	f.States = []task.State{s}
	return g.List(ctx, f, cursor, limit, true)
}

// GroupDead counts dead letters by error.
func (g *operatorService) GroupDead(ctx context.Context, r *pawlv1.GroupDeadRequest) (*pawlv1.GroupDeadResponse, error) {
	shards, state := g.cluster.Shards(), task.Dead
	if r.GetPoisoned() {
		state = task.Poisoned
	}
	if r.GetQueue() != "" {
		q, err := g.Known(ctx, r.GetQueue())
		if err != nil {
			return nil, err
		}
		shards = q.Shards()
	}
	found, partial, err := g.DeadGroups(ctx, shards, r.GetQueue(), state)
	if err != nil {
		return nil, err
	}
	groups := found.Value
	if len(groups) > contract.MaxPage {
		groups, partial = groups[:contract.MaxPage], true
	}
	out := &pawlv1.GroupDeadResponse{Partial: partial, Missing: apiproto.MissingProto(found.Missing),
		Groups: make([]*pawlv1.DeadGroup, len(groups))}
	for i, d := range groups {
		out.Groups[i] = &pawlv1.DeadGroup{Fingerprint: broker.PrintText(d.Fingerprint), Type: d.Type, Message: d.Message, Count: d.Count,
			FirstAt: apiproto.TimeProto(d.First), LastAt: apiproto.TimeProto(d.Last), SampleTaskId: d.Sample.String(),
			Queues: apiproto.Int32Of(len(d.Queues)), Queue: d.Most(), Trend: d.Trend[:]}
	}
	return out, nil
}
