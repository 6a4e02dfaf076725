package router

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/verb"
)

// method is a verb that routers run themselves, because it needs more than brokers have. Its arguments A and its result R are structs that
// go over the wire.
type method[A, R any] struct {
	verb.Rule
	// run runs the call on this node.
	run func(ctx context.Context, r *Router, args A) (R, error)
	// atServer, if not nil, is run instead for calls from other nodes.
	atServer func(ctx context.Context, r *Router, args A) (R, error)
	// wait returns a pointer to how long the call may wait for something; nil: it doesn't wait.
	wait func(*A) *time.Duration
}

// onBroker defines a method that calls this node's broker and sets the answer in place.
func onBroker[A, R any](name string, idempotent bool, run func(ctx context.Context, b Broker, a *A, out *R) error) *method[A, R] {
	return serve(&method[A, R]{Rule: verb.Rule{Name: name, Idempotent: idempotent}, run: func(ctx context.Context, r *Router, a A) (out R, err error) {
		err = run(ctx, r.cfg.Broker, &a, &out)
		return out, err
	}})
}

// served has the methods that every router has, besides the verbs of broker and cluster.
var served = map[string]func() verb.Call{}

// serve registers a method with every router.
func serve[A, R any](m *method[A, R]) *method[A, R] {
	if served[m.Name] != nil {
		panic(fmt.Sprintf("two methods are named %q", m.Name))
	}
	served[m.Name] = func() verb.Call { return m.call(systemShard, *new(A)) }
	return m
}

// call returns a call of the method.
func (m *method[A, R]) call(shard uint32, args A) *methodCall[A, R] {
	return &methodCall[A, R]{m: m, shard: shard, Payload: verb.Payload[A, R]{Req: args}}
}

// methodCall is a call of a method.
type methodCall[A, R any] struct {
	m     *method[A, R]
	shard uint32
	verb.Payload[A, R]
}

func (c *methodCall[A, R]) Rule() *verb.Rule { return &c.m.Rule }
func (c *methodCall[A, R]) Shard() uint32    { return c.shard }

func (c *methodCall[A, R]) Wait() *time.Duration {
	if c.m.wait == nil {
		return nil
	}
	return c.m.wait(&c.Req)
}

// Methods are not split: those that ask all shards do so themselves.

func (c *methodCall[A, R]) Parts() []verb.Call         { return nil }
func (c *methodCall[A, R]) Split([]uint32) []verb.Call { return nil }
func (c *methodCall[A, R]) Merge() error               { return nil }

// Run runs the call on a router.
func (c *methodCall[A, R]) Run(ctx context.Context, here any) (err error) {
	c.Resp, err = c.m.run(ctx, here.(*Router), c.Req)
	return err
}

func (c *methodCall[A, R]) runAtServer(ctx context.Context, r *Router) (err error) {
	run := c.m.run
	if c.m.atServer != nil {
		run = c.m.atServer
	}
	c.Resp, err = run(ctx, r, c.Req)
	return err
}

// routerCall is a call that a router runs itself.
type routerCall interface {
	runAtServer(ctx context.Context, r *Router) error
}

// here runs a call on this node.
func (r *Router) here(ctx context.Context, c verb.Call) error {
	if _, ok := c.(routerCall); ok {
		return c.Run(ctx, r)
	}
	if c.Rule().Where == verb.System {
		return broker.Refusal(systemShard, r.cfg.Control.Do(ctx, c))
	}
	return r.cfg.Broker.Do(ctx, c)
}

// safely runs a call on this node, and turns a panic into an error.
func (r *Router) safely(ctx context.Context, c verb.Call, run func(context.Context, verb.Call) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return run(ctx, c)
}

// hereForOthers runs a call that another node has sent.
func (r *Router) hereForOthers(ctx context.Context, c verb.Call) error {
	if own, ok := c.(routerCall); ok {
		return own.runAtServer(ctx, r)
	}
	return r.here(ctx, c)
}

// callNamed returns an empty call for a request from another node; nil: the name is unknown.
func (r *Router) callNamed(name string) verb.Call {
	for _, table := range []*verb.Table{&broker.Verbs, &cluster.Verbs} {
		if c, ok := table.Call(name); ok {
			return c
		}
	}
	if make, ok := served[name]; ok {
		return make()
	}
	if make, ok := r.methods.Load(name); ok {
		return make.(func() verb.Call)()
	}
	return nil
}

// Serve runs a call that another node's router sent with Peers.Call, on this node and no other: a served call is never forwarded. Errors of
// the call itself are in the answer.
func (r *Router) Serve(ctx context.Context, name string, request []byte) ([]byte, error) {
	ctx, name, request, err := unwrapScope(ctx, name, request)
	if err != nil {
		return verb.Encode(&refused{Fault: &fault{NotRun: "what it is limited to can't be read"}})
	}
	c := r.callNamed(name)
	if c == nil {
		return verb.Encode(&refused{Fault: &fault{NotRun: fmt.Sprintf("it does not know the call %q", name)}})
	}
	if err := c.DecodeRequest(request); err != nil {
		return verb.Encode(&refused{Fault: &fault{Within: fmt.Sprintf("%s: request of %d bytes: %v", name, len(request), err)}})
	}
	err = r.safely(ctx, c, r.hereForOthers)
	f := faultOf(err)
	if f != nil && f.Within != "" {
		r.log.Error("a call of another node failed within", "method", name, "error", err)
	}
	raw, err := rawFault(f)
	if err != nil {
		return nil, err
	}
	return c.EncodeReply(raw)
}

// ask runs a call at another node.
func (r *Router) ask(ctx context.Context, c verb.Call, shard, node uint32) error {
	name := c.Rule().Name
	request, err := c.EncodeRequest()
	if err != nil {
		return fmt.Errorf("%s for node %d: %w", name, node, err)
	}
	sent, request, err := wrapScope(ctx, name, request)
	if err != nil {
		return fmt.Errorf("%s for node %d: %w", name, node, err)
	}
	away, leave := r.remoteCalls.begin(ctx, destination{shard, node})
	defer leave()
	answer, err := r.cfg.Peers.Call(away, node, sent, request)
	if cause := context.Cause(away); errors.Is(cause, errNewLeader) && err != nil {
		err = cause
	}
	switch {
	case err == nil:
	case r.cfg.NotSent(err):
		return &notRun{err}
	default:
		return broker.Unknown("shard %d: node %d did not answer: %v", shard, node, err)
	}
	raw, err := c.DecodeReply(answer)
	var f *fault
	if err == nil {
		f, err = readFault(raw)
	}
	if err != nil {
		r.log.Error("an answer of another node can't be read", "method", name, "node", node, "error", err)
		return broker.Unknown("shard %d: the answer of node %d can't be read", shard, node)
	}
	return f.err(shard, node)
}

// OnShard adds a method that runs where a shard is led, and returns a function that calls it from this node. idempotent says that repeating
// a call is safe when its outcome is unknown. Every node must add the method before it is called.
func OnShard[A, R any](r *Router, name string, idempotent bool, run func(ctx context.Context, shard uint32, args A) (R, error)) func(ctx context.Context, shard uint32, args A) (R, error) {
	type sharded struct {
		Shard uint32
		Args  A
		Why   string `json:",omitempty"` // ignored by nodes of older releases
	}
	m := &method[sharded, R]{Rule: verb.Rule{Name: "shard." + name, Idempotent: idempotent}, run: func(ctx context.Context, _ *Router, a sharded) (R, error) {
		out, err := run(WithReason(ctx, a.Why), a.Shard, a.Args)
		return out, broker.Refusal(a.Shard, err)
	}}
	r.methods.Store(m.Name, func() verb.Call { return m.call(systemShard, sharded{}) })
	return func(ctx context.Context, shard uint32, args A) (R, error) {
		return call(ctx, r, m, shard, sharded{shard, args, Reason(ctx)})
	}
}

// reasonKey is the context key of the reason for calls of OnShard.
type reasonKey struct{}

// WithReason attaches a reason to calls of OnShard, for the log of the node that runs them.
func WithReason(ctx context.Context, why string) context.Context {
	if why == Reason(ctx) {
		return ctx
	}
	return context.WithValue(ctx, reasonKey{}, why)
}

// Reason returns why a call of OnShard was made; "": unknown.
func Reason(ctx context.Context) string {
	why, _ := ctx.Value(reasonKey{}).(string)
	return why
}

// OnSystem is OnShard for the system shard.
func OnSystem[A, R any](r *Router, name string, idempotent bool, run func(ctx context.Context, args A) (R, error)) func(ctx context.Context, args A) (R, error) {
	on := OnShard(r, name, idempotent, func(ctx context.Context, _ uint32, args A) (R, error) { return run(ctx, args) })
	return func(ctx context.Context, args A) (R, error) { return on(ctx, systemShard, args) }
}
