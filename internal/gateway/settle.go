package gateway

import (
	"context"
	"errors"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/task"
)

// Ack completes a task successfully.
func (g *workerService) Ack(ctx context.Context, r *pawlv1.AckRequest) (*pawlv1.AckResponse, error) {
	call, err := apiproto.AckOf(callinfo.Namespace(ctx), r, g.limits)
	if err != nil {
		return nil, err
	}
	s, err := g.settleOne(ctx, "ack", call)
	if err != nil {
		return nil, err
	}
	return &pawlv1.AckResponse{TaskId: call.Hold.ID.String(), Status: apiproto.StatusProto(s.State), State: apiproto.StateProto(s.State)},
		nil
}

// Fail ends an attempt as failed.
func (g *workerService) Fail(ctx context.Context, r *pawlv1.FailRequest) (*pawlv1.FailResponse, error) {
	call, err := apiproto.FailOf(callinfo.Namespace(ctx), r, g.limits)
	if err != nil {
		return nil, err
	}
	s, err := g.settleOne(ctx, "fail", call)
	if err != nil {
		return nil, err
	}
	return &pawlv1.FailResponse{TaskId: call.Hold.ID.String(), Status: apiproto.StatusProto(s.State), State: apiproto.StateProto(s.State),
		NextRunAt: apiproto.TimeProto(s.NextRunAt)}, nil
}

// Extend extends a lease.
func (g *workerService) Extend(ctx context.Context, r *pawlv1.ExtendRequest) (*pawlv1.ExtendResponse, error) {
	call, err := apiproto.ExtendOf(callinfo.Namespace(ctx), r)
	if err != nil {
		return nil, err
	}
	s, err := g.settleOne(ctx, "", call)
	if err != nil {
		return nil, err
	}
	return &pawlv1.ExtendResponse{TaskId: call.Hold.ID.String(), LeaseExpiresAt: apiproto.TimeProto(s.LeaseUntil)}, nil
}

// Release gives a task back.
func (g *workerService) Release(ctx context.Context, r *pawlv1.ReleaseRequest) (*pawlv1.ReleaseResponse, error) {
	call, err := apiproto.ReleaseOf(callinfo.Namespace(ctx), r)
	if err != nil {
		return nil, err
	}
	s, err := g.settleOne(ctx, "release", call)
	if err != nil {
		return nil, err
	}
	return &pawlv1.ReleaseResponse{TaskId: call.Hold.ID.String(), Status: apiproto.StatusProto(s.State),
		State: apiproto.StateProto(s.State), NextRunAt: apiproto.TimeProto(s.NextRunAt)}, nil
}

// settleOne runs one verb; span is the name of its span if it ends the claim, otherwise "".
func (g *workerService) settleOne(ctx context.Context, span string, call broker.Settle) (s broker.Settled, err error) {
	if span != "" {
		op := g.spans.Settle(ctx, span, &call.Hold)
		defer func() { op.End(err) }()
	}
	got, at, err := g.broker.Settle(ctx, call.Hold.ID.Shard(), []broker.Settle{call})
	callinfo.Note(ctx, at)
	if err != nil {
		return broker.Settled{}, err
	}
	switch s := &got[0]; {
	case s.Err == nil && call.Verb == broker.Extend:
		g.registry.Extended(call.Hold.ID, call.Hold.Token, s.LeaseUntil.Time())
	case s.Err == nil || errors.Is(s.Err, task.ErrStaleClaim):
		g.registry.Ended(call.Hold.ID, call.Hold.Token)
	}
	return got[0], got[0].Err
}

// Settle runs many verbs on claims. Each has its own result.
func (g *workerService) Settle(ctx context.Context, r *pawlv1.SettleRequest) (*pawlv1.SettleResponse, error) {
	if err := checkSettle(r); err != nil {
		return nil, err
	}
	var b settleBatch
	out := b.add(g, callinfo.Namespace(ctx), r)
	span := g.spans.SettleMany(ctx, len(b.calls))
	b.run(ctx, g)
	span.End(nil)
	b.notify(func(h *broker.Hold) { g.registry.Ended(h.ID, h.Token) }, g.registry.Extended)
	return out, nil
}

func settleItems(r *pawlv1.SettleRequest) int {
	return len(r.GetAcks()) + len(r.GetFails()) + len(r.GetExtends()) + len(r.GetReleases())
}

func checkSettle(r *pawlv1.SettleRequest) error {
	if n := settleItems(r); n > contract.MaxSettle {
		return task.Invalid("settle", "%d items, at most %d are allowed", n, contract.MaxSettle)
	}
	return nil
}

// settleBatch collects the items of one or more requests for the broker.
type settleBatch struct {
	calls   []broker.Settle
	answers []*pawlv1.Settled // one per call
}

// add decodes a request's items. The response it returns is complete after run.
func (b *settleBatch) add(g *workerService, ns string, r *pawlv1.SettleRequest) *pawlv1.SettleResponse {
	room := make([]pawlv1.Settled, settleItems(r))
	next := func(id, token string) *pawlv1.Settled {
		to := &room[0]
		room = room[1:]
		to.TaskId, to.ClaimToken = id, token
		return to
	}
	out := &pawlv1.SettleResponse{}
	// Extensions go first: one may carry the last checkpoint of a claim that the same request ends.
	for _, i := range r.GetExtends() {
		call, err := apiproto.ExtendOf(ns, i)
		out.Extends = append(out.Extends, b.item(g, next(i.GetTaskId(), i.GetClaimToken()), call, err))
	}
	if n := len(r.GetAcks()); n > 0 {
		out.Acks = make([]*pawlv1.Settled, 0, n)
	}
	for _, i := range r.GetAcks() {
		call, err := apiproto.AckOf(ns, i, g.limits)
		out.Acks = append(out.Acks, b.item(g, next(i.GetTaskId(), i.GetClaimToken()), call, err))
	}
	for _, i := range r.GetFails() {
		call, err := apiproto.FailOf(ns, i, g.limits)
		out.Fails = append(out.Fails, b.item(g, next(i.GetTaskId(), i.GetClaimToken()), call, err))
	}
	for _, i := range r.GetReleases() {
		call, err := apiproto.ReleaseOf(ns, i)
		out.Releases = append(out.Releases, b.item(g, next(i.GetTaskId(), i.GetClaimToken()), call, err))
	}
	return out
}

func (b *settleBatch) item(g *workerService, to *pawlv1.Settled, call broker.Settle, err error) *pawlv1.Settled {
	if err != nil {
		to.Error = g.Item(err)
		return to
	}
	b.calls, b.answers = append(b.calls, call), append(b.answers, to)
	return to
}

// run asks the shards of the batch in parallel.
func (b *settleBatch) run(ctx context.Context, g *workerService) {
	parts := b.byShard()
	errs := parallel.EachUntilLate(ctx, len(parts), func(ctx context.Context, i int) error {
		p := parts[i]
		got, at, err := g.broker.Settle(ctx, p.calls[0].Hold.ID.Shard(), p.calls)
		callinfo.Note(ctx, at)
		if err != nil {
			return err
		}
		for n := range got {
			if got[n].Err != nil {
				p.answers[n].Error = g.Item(got[n].Err)
				continue
			}
			apiproto.SettledProto(p.answers[n], p.calls[n].Verb, &got[n])
		}
		return nil
	})
	for i, err := range errs {
		if err == nil {
			continue
		}
		parts[i].refuse(g, err)
	}
}

// refuse answers all items with an error.
func (b *settleBatch) refuse(g *workerService, err error) {
	refused := g.Item(err)
	for _, to := range b.answers {
		to.Error = refused
	}
}

// notify calls ended for claims that are over, and extended for leases that end later.
func (b *settleBatch) notify(ended func(*broker.Hold), extended func(task.ID, task.Token, time.Time)) {
	for i := range b.calls {
		c := &b.calls[i]
		switch e := b.answers[i].GetError(); {
		case e == nil && c.Verb == broker.Extend:
			extended(c.Hold.ID, c.Hold.Token, b.answers[i].GetLeaseExpiresAt().AsTime())
		case e == nil || e.GetCode() == string(task.CodeStaleClaim):
			ended(&c.Hold)
		}
	}
}

// byShard splits a batch by shard. Usually there is only one shard, and the batch stays as it is.
func (b *settleBatch) byShard() (parts []*settleBatch) {
	if len(b.calls) == 0 {
		return nil
	}
	first := b.calls[0].Hold.ID.Shard()
	one := true
	for i := range b.calls {
		one = one && b.calls[i].Hold.ID.Shard() == first
	}
	if one {
		return []*settleBatch{b}
	}
	byShard := map[uint32]*settleBatch{}
	for i := range b.calls {
		shard := b.calls[i].Hold.ID.Shard()
		p := byShard[shard]
		if p == nil {
			p = &settleBatch{}
			byShard[shard] = p
			parts = append(parts, p)
		}
		p.calls, p.answers = append(p.calls, b.calls[i]), append(p.answers, b.answers[i])
	}
	return parts
}
