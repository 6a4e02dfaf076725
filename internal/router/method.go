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

// method is a verb that routers themselves run, with what they know beside brokers: its arguments A and its result R are structs of what
// is to go over the wire.
type method[A, R any] struct {
	verb.Rule
	// run does the call on this node.
	run func(ctx context.Context, r *Router, args A) (R, error)
	// atServer is run for calls from other nodes, if they need more; else nil.
	atServer func(ctx context.Context, r *Router, args A) (R, error)
	// wait points to how long the call waits for something; nil: it doesn't.
	wait func(*A) *time.Duration
}

// onBroker makes a method of a call on this node's broker, which fills the answer in place.
func onBroker[A, R any](name string, again bool, run func(ctx context.Context, b Broker, a *A, out *R) error) *method[A, R] {
	return serve(&method[A, R]{Rule: verb.Rule{Name: name, Again: again}, run: func(ctx context.Context, r *Router, a A) (out R, err error) {
		err = run(ctx, r.cfg.Broker, &a, &out)
		return out, err
	}})
}

// served are the methods that every router has, beside the verbs of broker and cluster.
var served = map[string]func() verb.Call{}

// serve has every router answer a method.
func serve[A, R any](m *method[A, R]) *method[A, R] {
	if served[m.Name] != nil {
		panic(fmt.Sprintf("two methods are named %q", m.Name))
	}
	served[m.Name] = func() verb.Call { return m.call(systemShard, *new(A)) }
	return m
}

// call is a call of the method.
func (m *method[A, R]) call(shard uint32, args A) *ownCall[A, R] {
	return &ownCall[A, R]{m: m, shard: shard, Carried: verb.Carried[A, R]{Req: args}}
}

// ownCall is a call of a method.
type ownCall[A, R any] struct {
	m     *method[A, R]
	shard uint32
	verb.Carried[A, R]
}

func (c *ownCall[A, R]) Rule() *verb.Rule { return &c.m.Rule }
func (c *ownCall[A, R]) Shard() uint32    { return c.shard }

func (c *ownCall[A, R]) Wait() *time.Duration {
	if c.m.wait == nil {
		return nil
	}
	return c.m.wait(&c.Req)
}

// Methods are not split: what asks all shards does so itself.

func (c *ownCall[A, R]) Parts() []verb.Call         { return nil }
func (c *ownCall[A, R]) Split([]uint32) []verb.Call { return nil }
func (c *ownCall[A, R]) Merge() error               { return nil }

// Run runs the call on a router.
func (c *ownCall[A, R]) Run(ctx context.Context, here any) (err error) {
	c.Resp, err = c.m.run(ctx, here.(*Router), c.Req)
	return err
}

func (c *ownCall[A, R]) runAtServer(ctx context.Context, r *Router) (err error) {
	run := c.m.run
	if c.m.atServer != nil {
		run = c.m.atServer
	}
	c.Resp, err = run(ctx, r, c.Req)
	return err
}

// own is a call that a router runs itself.
type own interface {
	runAtServer(ctx context.Context, r *Router) error
}

// here runs a call on this node.
func (r *Router) here(ctx context.Context, c verb.Call) error {
	if _, ok := c.(own); ok {
		return c.Run(ctx, r)
	}
	if c.Rule().Where == verb.System {
		return broker.Refusal(systemShard, r.cfg.Control.Do(ctx, c))
	}
	return r.cfg.Broker.Do(ctx, c)
}

// safely runs a call on this node, and keeps a panic from ending more than the call.
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
	if own, ok := c.(own); ok {
		return own.runAtServer(ctx, r)
	}
	return r.here(ctx, c)
}

// callNamed makes an empty call for a request from another node; nil: nobody knows the name.
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

// Serve runs a call that another node's router sent with Peers.Call, on this node, whatever comes of it: a served call is never sent on.
// It returns no error of the call's own: those are in the answer.
func (r *Router) Serve(ctx context.Context, name string, request []byte) ([]byte, error) {
	ctx, name, request, err := ofScope(ctx, name, request)
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
	sent, request, err := withScope(ctx, name, request)
	if err != nil {
		return fmt.Errorf("%s for node %d: %w", name, node, err)
	}
	away, leave := r.aways.begin(ctx, destination{shard, node})
	defer leave()
	answer, err := r.cfg.Peers.Call(away, node, sent, request)
	if cause := context.Cause(away); errors.Is(cause, errLeftBehind) && err != nil {
		err = cause
	}
	switch {
	case err == nil:
	case r.cfg.NotSent(err):
		return &notRun{err}
	default:
		return broker.Unknown("shard %d: node %d gave no answer: %v", shard, node, err)
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

// OnShard adds a method that runs where a shard is led, and returns the way to call it from this node. Again says that it may
// be repeated without harm when nobody knows whether it ran. Every node must add it, before it is called.
func OnShard[A, R any](r *Router, name string, again bool, run func(ctx context.Context, shard uint32, args A) (R, error)) func(ctx context.Context, shard uint32, args A) (R, error) {
	type sharded struct {
		Shard uint32
		Args  A
		Why   string `json:",omitempty"` // nodes of older releases pass over it
	}
	m := &method[sharded, R]{Rule: verb.Rule{Name: "shard." + name, Again: again}, run: func(ctx context.Context, _ *Router, a sharded) (R, error) {
		out, err := run(WithReason(ctx, a.Why), a.Shard, a.Args)
		return out, broker.Refusal(a.Shard, err)
	}}
	r.methods.Store(m.Name, func() verb.Call { return m.call(systemShard, sharded{}) })
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
