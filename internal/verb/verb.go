// Package verb describes calls between the parts of a cluster, each in one place: its name on the wire, its request and answer, where it
// runs, and whether it may be repeated. The code that a verb runs is in the package that defines it: broker for data shards, cluster for
// the system shard.
//
// A Runner takes a call to where it runs. For the gateway that is the router, for the router it is a broker or a control; tests have their
// own. The package knows no shards, no nodes and no network.
package verb

import (
	"context"
	"fmt"
	"time"
)

// Where is the part of the cluster that runs a verb.
type Where uint8

const (
	Shard      Where = iota // the node that leads the shard of the request
	System                  // the node that leads the system shard
	AllShards               // the leaders of all data shards; their answers are merged
	FirstShard              // the node that leads the first data shard, which holds what there is little of
)

// Rule is a verb's description.
type Rule struct {
	Name       string // on the wire; must not change, since nodes of two releases use it
	Where      Where
	Idempotent bool // repeating a call is safe when its outcome is unknown
	// Patience is how long a call keeps looking for the leader of its shard; 0: as long as an election may take.
	Patience time.Duration
}

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
	// Split makes a call for each of some shards, for a verb of all shards, and Merge merges their answers into this call's, without those of
	// missing shards. Parts returns the calls of the last Split that were merged.
	Split(shards []uint32) []Call
	Merge(missing []Missing) error
	Parts() []Call
}

// Verb is a kind of call, with a request and an answer. Both are encoded by the names of their fields. The interfaces that Req implements
// say more: see Sharded, Authored and the others.
type Verb[Req, Resp any] struct {
	rule  Rule
	run   func(ctx context.Context, here any, req *Req) (Resp, error)
	merge func(req *Req, parts []Resp) (Resp, error)
}

// New defines a verb, and adds it to the table of its package.
func New[Req, Resp any](to *Table, rule Rule, run func(ctx context.Context, here any, req *Req) (Resp, error)) *Verb[Req, Resp] {
	if _, ok := any(new(Req)).(Sharded); rule.Where == Shard && !ok {
		panic(fmt.Sprintf("%s: its request names no shard", rule.Name))
	}
	v := &Verb[Req, Resp]{rule: rule, run: run}
	to.add(rule.Name, func() Call { return v.Make(*new(Req)) })
	return v
}

// Merged makes the verb one of all shards: each gets the same request, and merge merges their answers.
func (v *Verb[Req, Resp]) Merged(merge func(req *Req, parts []Resp) (Resp, error)) *Verb[Req, Resp] {
	if _, ok := any(new(Req)).(AnyShard); !ok {
		panic(fmt.Sprintf("%s: its request is not one to any shard", v.rule.Name))
	}
	v.rule.Where, v.merge = AllShards, merge
	return v
}

// Name returns the verb's name on the wire.
func (v *Verb[Req, Resp]) Name() string { return v.rule.Name }

// Call has a runner run the verb.
func (v *Verb[Req, Resp]) Call(ctx context.Context, by Runner, req Req) (Resp, error) {
	c := v.Make(req)
	err := by.Do(ctx, c)
	return c.Resp, err
}

// Make returns a call for a runner.
func (v *Verb[Req, Resp]) Make(req Req) *CallOf[Req, Resp] {
	return &CallOf[Req, Resp]{verb: v, Payload: Payload[Req, Resp]{Req: req}}
}
