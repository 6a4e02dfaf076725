package gateway

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
)

// BeginOnce claims an effect that should happen once.
func (g *workerService) BeginOnce(ctx context.Context, r *pawlv1.BeginOnceRequest) (*pawlv1.BeginOnceResponse, error) {
	c, err := g.onceOf(ctx, broker.OnceBegin, r)
	if err != nil {
		return nil, err
	}
	a, err := g.once(ctx, c)
	if err != nil {
		return nil, err
	}
	out := &pawlv1.BeginOnceResponse{State: apiproto.OnceStateProto(a.State), Result: a.Result, KeptUntil: apiproto.TimeProto(a.Until)}
	if a.State == broker.OnceHeld {
		out.Holder = &pawlv1.OnceHolder{TaskId: a.Holder.ID.String(), Worker: a.Holder.Worker,
			Fence: int64(a.Holder.Fence)} // #nosec G115 -- below 1<<53
		out.RetryAfter = durationpb.New(a.RetryAfter)
	}
	return out, nil
}

// FinishOnce records that the effect has happened.
func (g *workerService) FinishOnce(ctx context.Context, r *pawlv1.FinishOnceRequest) (*pawlv1.FinishOnceResponse, error) {
	c, err := g.onceOf(ctx, broker.OnceFinish, r)
	if err != nil {
		return nil, err
	}
	if c.TTL, err = apiproto.OnceTTL(r.GetTtl()); err != nil {
		return nil, err
	}
	c.Result = r.GetResult()
	if err := apiproto.CheckOnceResult(c.Result, g.limits); err != nil {
		return nil, err
	}
	a, err := g.once(ctx, c)
	if err != nil {
		return nil, err
	}
	return &pawlv1.FinishOnceResponse{KeptUntil: apiproto.TimeProto(a.Until)}, nil
}

// AbandonOnce lets another attempt try.
func (g *workerService) AbandonOnce(ctx context.Context, r *pawlv1.AbandonOnceRequest) (*pawlv1.AbandonOnceResponse, error) {
	c, err := g.onceOf(ctx, broker.OnceAbandon, r)
	if err != nil {
		return nil, err
	}
	a, err := g.once(ctx, c)
	if err != nil {
		return nil, err
	}
	return &pawlv1.AbandonOnceResponse{State: apiproto.OnceStateProto(a.State)}, nil
}

// onceOf decodes what the requests have in common.
func (g *workerService) onceOf(ctx context.Context, verb broker.OnceVerb, r interface {
	GetTaskId() string
	GetClaimToken() string
	GetKey() string
}) (c broker.OnceCall, err error) {
	c = broker.OnceCall{Verb: verb, Key: r.GetKey()}
	if c.Hold, err = apiproto.HoldOf(callinfo.Namespace(ctx), r.GetTaskId(), r.GetClaimToken()); err != nil {
		return c, err
	}
	if c.Key == "" {
		return c, task.Invalid("key", "is required")
	}
	return c, task.CheckName("key", c.Key, g.limits)
}

func (g *workerService) once(ctx context.Context, c broker.OnceCall) (broker.OnceAnswer, error) {
	a, at, err := g.broker.Once(ctx, c)
	callinfo.Note(ctx, at)
	return a, err
}
