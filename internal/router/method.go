package router

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pawlq/pawl/internal/broker"
)

// method is a call that can travel: its name, its arguments A and its result R, both structs of what is to go over the wire.
type method[A, R any] struct {
	name string
	// again: the call may be repeated without harm when nobody knows whether it ran.
	again bool
	// run does the call on this node.
	run func(ctx context.Context, r *Router, args A) (R, error)
	// atServer is run for calls from other nodes, if they need more; else nil.
	atServer func(ctx context.Context, r *Router, args A) (R, error)
	// wait is how long the call waits for something by its arguments, and left the arguments with a shorter wait; nil: it
	// doesn't.
	wait func(A) time.Duration
	left func(A, time.Duration) A
	// patience is how long the call looks for the leader of its shard; 0: routeTime.
	patience time.Duration
}

// onBroker makes a method of a call on this node's broker, which fills the answer in place.
func onBroker[A, R any](name string, again bool, run func(ctx context.Context, b Broker, a *A, out *R) error) *method[A, R] {
	return &method[A, R]{name: name, again: again, run: func(ctx context.Context, r *Router, a A) (out R, err error) {
		err = run(ctx, r.cfg.Broker, &a, &out)
		return out, err
	}}
}

// server is a method as other nodes call it.
type server interface {
	serve(ctx context.Context, r *Router, request []byte) ([]byte, error)
	title() string
}

func (m *method[A, R]) title() string { return m.name }

// serve runs a call of another node on this one, whatever comes of it: a served call is never sent on.
func (m *method[A, R]) serve(ctx context.Context, r *Router, request []byte) ([]byte, error) {
	var args A
	if err := decode(request, &args); err != nil {
		return encode(&reply[R]{Fault: &fault{Within: fmt.Sprintf("%s: request of %d bytes: %v", m.name, len(request), err)}})
	}
	out, err := m.safely(ctx, r, args)
	f := faultOf(err)
	if f != nil && f.Within != "" {
		r.log.Error("a call of another node failed within", "method", m.name, "error", err)
	}
	return encode(&reply[R]{Out: &out, Fault: f})
}

// safely keeps a panic from ending more than its call.
func (m *method[A, R]) safely(ctx context.Context, r *Router, args A) (out R, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if m.atServer != nil {
		return m.atServer(ctx, r, args)
	}
	return m.run(ctx, r, args)
}

// Serve runs a call that another node's router sent with Peers.Call, on this node. It returns no error of the call's own:
// those are in the answer.
func (r *Router) Serve(ctx context.Context, name string, request []byte) ([]byte, error) {
	ctx, name, request, err := ofScope(ctx, name, request)
	if err != nil {
		return encode(&reply[struct{}]{Fault: &fault{NotRun: "what it is limited to can't be read"}})
	}
	if m, ok := served[name]; ok {
		return m.serve(ctx, r, request)
	}
	if m, ok := r.methods.Load(name); ok {
		return m.(server).serve(ctx, r, request)
	}
	return encode(&reply[struct{}]{Fault: &fault{NotRun: fmt.Sprintf("it does not know the call %q", name)}})
}

// served are the methods that every router has.
var served = byName(enqueue, claim, abandon, await, settle, showTask, peekTask, listTasks, operate, explain, explainQueue, readQueue, purge, closeBreakers, deadGroups, replay,
	discardDead, copyQueues, dropCopy, keysUntil, holdsUnique, whoLeads, archived, archivedAt, placeQueue, getQueue, getQueues, putQueue, dropQueue, ensureQueue,
	spreadQueue, hasShard, nameSchedule, findSchedule, forgetSchedule, putSchedule, deleteSchedule, pauseSchedule, resumeSchedule,
	triggerSchedule, showSchedule, listSchedules, scheduleHistory, once, abandonOnce, onceHolds, onceUntil,
	auditShard, auditSystem,
	listWorkers, tallyWorkers, seenWorkers, awayNodes, quietWorker, resumeWorker, shardEvents, systemEvents,

	takeNotifications,

	makeGroup, findGroup, addToGroup, closeGroup, cancelGroup, showGroup, listGroups, groupMembers, hear,

	statsReport, statsBriefs, statsTrends, namespaceStatus, queueCounts, typeCounts, typeBriefs, typeReport,

	spaces, putShare, eraseNamespace,

	startOperation, showOperation, listOperations, pauseOperation, resumeOperation, abortOperation, countMatches, operateSome)

func byName(methods ...server) map[string]server {
	table := make(map[string]server, len(methods))
	for _, m := range methods {
		table[m.title()] = m
	}
	return table
}

// OnShard adds a method that runs where a shard is led, and returns the way to call it from this node. Again says that it may
// be repeated without harm when nobody knows whether it ran. Every node must add it, before it is called.
func OnShard[A, R any](r *Router, name string, again bool, run func(ctx context.Context, shard uint32, args A) (R, error)) func(ctx context.Context, shard uint32, args A) (R, error) {
	type sharded struct {
		Shard uint32
		Args  A
		Why   string `json:",omitempty"` // nodes of older releases pass over it
	}
	m := &method[sharded, R]{name: "shard." + name, again: again, run: func(ctx context.Context, _ *Router, a sharded) (R, error) {
		out, err := run(WithReason(ctx, a.Why), a.Shard, a.Args)
		return out, broker.Refusal(a.Shard, err)
	}}
	r.methods.Store(m.name, m)
	return func(ctx context.Context, shard uint32, args A) (R, error) {
		return call(ctx, r, m, shard, sharded{shard, args, Reason(ctx)})
	}
}

// reasonKey is of a context: why its calls of OnShard are made.
type reasonKey struct{}

// WithReason lets calls of OnShard say why they are made, for the log of the node that runs them.
func WithReason(ctx context.Context, why string) context.Context {
	if why == Reason(ctx) {
		return ctx
	}
	return context.WithValue(ctx, reasonKey{}, why)
}

// Reason is why a call of OnShard was made; "": it was not said.
func Reason(ctx context.Context) string {
	why, _ := ctx.Value(reasonKey{}).(string)
	return why
}

// OnSystem is OnShard for the system shard.
func OnSystem[A, R any](r *Router, name string, again bool, run func(ctx context.Context, args A) (R, error)) func(ctx context.Context, args A) (R, error) {
	on := OnShard(r, name, again, func(ctx context.Context, _ uint32, args A) (R, error) { return run(ctx, args) })
	return func(ctx context.Context, args A) (R, error) { return on(ctx, systemShard, args) }
}

// ask runs a call at another node.
func ask[A, R any](ctx context.Context, r *Router, m *method[A, R], shard, node uint32, args A) (out R, err error) {
	request, err := encode(&args)
	if err != nil {
		return out, fmt.Errorf("%s for node %d: %w", m.name, node, err)
	}
	name, request, err := withScope(ctx, m.name, request)
	if err != nil {
		return out, fmt.Errorf("%s for node %d: %w", m.name, node, err)
	}
	away, leave := r.aways.begin(ctx, destination{shard, node})
	defer leave()
	answer, err := r.cfg.Peers.Call(away, node, name, request)
	if cause := context.Cause(away); errors.Is(cause, errLeftBehind) && err != nil {
		err = cause
	}
	switch {
	case err == nil:
	case r.cfg.NotSent(err):
		return out, &notRun{err}
	default:
		return out, broker.Unknown("shard %d: node %d gave no answer: %v", shard, node, err)
	}
	var a reply[R]
	if err := decode(answer, &a); err != nil {
		r.log.Error("an answer of another node can't be read", "method", m.name, "node", node, "error", err)
		return out, broker.Unknown("shard %d: the answer of node %d can't be read", shard, node)
	}
	if a.Out != nil {
		out = *a.Out
	}
	return out, a.Fault.err(shard, node)
}
