package engine

import (
	"github.com/pawlq/pawl/internal/engine/outbox"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Policy is a part of the engine that acts beside the life of a task: schedules, workflows, operations. The core knows none of them:
// it calls them at the points named here, in the order of one list. A nil function stands at no point.
type Policy struct {
	// Admitted acts on a new task that will be accepted, before its rows are written. It may change the envelope and the state.
	Admitted func(r *Round, n *NewTask, e *schema.Envelope, x *schema.Exec)
	// Ended acts when a task with links has ended, in the state that x names; in any other state the task lives again by a replay. The
	// result is that of success.
	Ended func(r *Round, ns string, id task.ID, x *schema.Exec, result schema.Result)
	// Delivered acts on a message of its own that was delivered to its shard, or that was refused there. Stays says that the message
	// must be delivered again.
	Delivered func(r *Round, ns string, m *outbox.Message, a Accepted, refused *task.Error) (stays bool)
	// Due acts on deadlines, by their kind. The deadline's row is gone by then.
	Due map[schema.DeadlineKind]func(r *Round, d schema.Deadline)
	// Seal writes what the policy has gathered in a round, when all its verbs have run.
	Seal func(r *Round)
	// Erased forgets what the leader remembers of a namespace.
	Erased func(l *Leader, ns string)
	// Check holds the policy's rows against the tasks.
	Check func(c Checker)
}

// Checker goes over the rows of a namespace. Package check has it.
type Checker interface {
	Namespace() string
	// Tasks are those that could be read.
	Tasks() map[task.ID]*schema.Exec
	Scan(tab byte, fn func(k, v []byte))
	// ExpectRow says that an index must have a row.
	ExpectRow(key, value []byte)
	// Find reports what does not agree.
	Find(format string, args ...any)
}

// points are the functions of all policies, by point.
type points struct {
	admitted  []func(*Round, *NewTask, *schema.Envelope, *schema.Exec)
	ended     []func(*Round, string, task.ID, *schema.Exec, schema.Result)
	delivered []func(*Round, string, *outbox.Message, Accepted, *task.Error) bool
	due       [256]func(*Round, schema.Deadline)
	seal      []func(*Round)
	erased    []func(*Leader, string)
}

func pointsOf(policies []Policy) *points {
	p := &points{due: [256]func(*Round, schema.Deadline){
		schema.OnKeyRenewed: keyRenewed, schema.OnKey: keysEnd, schema.OnRequest: keysEnd, schema.OnClaimKey: claimKeyEnds,
		schema.OnTokens: tokensCame, schema.OnBreaker: breakerDue, schema.OnSweep: sweep,
		schema.OnDue: taskDue, schema.OnExpiry: taskDue, schema.OnLease: leasesEnd, schema.OnForget: retentionsEnd, schema.OnForgotten: forgottenEnd,
	}}
	for i := range policies {
		y := &policies[i]
		p.admitted = appendSome(p.admitted, y.Admitted, y.Admitted != nil)
		p.ended = appendSome(p.ended, y.Ended, y.Ended != nil)
		p.delivered = appendSome(p.delivered, y.Delivered, y.Delivered != nil)
		p.seal = appendSome(p.seal, y.Seal, y.Seal != nil)
		p.erased = appendSome(p.erased, y.Erased, y.Erased != nil)
		for kind, act := range y.Due {
			p.due[kind] = act
		}
	}
	return p
}

func appendSome[F any](list []F, f F, some bool) []F {
	if some {
		list = append(list, f)
	}
	return list
}

// memoryOf is the key of a policy's memory: its type.
type memoryOf[T any] struct{}

// Memory is what a policy remembers between rounds: a T of its own, zero at first. It is thrown away with the leader.
func Memory[T any](l *Leader) *T { return memory[T](&l.memory) }

// RoundMemory is what a policy remembers during a round: a T of its own, zero at first.
func RoundMemory[T any](r *Round) *T { return memory[T](&r.memory) }

// HasRoundMemory returns what a policy remembers during a round; nil: nothing yet.
func HasRoundMemory[T any](r *Round) *T {
	m, _ := r.memory[memoryOf[T]{}].(*T)
	return m
}

func memory[T any](all *map[any]any) *T {
	if m, ok := (*all)[memoryOf[T]{}]; ok {
		return m.(*T)
	}
	if *all == nil {
		*all = map[any]any{}
	}
	m := new(T)
	(*all)[memoryOf[T]{}] = m
	return m
}
