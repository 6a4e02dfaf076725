package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/gateway/administration"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// clusterAdmin is the gateway.Admin: operators' calls on the cluster, which run wherever they are decided.
type clusterAdmin struct {
	cfg       Config
	identity  *datadir.IdentityStore
	copy      *cluster.Copy
	routerMap routerMap
	names     nodeNames
	router    *router.Router
	groups    groups
	images    *images
	opened    func() // for tests: called when a backup has opened all images; may be nil
	stopping  func() bool
	peers     peerHandler
}

func newClusterAdmin(n *Node) *clusterAdmin {
	return &clusterAdmin{
		cfg:       n.cfg,
		identity:  n.dir.Identity,
		copy:      n.copy,
		routerMap: routerMap{n.copy, n.heartbeat},
		names:     nodeNames{n.copy},
		router:    n.router,
		groups:    n.groups,
		images:    n.images,
		stopping:  n.health.leaving.Load,
		peers:     peerHandler{n},
	}
}

// startHash starts a hash of all rows. It waits for a change of membership, or for a comparison in the background, to end.
func startHash(ctx context.Context, s *shard.Shard) (index uint64, err error) {
	for {
		index, err = s.StartHash(ctx, shard.Range{})
		if !errors.Is(err, shard.ErrChangeRefused) {
			return index, err
		}
		if pause(ctx, hashPollInterval) != nil {
			return index, err
		}
	}
}

// Map implements gateway.Admin.
func (a *clusterAdmin) Map(context.Context) *cluster.Map { return a.copy.Map() }

const (
	// methodHash asks a node for the hash of its replica.
	methodHash = "hash"
	// markTime is how long the leader of a shard may take to start a comparison, and checkTime how long to check its counters:
	// reading 10 GB takes a while.
	markTime  = 10 * time.Second
	checkTime = 5 * time.Minute
	// hashPollInterval is how often a replica is polled, and hashTime for how long. An unreachable node is retried for reachTime: a
	// connection may be about to be made.
	hashPollInterval = 50 * time.Millisecond
	hashTime         = 2 * time.Minute
	reachTime        = 3 * time.Second
)

// hashArgs identify a replica's state after an entry.
type hashArgs struct {
	Shard uint32
	Index uint64
}

// hashAnswer is its hash, once it has been computed.
type hashAnswer struct {
	Hash  shard.Hash
	Known bool
}

// Verify implements gateway.Admin.
func (a *clusterAdmin) Verify(ctx context.Context, id uint32) (v administration.Verification, err error) {
	if _, ok := a.copy.Shard(id); !ok {
		return v, noShard(id)
	}
	v.Shard = id
	var members []uint64
	err = withTimeout(ctx, markTime, fmt.Sprintf("shard %d: its leader gave no answer", id), func(ctx context.Context) error {
		st, err := a.groups.Status(ctx, id)
		if err == nil {
			members = append(st.Voters, st.Learners...)
			v.Index, err = groupMark.Call(ctx, a.router, groupCall[verb.Nothing]{Shard: id})
		}
		return err
	})
	if err != nil {
		return v, err
	}
	patient, cancel := context.WithTimeout(ctx, hashTime)
	defer cancel()
	var hashes []shard.Hash
	for _, replica := range members {
		node := nodeOf(replica)
		h, known := a.peers.hashOf(patient, node, hashArgs{id, v.Index})
		v.Replicas = append(v.Replicas, administration.ReplicaHash{Node: a.names.node(uint64(node)), Hash: h.Sum, Known: known})
		if known {
			hashes = append(hashes, h)
		}
	}
	v.Rows, v.Equal = compareHashes(hashes)
	err = withTimeout(ctx, checkTime, fmt.Sprintf("shard %d: its numbers were not checked", id), func(ctx context.Context) (err error) {
		if id == systemShard {
			v.Problems, err = auditlog.Check.Call(ctx, a.router, verb.Nothing{})
		} else {
			v.Problems, err = router.CheckShard.Call(ctx, a.router, broker.OnShard{Shard: id})
			v.Problems = v.Problems[:min(len(v.Problems), maxProblems)]
		}
		return err
	})
	return v, err
}

// compareHashes returns the rows of the first replica whose hash is known, and whether all of them have the same.
func compareHashes(known []shard.Hash) (rows int64, equal bool) {
	for _, h := range known {
		if h != known[0] {
			return known[0].Rows, false
		}
	}
	if len(known) > 0 {
		rows = known[0].Rows
	}
	return rows, true
}

// withTimeout runs a step of a verification, and names the step in the error if it times out.
func withTimeout(ctx context.Context, d time.Duration, what string, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	err := do(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return task.Unavailable(time.Second, "%s within %s: %v", what, d, err)
	}
	return err
}

// maxProblems bounds the mismatching counters in one answer: one is already too many.
const maxProblems = 20

// hashOf polls a node until its replica has computed the hash. A replica that lags computes it when it gets there; one that was
// sent a snapshot from beyond the entry never does.
func (e peerHandler) hashOf(ctx context.Context, node uint32, args hashArgs) (h shard.Hash, known bool) {
	request, err := cbor.Marshal(args)
	if err != nil {
		return h, false
	}
	for reached := time.Now(); ; {
		var out hashAnswer
		answer, err := e.ask(ctx, node, methodHash, request)
		if err == nil && cbor.Unmarshal(answer, &out) == nil && out.Known {
			return out.Hash, true
		}
		if err == nil || !notSent(err) {
			reached = time.Now()
		} else if time.Since(reached) > reachTime {
			return h, false
		}
		if pause(ctx, hashPollInterval) != nil {
			return h, false
		}
	}
}
