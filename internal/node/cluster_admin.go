package node

import (
	"context"
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/gateway"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/task"
)

// admin is what operators may do to the cluster, wherever that is decided: it is the gateway.Admin.
type clusterAdmin struct {
	n           *Node
	groups      *groups
	replication func(context.Context, countArgs) (struct{}, error)
	auditKeep   func(context.Context, periodArgs) (struct{}, error)
	note        func(context.Context, authorArgs) (struct{}, error)
	mark        func(context.Context, uint32, struct{}) (uint64, error)
	check       func(context.Context, uint32, struct{}) ([]string, error)
	checkSystem func(context.Context, struct{}) ([]string, error)
}

// authorArgs say who makes a call that takes nothing else.
type authorArgs struct{ By task.Author }

// periodArgs are a time and who gives it.
type periodArgs struct {
	D  time.Duration
	By task.Author
}

// countArgs are a number and who gives it.
type countArgs struct {
	N  int
	By task.Author
}

// MarshalCBOR writes the number alone for nobody: nodes below the feature level at which authors are noted know no more.
func (a countArgs) MarshalCBOR() ([]byte, error) {
	if a.By.IsZero() {
		return cbor.Marshal(a.N)
	}
	type fields countArgs
	return cbor.Marshal(fields(a))
}

// UnmarshalCBOR takes both forms.
func (a *countArgs) UnmarshalCBOR(b []byte) error {
	if *a = (countArgs{}); cbor.Unmarshal(b, &a.N) == nil {
		return nil
	}
	type fields countArgs
	return cbor.Unmarshal(b, (*fields)(a))
}

func newClusterAdmin(n *Node) *clusterAdmin {
	r, c := n.router, n.control
	return &clusterAdmin{
		n:           n,
		groups:      n.groups,
		replication: onSystem(r, "replication", func(ctx context.Context, a countArgs) error { return c.SetReplication(ctx, a.By, a.N) }),
		auditKeep:   onSystem(r, "audit-retention", func(ctx context.Context, a periodArgs) error { return c.SetAuditRetention(ctx, a.By, a.D) }),
		note:        onSystem(r, "note-backup", func(ctx context.Context, a authorArgs) error { return c.NoteBackup(ctx, a.By) }),
		mark: router.OnShard(r, "mark", true, func(ctx context.Context, id uint32, _ struct{}) (uint64, error) {
			return onGroup(n.replicas, id, func(s *shard.Shard) (uint64, error) { return s.StartHash(ctx) })
		}),
		check: router.OnShard(r, "check", true, func(ctx context.Context, id uint32, _ struct{}) ([]string, error) {
			problems, _, err := n.broker.Check(ctx, id)
			return problems, err
		}),
		checkSystem: router.OnSystem(r, "check-system", true, func(ctx context.Context, _ struct{}) ([]string, error) { return c.Check(ctx) }),
	}
}

// noted is who is to be noted by the system shard: nobody, as long as it may be led by a node that knows no authors.
func (a *clusterAdmin) noted(by task.Author) task.Author {
	if (routerMap{a.n}).Level() < cluster.PoliciesLevel {
		return task.Author{}
	}
	return by
}

// onSystem makes a call that changes the system shard's tables. All of them may be repeated.
func onSystem[A any](r *router.Router, name string, do func(context.Context, A) error) func(context.Context, A) (struct{}, error) {
	return router.OnSystem(r, name, true, func(ctx context.Context, a A) (struct{}, error) { return struct{}{}, do(ctx, a) })
}

// Map implements gateway.Admin.
func (a *clusterAdmin) Map(context.Context) *cluster.Map { return a.n.copy.Map() }

// AddShards implements gateway.Admin.
func (a *clusterAdmin) AddShards(ctx context.Context, by task.Author, total int) error {
	return a.n.system.addShards(ctx, a.noted(by), total)
}

// SetReplication implements gateway.Admin.
func (a *clusterAdmin) SetReplication(ctx context.Context, by task.Author, n int) error {
	_, err := a.replication(ctx, countArgs{n, a.noted(by)})
	return err
}

// SetAuditRetention implements gateway.Admin.
func (a *clusterAdmin) SetAuditRetention(ctx context.Context, by task.Author, d time.Duration) error {
	_, err := a.auditKeep(ctx, periodArgs{d, a.noted(by)})
	return err
}

const (
	// methodHash asks a node for the hash of its replica.
	methodHash = "hash"
	// markTime is how long the leader of a shard may take to begin a comparison, and checkTime how long to check its numbers:
	// to read 10 GB takes a while.
	markTime  = 10 * time.Second
	checkTime = 5 * time.Minute
	// hashLook is how often a replica is asked, and hashTime for how long. A node that can't be reached is tried for reachTime:
	// a connection may be on its way.
	hashLook  = 50 * time.Millisecond
	hashTime  = 2 * time.Minute
	reachTime = 3 * time.Second
)

// hashArgs name a replica's state after an entry.
type hashArgs struct {
	Shard uint32
	Index uint64
}

// hashAnswer is its hash, if it is made.
type hashAnswer struct {
	Hash  shard.Hash
	Known bool
}

// hash answers methodHash.
func (n *Node) hash(request []byte) ([]byte, error) {
	var a hashArgs
	if err := cbor.Unmarshal(request, &a); err != nil {
		return nil, err
	}
	var out hashAnswer
	if rep := n.replicas.get(a.Shard); rep != nil {
		out.Hash, out.Known = rep.shard.Hash(a.Index)
	}
	return cbor.Marshal(out)
}

// Verify implements gateway.Admin.
func (a *clusterAdmin) Verify(ctx context.Context, id uint32) (v gateway.Verification, err error) {
	if _, ok := a.n.copy.Shard(id); !ok {
		return v, noShard(id)
	}
	v.Shard, v.Equal = id, true
	var members []uint64
	err = inTime(ctx, markTime, fmt.Sprintf("shard %d: its leader gave no answer", id), func(ctx context.Context) error {
		st, err := a.groups.Status(ctx, id)
		if err == nil {
			members = append(st.Voters, st.Learners...)
			v.Index, err = a.mark(ctx, id, struct{}{})
		}
		return err
	})
	if err != nil {
		return v, err
	}
	patient, cancel := context.WithTimeout(ctx, hashTime)
	defer cancel()
	var first *shard.Hash
	for _, replica := range members {
		node := nodeOf(replica)
		h, known := a.hashOf(patient, node, hashArgs{id, v.Index})
		v.Replicas = append(v.Replicas, gateway.ReplicaHash{Node: a.n.nodeName(uint64(node)), Hash: h.Sum, Known: known})
		if known && first == nil {
			first, v.Rows = &h, h.Rows
		}
		v.Equal = v.Equal && (!known || h == *first)
	}
	err = inTime(ctx, checkTime, fmt.Sprintf("shard %d: its numbers were not checked", id), func(ctx context.Context) (err error) {
		if id == systemShard {
			v.Problems, err = a.checkSystem(ctx, struct{}{})
		} else {
			v.Problems, err = a.check(ctx, id, struct{}{})
			v.Problems = v.Problems[:min(len(v.Problems), maxProblems)]
		}
		return err
	})
	return v, err
}

// inTime does a part of a verification, and says what it has waited for in vain.
func inTime(ctx context.Context, d time.Duration, what string, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	err := do(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return task.Unavailable(time.Second, "%s within %s: %v", what, d, err)
	}
	return err
}

// maxProblems bounds what one answer tells of numbers that don't agree: one is too many.
const maxProblems = 20

// hashOf asks a node until its replica has made the hash. One that lags makes it when it gets there; one that was sent a
// snapshot from beyond the entry never does.
func (a *clusterAdmin) hashOf(ctx context.Context, node uint32, args hashArgs) (h shard.Hash, known bool) {
	request, err := cbor.Marshal(args)
	if err != nil {
		return h, false
	}
	for reached := time.Now(); ; {
		var out hashAnswer
		answer, err := a.n.ask(ctx, node, methodHash, request)
		if err == nil && cbor.Unmarshal(answer, &out) == nil && out.Known {
			return out.Hash, true
		}
		if err == nil || !notSent(err) {
			reached = time.Now()
		} else if time.Since(reached) > reachTime {
			return h, false
		}
		select {
		case <-ctx.Done():
			return h, false
		case <-time.After(hashLook):
		}
	}
}

// ask calls a node, perhaps this one.
func (n *Node) ask(ctx context.Context, node uint32, method string, request []byte) ([]byte, error) {
	if node == n.book.read().Node {
		return peerHandler{n}.Call(ctx, n.self(), method, request)
	}
	return n.transport.Call(ctx, node, method, request)
}
