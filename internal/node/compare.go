package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/shard"
)

// A replica that differs from the others, because of a fault in memory, on the disk or in the program, is noticed before it leads: each leader
// compares the replicas of its shards in the background, a range of rows at a time, at the same log entry. That finds the difference and does not
// repair it. With three replicas the one that differs is probably wrong, but only an operator can know what happened to it, and a replica that is
// rebuilt by mistake takes the evidence with it.

const (
	// compareInterval and compareBytes bound what comparisons cost: every interval a node compares one range of one of the shards that it leads.
	// Reading and hashing a range takes some 4 ms, on each node with a replica.
	compareInterval = 5 * time.Second
	compareBytes    = 4 << 20
	// compareAgain is when a shard in which nothing was written is compared again: what is on a disk may change by itself.
	compareAgain = 3 * time.Minute
	// compareTime is how long replicas have for a range. One that takes longer is not compared this time.
	compareTime = 20 * time.Second
)

// comparer compares the replicas of the shards that this node leads.
type comparer struct {
	replicas *replicas
	copy     *cluster.Copy
	ask      func(ctx context.Context, node uint32, method string, request []byte) ([]byte, error)
	log      *slog.Logger

	// Owned by run.
	rounds map[uint32]*comparison // by shard
	last   uint32                 // shard that was compared last
}

// comparison is one pass over a shard's rows.
type comparison struct {
	term    uint64 // of the leader
	from    string // where the next range begins
	own     uint64 // entries that comparisons have added to the log in this term
	version uint64 // last entry before the pass, without those
	done    uint64 // version of the last complete pass; 0: none
	doneAt  time.Time
	found   map[uint64]finding // replicas that differ, in this pass
}

// finding is where a replica was found to differ from the others.
type finding struct {
	Index uint64 // log entry
	Apart bool   // most others agree; false: there is no telling which replica is right
}

// differing are the replicas of a shard that differ, as its leader has found. They are known from the moment at which they are found until a
// pass over all rows finds no difference.
type differing struct {
	found atomic.Pointer[map[uint64]finding]
}

// of returns those that are among some replicas.
func (d *differing) of(members []uint64) map[uint64]finding {
	found := d.found.Load()
	if found == nil {
		return nil
	}
	out := maps.Clone(*found)
	maps.DeleteFunc(out, func(id uint64, _ finding) bool { return !slices.Contains(members, id) })
	return out
}

func (d *differing) set(found map[uint64]finding) { d.found.Store(&found) }

// run compares until ctx ends. A node without others has nothing to compare, and sleeps.
func (c *comparer) run(ctx context.Context) {
	timer := time.NewTimer(compareInterval)
	defer timer.Stop()
	for {
		if changed := c.copy.Changed(); !hasPeers(c.copy.Map()) {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				continue
			}
		}
		timer.Reset(compareInterval)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		c.compareNext(ctx)
	}
}

// compareNext compares a range of the next shard that this node leads and that has something to compare.
func (c *comparer) compareNext(ctx context.Context) {
	led := slices.DeleteFunc(c.replicas.all(), func(id uint32) bool {
		rep := c.replicas.get(id)
		return rep == nil || !rep.shard.Leads()
	})
	after := slices.IndexFunc(led, func(id uint32) bool { return id > c.last })
	if after < 0 {
		after = 0
	}
	for _, id := range slices.Concat(led[after:], led[:after]) {
		rep := c.replicas.get(id)
		if rep == nil {
			continue
		}
		if compared, err := c.compare(ctx, id, rep); err != nil && ctx.Err() == nil {
			c.log.Debug("the replicas of a shard were not compared", "shard", id, "error", err)
		} else if compared {
			c.last = id
			return
		}
	}
}

// compare compares the next range of a shard. It returns false if there is nothing to compare.
func (c *comparer) compare(ctx context.Context, id uint32, rep *replica) (compared bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, compareTime)
	defer cancel()
	st, err := rep.shard.Status(ctx)
	members := slices.Concat(st.Voters, st.Learners)
	if err != nil || !st.Leading || len(members) < 2 {
		return false, err
	}
	p := c.rounds[id]
	if p == nil || p.term != st.Term {
		p = &comparison{term: st.Term}
		c.rounds[id] = p
	}
	if p.from == "" {
		if p.version = st.Applied - p.own; p.version == p.done && time.Since(p.doneAt) < compareAgain {
			return false, nil
		}
		p.found = map[uint64]finding{}
	}
	index, err := rep.shard.StartHash(ctx, shard.Range{From: p.from, Most: compareBytes})
	if errors.Is(err, shard.ErrChangeRefused) {
		return false, nil // next time
	}
	if err != nil {
		delete(c.rounds, id) // it is not known how many entries were added
		return false, err
	}
	p.own++
	hashes := c.collect(ctx, id, index, members)
	mine, known := hashes[st.Replica]
	if !known {
		return true, nil // the same range next time
	}
	c.judge(id, rep, p, hashes)
	if p.from = mine.Next; p.from == "" {
		p.done, p.doneAt = p.version, time.Now()
		rep.differing.set(p.found)
	}
	return true, nil
}

// collect returns the hashes of the replicas that computed theirs in time.
func (c *comparer) collect(ctx context.Context, id uint32, index uint64, members []uint64) map[uint64]shard.Hash {
	var mu sync.Mutex
	hashes := map[uint64]shard.Hash{}
	var all sync.WaitGroup
	for _, replica := range members {
		all.Go(func() {
			if h, known := hashOf(ctx, c.ask, nodeOf(replica), hashArgs{id, index}); known {
				mu.Lock()
				defer mu.Unlock()
				hashes[replica] = h
			}
		})
	}
	all.Wait()
	return hashes
}

// judge notes and logs which replicas differ from the others.
func (c *comparer) judge(id uint32, rep *replica, p *comparison, hashes map[uint64]shard.Hash) {
	for replica, f := range differ(hashes) {
		if _, known := p.found[replica]; known {
			continue
		}
		p.found[replica] = f
		now := map[uint64]finding{}
		if before := rep.differing.found.Load(); before != nil {
			maps.Copy(now, *before)
		}
		if _, told := now[replica]; !told {
			c.log.Error("a replica differs from the others", "shard", id, "replica", shard.ReplicaName(id, replica), "node", c.replicas.nodeName(replica),
				"index", f.Index, "most_others_agree", f.Apart)
		}
		now[replica] = f
		rep.differing.set(now)
	}
}

// differ returns the replicas whose hashes differ from those of most, or all if no hash is that of most.
func differ(hashes map[uint64]shard.Hash) map[uint64]finding {
	votes := map[shard.Hash]int{}
	for _, h := range hashes {
		votes[h]++
	}
	found := map[uint64]finding{}
	if len(votes) < 2 {
		return found
	}
	decided := false
	for _, n := range votes {
		decided = decided || 2*n > len(hashes)
	}
	for replica, h := range hashes {
		if !decided || 2*votes[h] <= len(hashes) {
			found[replica] = finding{h.Index, decided}
		}
	}
	return found
}

// hashOf polls a node until its replica has computed the hash. A replica that lags computes it when it gets there; one that was
// sent a snapshot from beyond the entry never does.
func hashOf(ctx context.Context, ask func(context.Context, uint32, string, []byte) ([]byte, error), node uint32, args hashArgs) (h shard.Hash, known bool) {
	request, err := cbor.Marshal(args)
	if err != nil {
		return h, false
	}
	for reached := time.Now(); ; {
		var out hashAnswer
		answer, err := ask(ctx, node, methodHash, request)
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
		case <-time.After(hashPollInterval):
		}
	}
}
