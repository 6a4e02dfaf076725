package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/node/members"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/transport"
)

// A directory that was replaced by an earlier copy of itself agrees with itself: only others can tell. So every node tells the others
// regularly how far its replicas have come, and they remember it, also over restarts. Before a node runs its replicas it asks what the
// others remember. If that is more than it has, it has forgotten entries that it acknowledged, and perhaps votes, so it is treated
// like one that lost its disk. A leader knows more exactly than that what its followers have; it tells them in its heartbeats.

// methodReach tells a node how far the caller's replicas have come, and asks how far it knows them to have come.
const methodReach = "reach"

const (
	// tellPause is how often a node tells the others.
	tellPause = 10 * time.Second
	// tellTime bounds one such call, knownTime each of the two steps of its answer that ask shards.
	tellTime  = time.Second
	knownTime = tellTime / 3
)

// reach answers methodReach. A leader adds what it knows of its followers.
func (e peerHandler) reach(ctx context.Context, from transport.Peer, request []byte) ([]byte, error) {
	var t members.Told
	if err := cbor.Unmarshal(request, &t); err != nil {
		return nil, err
	}
	if m := e.known(); m != nil && m.CheckMember(from.Number) != nil {
		if err := e.n.mustKnow(ctx, from); err != nil {
			e.n.fail(err)
		}
		return nil, fmt.Errorf("this node does not know %v as a member", from)
	}
	known := e.n.witness.Note(e.n.dir.Identity.Read().Cluster, from.Number, t)
	if e.n.member.Load() {
		led, _ := parallel.Ask(ctx, knownTime, len(known.Reached), func(ctx context.Context, i int) (uint64, error) {
			return e.n.replicas.reachOf(ctx, known.Reached[i]), nil
		})
		for i, at := range led {
			known.Reached[i].Index = max(known.Reached[i].Index, at)
		}
	}
	return cbor.Marshal(known)
}

// reachOf returns the last committed entry that a replica has acknowledged to a leader on this node; 0: unknown.
func (r *replicas) reachOf(ctx context.Context, of members.ReplicaReach) uint64 {
	rep := r.get(of.Shard)
	if rep == nil || !rep.shard.Leads() {
		return 0
	}
	st, err := rep.shard.Status(ctx)
	if err != nil || !st.Leading {
		return 0
	}
	return min(st.Progress[of.Replica].Match, st.Applied)
}

// tell tells a node how far replicas here have come, and returns the error for one that the node knows to have come further than last,
// its last entry here, or for another process that runs as this node.
func (n *Node) tell(ctx context.Context, name string, t members.Told, call func(context.Context, []byte) ([]byte, error),
	last func(context.Context, members.ReplicaReach) uint64) error {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	request, err := cbor.Marshal(t)
	if err != nil {
		return err
	}
	answer, err := call(ctx, request)
	var known members.Known
	if err != nil || cbor.Unmarshal(answer, &known) != nil {
		return nil // it may be down
	}
	if known.Twice {
		return fmt.Errorf("node %s has heard from another process that runs as node %q: only one may run on the directory %s or "+
			"a copy of it",
			name, n.cfg.Name, n.cfg.Dir)
	}
	for _, r := range known.Reached {
		if have := last(ctx, r); r.Index > have {
			return n.earlierCopy("replica %s had reached entry %d, as node %s knows, but ends at entry %d",
				shard.ReplicaName(r.Shard, r.Replica), r.Index, name, have)
		}
	}
	return nil
}

// earlierCopy returns the error for a directory that has forgotten something.
func (n *Node) earlierCopy(format string, args ...any) error {
	reason := fmt.Sprintf(format, args...) + ": this is an earlier copy of the directory"
	return &DamageError{What: "log", File: n.dir.File(datadir.LogDir), Reason: reason}
}

// mustKnow refuses, if this node leads the system shard, a member of its cluster whose number the system shard has not given out: then its
// copy is from before that node joined, and it leads alone because it knows no others.
func (n *Node) mustKnow(ctx context.Context, p transport.Peer) error {
	if !n.member.Load() {
		return nil
	}
	rep := n.replicas.get(systemShard)
	if rep == nil || !rep.shard.Leads() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, knownTime) // it may hang
	defer cancel()
	next, _, err := shard.View(ctx, rep.shard, func(r store.Reader) (uint32, error) {
		next, _, err := cluster.NextNode(r)
		return next, err
	})
	if err == nil && p.Number >= next { // otherwise it does not lead, or the node was removed long ago
		return n.earlierCopy("%v is a member of this cluster, and the system shard here does not know it", p)
	}
	return nil
}

// askOthers refuses a directory whose replicas had come further according to the other nodes. It waits only for those that are up:
// when all nodes start at once, none is.
func (n *Node) askOthers(ctx context.Context) error {
	if n.cfg.InMemory || n.cfg.PeerListener == nil || len(n.replicas.checked) == 0 {
		return nil
	}
	var mine []members.ReplicaReach
	for id, c := range n.replicas.checked {
		mine = append(mine, members.ReplicaReach{Shard: id, Replica: n.dir.Identity.Read().Replicas[id].Replica, Index: c.applied})
	}
	last := func(_ context.Context, r members.ReplicaReach) uint64 { return n.replicas.checked[r.Shard].last }
	return tellEach(n.bootstrap.others(), func(address string) error {
		call := func(ctx context.Context, request []byte) ([]byte, error) {
			_, answer, err := n.bootstrap.callAddress(ctx, n.bootstrap.known.Load(), address, methodReach, request)
			return answer, err
		}
		return n.tell(ctx, fmt.Sprintf("at %q", address), members.Told{Reached: mine}, call, last)
	})
}

// tellEach tells some nodes in parallel, and returns the first error.
func tellEach[T any](nodes []T, tell func(T) error) error {
	errs := make([]error, len(nodes))
	var calls sync.WaitGroup
	for i, node := range nodes {
		calls.Go(func() { errs[i] = tell(node) })
	}
	calls.Wait()
	return parallel.FirstError(errs)
}

// tellOthers tells the other nodes how far the replicas here have come, until ctx ends.
func (n *Node) tellOthers(ctx context.Context) {
	for {
		m := n.copy.Map()
		if err := n.witness.Save(m); err != nil {
			n.cfg.Logger.Warn("what is known of other nodes' replicas was not saved", "error", err)
		}
		mine := members.Told{Run: n.run, Reached: n.replicas.reached()}
		others := slices.DeleteFunc(m.Members(), func(node cluster.Node) bool { return node.Name == n.cfg.Name })
		err := tellEach(others, func(node cluster.Node) error {
			call := func(ctx context.Context, request []byte) ([]byte, error) {
				return n.transport.Call(ctx, node.Number, methodReach, request)
			}
			return n.tell(ctx, fmt.Sprintf("%q", node.Name), mine, call, n.replicas.lastOf)
		})
		if err != nil {
			n.fail(err)
			return
		}
		if pause(ctx, tellPause) != nil {
			return
		}
	}
}

// reached returns how far the running replicas have come.
func (r *replicas) reached() (all []members.ReplicaReach) {
	for _, id := range r.all() {
		if rep := r.get(id); rep != nil {
			all = append(all, members.ReplicaReach{Shard: id, Replica: rep.id, Index: rep.state.Applied().Index})
		}
	}
	return all
}

// lastOf returns the last entry in the log of a running replica, or one that is at least of.Index; of.Index if that is
// unknown. Its shard, which may hang, is asked only if it has not applied that entry: there would be no time left to
// ask others.
func (r *replicas) lastOf(ctx context.Context, of members.ReplicaReach) uint64 {
	if rep := r.get(of.Shard); rep != nil && rep.id == of.Replica {
		if at := rep.state.Applied().Index; at >= of.Index {
			return at
		}
		if st, err := rep.shard.Status(ctx); err == nil {
			return st.Last
		}
	}
	return of.Index
}
