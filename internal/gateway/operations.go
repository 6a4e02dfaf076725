package gateway

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Operations is what the gateway needs of bulk operations, wherever they live.
type Operations interface {
	StartOperation(ctx context.Context, ns string, spec broker.OperationSpec) (broker.OperationView, broker.Stamp, error)
	Operation(ctx context.Context, ns string, id task.ID, wait time.Duration) (broker.OperationView, broker.Stamp, error)
}

// operationService implements OperationService.
type operationService struct {
	pawlv1.UnimplementedOperationServiceServer
	operations Operations
	verbs      verb.Runner
	limits     task.Limits
	log        *slog.Logger
}

// sampleSize is how many tasks a dry run returns.
const sampleSize = 10

// StartOperation starts an operation or, in a dry run, returns what it would affect.
func (g *operationService) StartOperation(ctx context.Context, r *pawlv1.StartOperationRequest) (*pawlv1.StartOperationResponse, error) {
	spec, err := apiproto.OperationOf(r.GetSpec(), g.limits)
	for _, queue := range []string{spec.Filter.Queue, spec.ToQueue} {
		if err == nil && queue != "" {
			err = callinfo.MayUse(ctx, queue)
		}
	}
	if err != nil {
		return nil, err
	}
	if spec.By, err = callinfo.Author(ctx, r.GetReason()); err != nil {
		return nil, err
	}
	if r.GetDryRun() {
		return g.preview(ctx, spec.Filter)
	}
	if spec.Request, err = apiproto.RequestIDOf(r.GetRequestId()); err != nil {
		return nil, err
	}
	p, err := g.operation(ctx, "started", func(ns string) (broker.OperationView, broker.Stamp, error) {
		return g.operations.StartOperation(ctx, ns, spec)
	})
	return &pawlv1.StartOperationResponse{Operation: p}, err
}

func (g *operationService) preview(ctx context.Context, f broker.Filter) (*pawlv1.StartOperationResponse, error) {
	out, err := broker.CountMatches.Call(ctx, g.verbs, broker.MatchCount{OnShard: callinfo.OnShard(ctx, 0), Filter: f, Limit: sampleSize,
		Wait: broker.CountTime})
	if err != nil {
		return nil, err
	}
	n := out.Matches
	p := &pawlv1.OperationPreview{Matched: n.Count, IsLowerBound: n.Next != nil || len(out.Missing) > 0}
	p.Sample, _ = apiproto.TasksProto(n.Sample, false)
	return &pawlv1.StartOperationResponse{Preview: p}, nil
}

// operation runs a call on an operation that returns its state. It logs done; "": nothing.
func (g *operationService) operation(ctx context.Context, done string, run func(ns string) (broker.OperationView, broker.Stamp,
	error)) (*pawlv1.Operation, error) {
	v, at, err := run(callinfo.Namespace(ctx))
	callinfo.Note(ctx, at)
	if err != nil {
		return nil, err
	}
	if done != "" {
		g.log.Info("operation "+done, "operation_id", v.ID.String(), "action", string(v.Spec.Action), "state", v.State.String(), "by",
			v.Spec.By)
	}
	return apiproto.OperationProto(v.Operation, v.WaitsFor), nil
}

// GetOperation returns an operation, waiting until it no longer runs if asked to.
func (g *operationService) GetOperation(ctx context.Context, r *pawlv1.GetOperationRequest) (*pawlv1.GetOperationResponse, error) {
	id, err := apiproto.IDOf("operation_id", r.GetOperationId())
	if err != nil {
		return nil, err
	}
	wait, err := apiproto.WaitOf(r.GetWait())
	if err != nil {
		return nil, err
	}
	callinfo.Waits(ctx, wait)
	p, err := g.operation(ctx, "", func(ns string) (broker.OperationView, broker.Stamp, error) {
		return g.operations.Operation(ctx, ns, id, wait)
	})
	if err == nil && r.GetCurrentStates() {
		p.CurrentStates, err = g.outcomes(ctx, id, p.GetSpec())
	}
	return &pawlv1.GetOperationResponse{Operation: p}, err
}

// outcomesTimeout bounds how long each shard counts the outcomes of an operation's tasks: the web UI asks repeatedly.
const outcomesTimeout = 100 * time.Millisecond

// outcomes counts the tasks that an operation has changed by their current state. If all are in one queue, only its tasks are
// examined.
func (g *operationService) outcomes(ctx context.Context, id task.ID, spec *pawlv1.OperationSpec) (*pawlv1.CurrentStates, error) {
	f := broker.Filter{Operation: id}
	if contract.Actions[spec.GetAction()] != task.Move {
		f.Queue = spec.GetFilter().GetQueue()
	}
	counted, err := broker.CountMatches.Call(ctx, g.verbs, broker.MatchCount{OnShard: callinfo.OnShard(ctx, 0), Filter: f,
		Wait: outcomesTimeout})
	if err != nil {
		return nil, err
	}
	n := counted.Matches
	out := &pawlv1.CurrentStates{IsLowerBound: n.Next != nil || len(counted.Missing) > 0}
	for _, s := range slices.Sorted(maps.Keys(n.States)) {
		out.States = append(out.States, &pawlv1.StateCount{State: apiproto.StateProto(s), Count: n.States[s]})
	}
	return out, nil
}

// ListOperations returns a page of operations, newest first.
func (g *operationService) ListOperations(ctx context.Context, r *pawlv1.ListOperationsRequest) (*pawlv1.ListOperationsResponse, error) {
	n, below, err := apiproto.PageByID(r, apiproto.OperationCursor)
	if err != nil {
		return nil, err
	}
	list, err := broker.ListOperations.Call(ctx, g.verbs, broker.OperationList{OnShard: callinfo.OnShard(ctx, 0), ID: below, Limit: n})
	if err != nil {
		return nil, err
	}
	page := list.Page
	out := &pawlv1.ListOperationsResponse{Items: make([]*pawlv1.Operation, len(page.Operations))}
	for i, o := range page.Operations {
		out.Items[i] = apiproto.OperationProto(o, "")
	}
	if page.More {
		out.NextCursor = apiproto.EncodeCursor(apiproto.OperationCursor, page.Operations[n-1].ID[:])
	}
	return out, nil
}

// PauseOperation pauses an operation.
func (g *operationService) PauseOperation(ctx context.Context, r *pawlv1.PauseOperationRequest) (*pawlv1.PauseOperationResponse, error) {
	p, err := g.steerOperation(ctx, r, "paused", broker.PauseOperation)
	return &pawlv1.PauseOperationResponse{Operation: p}, err
}

// ResumeOperation resumes an operation.
func (g *operationService) ResumeOperation(ctx context.Context, r *pawlv1.ResumeOperationRequest) (*pawlv1.ResumeOperationResponse, error) {
	p, err := g.steerOperation(ctx, r, "resumed", broker.ResumeOperation)
	return &pawlv1.ResumeOperationResponse{Operation: p}, err
}

// AbortOperation aborts an operation.
func (g *operationService) AbortOperation(ctx context.Context, r *pawlv1.AbortOperationRequest) (*pawlv1.AbortOperationResponse, error) {
	p, err := g.steerOperation(ctx, r, "aborted", broker.AbortOperation)
	return &pawlv1.AbortOperationResponse{Operation: p}, err
}

// steering is what the requests that pause, resume and abort an operation have in common.
type steering interface {
	GetOperationId() string
	GetReason() string
}

// stopTime is how long a pause or an abort waits for the step in progress.
const stopTime = 2 * time.Second

func (g *operationService) steerOperation(ctx context.Context, r steering, done string, v *verb.Verb[broker.OperationOrder,
	broker.Shown[broker.OperationView]]) (*pawlv1.Operation, error) {
	id, err := apiproto.IDOf("operation_id", r.GetOperationId())
	if err != nil {
		return nil, err
	}
	by, err := callinfo.Author(ctx, r.GetReason())
	if err != nil {
		return nil, err
	}
	return g.steered(ctx, id, by, done, v)
}

func (g *operationService) steered(ctx context.Context, id task.ID, by task.Author, done string, v *verb.Verb[broker.OperationOrder,
	broker.Shown[broker.OperationView]]) (*pawlv1.Operation, error) {
	return g.operation(ctx, done, func(ns string) (broker.OperationView, broker.Stamp, error) {
		out, err := v.Call(ctx, g.verbs, broker.OperationOrder{OnOperation: broker.OnOperation{Namespace: ns, ID: id}, By: by})
		if err == nil && out.View.Stopping != 0 {
			if now, at, err := g.operations.Operation(ctx, ns, id, stopTime); err == nil {
				return now, at, nil
			}
		}
		return out.View, out.At, err
	})
}
