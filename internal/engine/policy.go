package engine

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Policy is a part of the engine outside the life of a task: schedules, workflows, operations. The core knows none of
// them: it calls them at the points named here, in the order of one list. A nil function is not called.
type Policy struct {
	// Admitted is called for a new task that will be accepted, before its rows are written. It may change the envelope and the state.
	Admitted func(r *Round, n *NewTask, e *schema.Envelope, x *schema.Exec)
	// Ended is called when a task with links has ended or was replayed; x has its new state. The result is set only if the task succeeded.
	Ended func(r *Round, ns string, id task.ID, x *schema.Exec, result schema.Result)
	// Delivered is called when a message was delivered to its shard, or refused there. It returns true if the message
	// must be delivered again.
	Delivered func(r *Round, ns string, m *schema.Message, a Accepted, refused *task.Error) (stays bool)
	// Due handles deadlines, by their kind. The deadline's row has been deleted by then.
	Due map[schema.DeadlineKind]func(r *Round, d schema.Deadline)
	// Seal writes what the policy has gathered in a round, after all verbs have run.
	Seal func(r *Round)
	// Erased forgets what the leader remembers of a namespace.
	Erased func(l *Leader, ns string)
	// Check compares the policy's rows with the tasks.
	Check func(c Checker)
}

// Checker gives Policy.Check the rows of a namespace. Package check implements it.
type Checker interface {
	Namespace() string
	// Tasks returns the tasks that could be decoded.
	Tasks() map[task.ID]*schema.Exec
	Scan(tab byte, fn func(k, v []byte))
	// ExpectRow records that an index must have this row.
	ExpectRow(key, value []byte)
	// Find reports a disagreement.
	Find(format string, args ...any)
}

// points are the functions of all policies, by point.
type points struct {
	admitted  []func(*Round, *NewTask, *schema.Envelope, *schema.Exec)
	ended     []func(*Round, string, task.ID, *schema.Exec, schema.Result)
	delivered []func(*Round, string, *schema.Message, Accepted, *task.Error) bool
	due       [256]func(*Round, schema.Deadline)
	seal      []func(*Round)
	erased    []func(*Leader, string)
}

func pointsOf(policies []Policy) *points {
	p := &points{due: [256]func(*Round, schema.Deadline){
		schema.OnKey: keysEnd, schema.OnRequest: keysEnd, schema.OnClaimKey: claimKeyEnds,
		schema.OnTokens: tokenDue, schema.OnBreaker: breakerDue, schema.OnSweep: sweep,
		schema.OnDue: taskDue, schema.OnExpiry: taskDue, schema.OnLease: leasesEnd, schema.OnForget: retentionsEnd,
		schema.OnForgotten: forgottenEnd,
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

// memoryOf is the key of a policy's memory, by its type.
type memoryOf[T any] struct{}

// Memory returns what a policy remembers between rounds: its own T, initially zero. It is thrown away with the leader.
func Memory[T any](l *Leader) *T { return memory[T](&l.memory) }

// RoundMemory returns what a policy remembers during a round: its own T, initially zero.
func RoundMemory[T any](r *Round) *T { return memory[T](&r.memory) }

// HasRoundMemory returns what a policy remembers during a round, or nil if there is nothing yet.
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
