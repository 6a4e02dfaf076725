// Package verb describes calls between the parts of a cluster, each in one place: its name on the wire, what it takes and answers, where
// it runs, and whether it may be repeated. What runs a verb is in the package that describes it: broker for data shards, cluster for the
// system shard.
//
// A Runner brings a call to where it runs. To the gateway that is the router, to the router it is a broker or a control; a test has one
// of its own. The package knows no shards, no nodes and no network.
package verb

import (
	"context"
	"fmt"
	"time"
)

// Where says which part of the cluster runs a verb.
type Where uint8

const (
	Shard      Where = iota // the node that leads the shard of the request
	System                  // the node that leads the system shard
	AllShards               // the leaders of all data shards; their answers are merged
	FirstShard              // the node that leads the first data shard, in which lies what is few
	Node                    // each node by itself: no shard is asked
)

// Rule is what a verb says of itself.
type Rule struct {
	Name  string // on the wire between nodes: nodes of two releases know it
	Where Where
	Again bool // a call may be repeated without harm when nobody knows whether it ran
	// Patience is how long a call looks for the leader of its shard; 0: as long as an election may take.
	Patience time.Duration
}

// Runner runs calls. On return of nil the call has its answer; beside an error it may have what was done before.
type Runner interface {
	Do(ctx context.Context, c Call) error
}

// Call is a verb on its way, with its request and, once it has run, its answer.
type Call interface {
	Rule() *Rule
	// Shard is the one that the request is for.
	Shard() uint32
	// Request and Answer point to what the verb takes and answers.
	Request() any
	Answer() any
	// Run runs the call on the part of this node that its package says, and fills in the answer.
	Run(ctx context.Context, here any) error
	// Wait points to how long the call may wait for something; nil: it does not.
	Wait() *time.Duration
	Carrier
	// Split makes a call on each of some shards, of a verb of all shards, and Merge makes the answer of theirs. Parts are those of the last Split.
	Split(shards []uint32) []Call
	Merge() error
	Parts() []Call
}

// Verb is a call that takes a Req and answers a Resp. Both travel by the names of their fields. What Req embeds says more of it:
// see Placed, Signed and their like.
type Verb[Req, Resp any] struct {
	rule  Rule
	run   func(ctx context.Context, here any, req *Req) (Resp, error)
	merge func(req *Req, parts []Resp) (Resp, error)
}

// New describes a verb, and adds it to the table of its package.
func New[Req, Resp any](to *Table, rule Rule, run func(ctx context.Context, here any, req *Req) (Resp, error)) *Verb[Req, Resp] {
	if _, ok := any(new(Req)).(Placed); rule.Where == Shard && !ok {
		panic(fmt.Sprintf("%s: its request names no shard", rule.Name))
	}
	v := &Verb[Req, Resp]{rule: rule, run: run}
	to.add(rule.Name, func() Call { return v.Make(*new(Req)) })
	return v
}

// Merged makes the verb one of all shards: each is asked for the same, and merge makes one answer of theirs.
func (v *Verb[Req, Resp]) Merged(merge func(req *Req, parts []Resp) (Resp, error)) *Verb[Req, Resp] {
	if _, ok := any(new(Req)).(Spread); !ok {
		panic(fmt.Sprintf("%s: its request is not one to any shard", v.rule.Name))
	}
	v.rule.Where, v.merge = AllShards, merge
	return v
}

// Name is the verb's name on the wire.
func (v *Verb[Req, Resp]) Name() string { return v.rule.Name }

// Call has a runner run the verb.
func (v *Verb[Req, Resp]) Call(ctx context.Context, by Runner, req Req) (Resp, error) {
	c := v.Make(req)
	err := by.Do(ctx, c)
	return c.Resp, err
}

// Make makes a call, for a runner.
func (v *Verb[Req, Resp]) Make(req Req) *CallOf[Req, Resp] {
	return &CallOf[Req, Resp]{verb: v, Carried: Carried[Req, Resp]{Req: req}}
}
