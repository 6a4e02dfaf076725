package cluster

import "slices"

// shardState is a shard with all that balance considers.
type shardState struct {
	Shard
	Status
}

// balance returns the next step that evens out the load of the nodes, when all shards are at rest. It leaves out nodes that drain or are
// silent.
func balance(members []Member, shards []shardState) Step {
	if step := spread(members, shards); step.Kind != NoStep {
		return step
	}
	return shareLeaders(members, shards)
}

// spread moves a replica from the node with the most to the one with the fewest that can take it, if the difference is at least two.
func spread(members []Member, shards []shardState) Step {
	var best Step
	gap := 1
	for _, from := range members {
		if !from.eligible() {
			continue
		}
		for _, to := range members {
			if !to.eligible() || !to.hasRoom() || from.Replicas-to.Replicas <= gap {
				continue
			}
			if step, ok := moveOne(from, to, shards); ok {
				best, gap = step, from.Replicas-to.Replicas
			}
		}
	}
	return best
}

// moveOne moves a replica of a shard that has none on the other node, preferably one that doesn't lead.
func moveOne(from, to Member, shards []shardState) (step Step, ok bool) {
	for _, s := range shards {
		r, held := s.On(from.Number)
		_, holds := s.On(to.Number)
		if !held || holds || s.leaves(r.ID) || len(s.Replicas) >= maxReplicas {
			continue
		}
		step, ok = Step{Kind: AddReplica, Shard: s.ID, Node: to.Number, Replica: r.ID}, true
		if r.ID != s.Leader {
			return step, true
		}
	}
	return step, ok
}

// shareLeaders transfers the leadership of one shard, so that eventually no node leads two shards more than another that has a voter. It
// may take several transfers to get from the node with the most to the one with the fewest: the last of them comes first.
func shareLeaders(members []Member, shards []shardState) Step {
	leads := map[uint32]int{} // by node, for those that can lead something
	moves := map[uint32][]Step{}
	for _, s := range shards {
		from := NodeOf(s.Leader)
		for _, id := range s.Voters {
			to := NodeOf(id)
			if i := memberIndex(members, to); i < 0 || !members[i].mayLead() || s.leaves(id) || !s.fit(id) {
				continue
			}
			leads[to] += 0
			if id == s.Leader {
				leads[to]++
			} else if s.settled() && (s.Preferred == 0 || s.Preferred != from) {
				moves[from] = append(moves[from], Step{Kind: TransferLeader, Shard: s.ID, Replica: id,
					Why: "to balance leaders across nodes"})
			}
		}
	}
	var best Step
	gap := 1
	for from, n := range leads {
		if step, to := reach(from, leads, moves); step.Kind != NoStep && (n-leads[to] > gap || n-leads[to] == gap && gap > 1 &&
			lessStep(step, best)) {
			best, gap = step, n-leads[to]
		}
	}
	return best
}

// lessStep breaks ties, so that the choice is always the same.
func lessStep(a, b Step) bool {
	return a.Shard < b.Shard || a.Shard == b.Shard && a.Replica < b.Replica
}

// reach finds the node with the fewest leaders among those that leadership can get to from a node by a chain of transfers, and the last
// transfer of the shortest chain.
func reach(from uint32, leads map[uint32]int, moves map[uint32][]Step) (last Step, to uint32) {
	seen := map[uint32]Step{from: {}}
	to = from
	for queue := []uint32{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if leads[at] < leads[to] {
			last, to = seen[at], at
		}
		next := slices.Clone(moves[at])
		slices.SortStableFunc(next, func(a, b Step) int { return leads[NodeOf(a.Replica)] - leads[NodeOf(b.Replica)] })
		for _, step := range next {
			if n := NodeOf(step.Replica); n != from {
				if _, known := seen[n]; !known {
					seen[n] = step
					queue = append(queue, n)
				}
			}
		}
	}
	return last, to
}
