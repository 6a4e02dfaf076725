// Package verb describes calls between the parts of a cluster, each in one place, next to the code that it runs: its name on the wire, its
// request and answer, where it runs, and whether it may be repeated. A table holds the verbs of a package, which run on one part of a node,
// such as its broker; Parts holds the parts that a node has.
//
// A Runner takes a call to where it runs. For the gateway that is the router; tests have their own. The package knows no shards, no nodes
// and no network.
package verb

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Where is the part of the cluster that runs a verb.
type Where uint8

const (
	Shard      Where = iota // the node that leads the shard of the request
	System                  // the node that leads the system shard
	AllShards               // the leaders of all data shards; their answers are merged
	FirstShard              // the node that leads the first data shard, which holds what there is little of
	Node                    // the node of the request
	EachNode                // all nodes; the answers of those that answer in time are merged
	Replica                 // any node with a replica of the shard of the request
)

// Rule is a verb's description.
type Rule struct {
	Name       string // on the wire: from the first release on, a verb that changes its meaning gets another
	Where      Where
	Idempotent bool // repeating a call is safe when its outcome is unknown
	// Patience is how long a call keeps looking for the leader of its shard; 0: as long as an election may take. A call
	// of each node waits so long for one; 0: PartTime.
	Patience time.Duration
	Local    bool // other nodes can't call it

	table *table
}

// SystemRule returns the rule of an idempotent verb that the leader of the system shard runs.
func SystemRule(name string) Rule { return Rule{Name: name, Where: System, Idempotent: true} }

// Runner runs calls. If Do returns nil, the call has its answer; with an error, the answer may hold what was done before.
type Runner interface {
	Do(ctx context.Context, c Call) error
}

// Call is one call of a verb: its request and, once it has run, its answer.
type Call interface {
	Rule() *Rule
	// Shard returns the shard that the request is for.
	Shard() uint32
	// Request and Answer return pointers to the request and the answer.
	Request() any
	Answer() any
	// Run runs the call on the part of this node that the verb's package expects, and sets the answer.
	Run(ctx context.Context, here any) error
	// Wait returns a pointer to how long the call may wait for something; nil: it does not wait.
	Wait() *time.Duration
	Codec
	// Again returns a call with the same request.
	Again() Call
	// Merge merges the answers of calls that Split made into this call's. Parts returns the calls that were merged.
	Merge(answered []Call, missing []Missing) error
	Parts() []Call
}

// Verb is a kind of call, with a request and an answer. Both are encoded by the names of their fields. The interfaces that Req implements
// say more: see Sharded and the others in request.go.
type Verb[Req, Resp any] struct {
	rule  Rule
	run   func(on any, ctx context.Context, req Req) (Resp, error)
	merge func(req *Req, parts []Resp) (Resp, error)
}

// Nothing is the request or the answer of a verb that has none.
type Nothing struct{}

// New defines a verb, and adds it to the table of its package. run is a method of the part that has what the verb is about, or like one.
func New[P, Req, Resp any](to *Table[P], rule Rule, run func(on P, ctx context.Context, req Req) (Resp, error)) *Verb[Req, Resp] {
	rule.check(new(Req))
	return define(to, rule, run)
}

// check panics if a verb with such requests, whose answers nothing merges, can't run where the rule says.
func (r *Rule) check(request any) {
	_, sharded := request.(Sharded)
	_, toNode := request.(ToNode)
	_, anyShard := request.(AnyShard)
	switch {
	case (r.Where == Shard || r.Where == Replica) && !sharded:
		panic(r.Name + ": its request names no shard")
	case r.Where == System && sharded:
		panic(r.Name + ": its request names a shard, and it runs at the system shard")
	case r.Where == FirstShard && !anyShard:
		panic(r.Name + ": its request is not one to any shard")
	case r.Where == Node && !toNode:
		panic(r.Name + ": its request names no node")
	case r.Where == AllShards || r.Where == EachNode:
		panic(r.Name + ": nothing merges its answers")
	}
}

func define[P, Req, Resp any](to *Table[P], rule Rule, run func(on P, ctx context.Context, req Req) (Resp, error)) *Verb[Req, Resp] {
	rule.table = &to.table
	v := &Verb[Req, Resp]{rule: rule, run: func(on any, ctx context.Context, req Req) (Resp, error) { return run(on.(P), ctx, req) }}
	to.add(rule.Name, func() Call { return v.Make(*new(Req)) })
	return v
}

// NewVoid is New for a verb without an answer.
func NewVoid[P, Req any](to *Table[P], rule Rule, run func(on P, ctx context.Context, req Req) error) *Verb[Req, Nothing] {
	return New(to, rule, func(on P, ctx context.Context, req Req) (Nothing, error) { return Nothing{}, run(on, ctx, req) })
}

// NewSum defines a verb of each node, which may be repeated: add adds up what those report that answer in time.
func NewSum[P, Req, T any](to *Table[P], rule Rule, run func(on P, ctx context.Context, req Req) (T, error),
	add func(req *Req, values []T) T) *Verb[Req, Sum[T]] {
	rule.Where, rule.Idempotent = EachNode, true
	v := define(to, rule, func(on P, ctx context.Context, req Req) (sum Sum[T], err error) {
		sum.Value, err = run(on, ctx, req)
		return sum, err
	})
	v.merge = func(req *Req, parts []Sum[T]) (sum Sum[T], _ error) {
		values := make([]T, len(parts))
		for i, p := range parts {
			values[i] = p.Value
		}
		sum.Value = add(req, values)
		return sum, nil
	}
	return v
}

// Concat adds up lists, for NewSum.
func Concat[Req, T any](_ *Req, lists [][]T) []T { return slices.Concat(lists...) }

// Merged makes a verb of one shard one of all shards: each gets the same request, and merge merges their answers.
func (v *Verb[Req, Resp]) Merged(merge func(req *Req, parts []Resp) (Resp, error)) *Verb[Req, Resp] {
	if _, ok := any(new(Req)).(AnyShard); !ok {
		panic(fmt.Sprintf("%s: its request is not one to any shard", v.rule.Name))
	}
	v.rule.Where, v.merge = AllShards, merge
	return v
}

// Rule returns the verb's description.
func (v *Verb[Req, Resp]) Rule() *Rule { return &v.rule }

// Name returns the verb's name on the wire.
func (v *Verb[Req, Resp]) Name() string { return v.rule.Name }

// Call has a runner run the verb.
func (v *Verb[Req, Resp]) Call(ctx context.Context, by Runner, req Req) (Resp, error) {
	c := v.Make(req)
	err := by.Do(ctx, c)
	return c.Resp, err
}

// CallLocal runs the verb on this node, wherever else it might run. It allocates nothing.
func (v *Verb[Req, Resp]) CallLocal(ctx context.Context, parts *Parts, req Req) (Resp, error) {
	if on := parts.byTable[v.rule.table].on; on != nil {
		return v.run(on, ctx, req)
	}
	return v.Call(ctx, parts, req)
}
