package registry

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on the workers that are connected to a node.
var Verbs verb.Table[*Registry]

// TallyTime is how long a count waits for a node.
const TallyTime = 500 * time.Millisecond

// Listing asks a node for a page of its workers.
type Listing struct {
	verb.AtNode
	Query Query
}

// Missed are workers that another node misses.
type Missed struct {
	verb.AtNode
	Missed []Absence
}

// TallyOf asks what nodes know of the workers of some queues.
type TallyOf struct{ Queues []QueueName }

var (
	ListWorkers = verb.New(&Verbs, verb.Rule{Name: "workers", Where: verb.Node, Idempotent: true},
		func(r *Registry, _ context.Context, q Listing) (Page, error) { return r.List(q.Query), nil })
	// SeenWorkers reports which of the missed workers the node has seen.
	SeenWorkers = verb.New(&Verbs, verb.Rule{Name: "seen-workers", Where: verb.Node, Idempotent: true},
		func(r *Registry, _ context.Context, q Missed) ([]bool, error) { return r.Seen(q.Missed), nil })
	TallyWorkers = verb.NewSum(&Verbs, verb.Rule{Name: "tally-workers", Patience: TallyTime},
		func(r *Registry, _ context.Context, q TallyOf) ([]Tally, error) {
			return []Tally{r.Tally(q.Queues)}, nil
		}, verb.Concat)
)
