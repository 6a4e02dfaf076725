package engine

import (
	"github.com/pawlq/pawl/internal/engine/cache"
	"github.com/pawlq/pawl/internal/engine/deadline"
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/zonemap"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// LeaderTerm describes a leader's term of leadership.
type LeaderTerm struct {
	Epoch  uint64     // of the shard: part of every claim token
	Began  store.Time // the shard's time when this leader began
	Before store.Time // the last shard time before that
}

// Leader is what the leader of a shard remembers between rounds: settings, counters, the heads of lanes and the shares of
// weighted claims. All of it can be read again from the state. It changes while a round runs, so it must be thrown away
// when a round does not commit. It belongs to the shard's loop.
type Leader struct {
	term   LeaderTerm
	limits task.Limits
	queues map[queueName]*Queue
	orders lanes.Orders
	shares lanes.TurnBook // of claims from weighted queues
	hot    *cache.Tasks
	ids    map[string]*cache.IDs // by namespace
	keys   cache.Keys
	spaces map[string]*limit.Space // by namespace
	zones  map[string]*zonemap.Map // the same

	restored  cache.Restored
	timelines deadline.Timelines
	leases    deadline.Leases
	// renewedUpTo is the last deadline of a key that may be void because the key was renewed before it (request.go).
	renewedUpTo store.Time
	reading     []*Queue      // queues with lanes still to be read, or with expired tasks that claims left alone
	behind      []lanes.Range // to be read ahead

	transitions []Transition // of the last round; the slice is reused
	row         []byte       // buffer for an envelope or a state, which is copied when it is set
	hasher      Hasher
	points      *points
	memory      map[any]any // of policies, by the types of what they remember
}

type queueName struct{ ns, name string }

// NewLeader returns the memory of a new leader. Policies act in the given order.
func NewLeader(o LeaderTerm, l task.Limits, policies ...Policy) *Leader {
	return &Leader{term: o, limits: l, renewedUpTo: o.Began.Add(ForgetStep), points: pointsOf(policies), queues: map[queueName]*Queue{},
		hot: cache.NewTasks(), leases: deadline.Leases{}, ids: map[string]*cache.IDs{}, spaces: map[string]*limit.Space{},
		zones: map[string]*zonemap.Map{}}
}

// Limits returns the shard's limits.
func (l *Leader) Limits() task.Limits { return l.limits }
