package forward

import (
	"context"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/verb"
)

// Method is a call that is not a verb of broker or cluster, because it needs more than a shard has, or because it must cost nothing where
// this node leads. Its arguments A and its result R go over the wire. Register makes it ready for use.
type Method[A, R any] struct {
	verb.Rule
	// Run runs the call on this node.
	Run func(ctx context.Context, args A) (R, error)
	// ForOthers, if not nil, is run instead for calls from other nodes.
	ForOthers func(ctx context.Context, args A) (R, error)
	// Wait returns a pointer to how long the call may wait for something; nil: it doesn't wait.
	Wait func(*A) *time.Duration
}

// Caller calls a registered method. It is an interface because the compiler generates the methods of a generic type again in every package
// that refers to one of its instances, even through the fields of other types: 3 s of CPU for each package that imports a node.
type Caller[A, R any] interface {
	// Call runs the method where a shard is led. For this node it takes a shortcut that allocates nothing.
	Call(ctx context.Context, shard uint32, args A) (R, error)
	// CallOther is Call for a shard that this node does not lead.
	CallOther(ctx context.Context, shard uint32, args A) (R, error)
	// OnNode runs the method on a node.
	OnNode(ctx context.Context, node Node, args A) (R, error)
	// OnNodes runs the method on several nodes in parallel. The answers are in the order of the nodes, with the zero value for those that did
	// not answer within patience: they are away, or do not know the call yet.
	OnNodes(ctx context.Context, patience time.Duration, nodes []Node, args A) verb.Partial[[]R]
	// OnAllNodes is OnNodes for all nodes, with the answers of those that have answered.
	OnAllNodes(ctx context.Context, patience time.Duration, args A) verb.Partial[[]R]
	// OnReplica runs the method on any node with a replica of a shard: this one if it has one, otherwise the first that answers.
	OnReplica(ctx context.Context, shard uint32, args A) (R, error)
	// WithPatience returns a Caller that looks for the leader no longer than d.
	WithPatience(d time.Duration) Caller[A, R]
}

// registered is a method that a forwarder serves.
type registered[A, R any] struct {
	Method[A, R]
	f *Forwarder
}

// Register has a forwarder serve a method, under a name that no other has. Every node must register a method before any node calls it.
func Register[A, R any](f *Forwarder, m *Method[A, R]) Caller[A, R] {
	if _, taken := f.methods.Load(m.Name); taken {
		panic(fmt.Sprintf("two methods are named %q", m.Name))
	}
	return replace(f, m)
}

// replace is Register for a method that another may have been registered for: the last one is served.
func replace[A, R any](f *Forwarder, m *Method[A, R]) Caller[A, R] {
	r := &registered[A, R]{*m, f}
	f.methods.Store(m.Name, func() verb.Call { return r.make(SystemShard, *new(A)) })
	return r
}

// RegisterIdempotent registers a method that may be repeated when its outcome is unknown.
func RegisterIdempotent[A, R any](f *Forwarder, name string, run func(ctx context.Context, args A) (R, error)) Caller[A, R] {
	return Register(f, &Method[A, R]{Rule: verb.Rule{Name: name, Idempotent: true}, Run: run})
}

// RegisterSystem registers a method that runs where the system shard is led.
func RegisterSystem[A, R any](f *Forwarder, name string, idempotent bool, run func(ctx context.Context, args A) (R, error)) Caller[A, R] {
	return Register(f, &Method[A, R]{Rule: verb.Rule{Name: name, Idempotent: idempotent}, Run: func(ctx context.Context, args A) (R, error) {
		out, err := run(ctx, args)
		return out, broker.Refusal(SystemShard, err)
	}})
}

func (m *registered[A, R]) WithPatience(d time.Duration) Caller[A, R] {
	brief := *m
	brief.Patience = d
	return &brief
}

func (m *registered[A, R]) Call(ctx context.Context, shard uint32, args A) (R, error) {
	if !m.f.Leads(shard) {
		return m.CallOther(ctx, shard, args)
	}
	var began time.Time
	if m.Wait != nil {
		began = time.Now()
	}
	out, err := m.Run(ctx, args)
	if err == nil || !retryElsewhere(&m.Rule, err) {
		return out, err
	}
	c := m.make(shard, args)
	shortenWait(c, began)
	err = m.f.seek(ctx, c)
	return c.Resp, err
}

func (m *registered[A, R]) CallOther(ctx context.Context, shard uint32, args A) (R, error) {
	c := m.make(shard, args)
	err := m.f.seek(ctx, c)
	return c.Resp, err
}

func (m *registered[A, R]) make(shard uint32, args A) *methodCall[A, R] {
	return &methodCall[A, R]{m: m, shard: shard, Payload: verb.Payload[A, R]{Req: args}}
}

// methodCall is a call of a method.
type methodCall[A, R any] struct {
	m     *registered[A, R]
	shard uint32
	verb.Payload[A, R]
}

func (c *methodCall[A, R]) Rule() *verb.Rule { return &c.m.Rule }
func (c *methodCall[A, R]) Shard() uint32    { return c.shard }

func (c *methodCall[A, R]) Wait() *time.Duration {
	if c.m.Wait == nil {
		return nil
	}
	return c.m.Wait(&c.Req)
}

// Methods are not split: those that ask all shards do so themselves.

func (c *methodCall[A, R]) Parts() []verb.Call                      { return nil }
func (c *methodCall[A, R]) Split(int, func(int, any)) []verb.Call   { return nil }
func (c *methodCall[A, R]) Merge([]verb.Call, []verb.Missing) error { return nil }

// Run runs the call on the node that has made it.
func (c *methodCall[A, R]) Run(ctx context.Context, _ any) (err error) {
	c.Resp, err = c.m.Run(ctx, c.Req)
	return err
}

func (c *methodCall[A, R]) runForOthers(ctx context.Context) (err error) {
	run := c.m.Run
	if c.m.ForOthers != nil {
		run = c.m.ForOthers
	}
	c.Resp, err = run(ctx, c.Req)
	return err
}

// ownCall is a call of a method, of whatever types.
type ownCall interface {
	runForOthers(ctx context.Context) error
}

// OnShard adds a method that runs where a shard is led, and returns a function that calls it from this node. idempotent says that repeating
// a call is safe when its outcome is unknown. If it is added again, the last one is served.
func OnShard[A, R any](f *Forwarder, name string, idempotent bool, run func(ctx context.Context, shard uint32, args A) (R, error)) func(ctx context.Context, shard uint32, args A) (R, error) {
	type sharded struct {
		Shard uint32
		Args  A
		Why   string `json:",omitempty"` // ignored by nodes of older releases
	}
	m := replace(f, &Method[sharded, R]{Rule: verb.Rule{Name: "shard." + name, Idempotent: idempotent}, Run: func(ctx context.Context, a sharded) (R, error) {
		out, err := run(WithReason(ctx, a.Why), a.Shard, a.Args)
		return out, broker.Refusal(a.Shard, err)
	}})
	return func(ctx context.Context, shard uint32, args A) (R, error) {
		return m.Call(ctx, shard, sharded{shard, args, Reason(ctx)})
	}
}

// OnSystem is OnShard for the system shard.
func OnSystem[A, R any](f *Forwarder, name string, idempotent bool, run func(ctx context.Context, args A) (R, error)) func(ctx context.Context, args A) (R, error) {
	on := OnShard(f, name, idempotent, func(ctx context.Context, _ uint32, args A) (R, error) { return run(ctx, args) })
	return func(ctx context.Context, args A) (R, error) { return on(ctx, SystemShard, args) }
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
