package members

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/shard"
)

// A replica that differs from the others, because of a fault in memory, on the disk or in the program, should be noticed before it leads.
// So each leader compares the replicas of its shards in the background, a range of rows at a time, at the same log entry. That finds the
// difference and does not repair it. With three replicas the one that differs is probably wrong, but only an operator can know what
// happened to it, and rebuilding a replica by mistake destroys the evidence.

const (
	// compareInterval and compareBytes bound what comparisons cost: every interval a node compares one range of one of the shards that it
	// leads. Reading and hashing a range takes some 4 ms, on each node with a replica.
	compareInterval = 5 * time.Second
	compareBytes    = 4 << 20
	// compareAgain is how long a shard in which nothing is written goes without a comparison: what is on a disk may change by itself.
	compareAgain = 3 * time.Minute
	// compareTime is how long replicas have for a range. One that takes longer is not compared this time.
	compareTime = 20 * time.Second
	// turnTime is how long the other shards wait for the comparison of one, which may hang.
	turnTime = time.Second
)

// Comparer compares the replicas of the shards that this node leads.
type Comparer struct {
	// Replicas returns the replicas of this node, in the order of their shards.
	Replicas func() []Replica
	// Alone reports whether there are no other nodes, and when that may have changed.
	Alone func() (changed <-chan struct{}, alone bool)
	// Hash returns what a replica has computed for an entry; false: it did not in time.
	Hash func(ctx context.Context, shard uint32, replica, index uint64) (shard.Hash, bool)
	// NodeName returns the name of a replica's node.
	NodeName func(replica uint64) string
	Logger   *slog.Logger

	// Owned by Run.
	passes map[uint32]*pass // by shard
	last   uint32           // shard that was compared last

	comparing sync.WaitGroup
	busy      sync.Map // shards that are being compared, by which their pass is owned meanwhile
}

// Replica is a replica of this node.
type Replica struct {
	ID        uint32 // of the shard
	Shard     *shard.Shard
	Differing *Differing
}

// pass is a pass over a shard's rows, in one term of its leader.
type pass struct {
	term    uint64 // of the leader
	from    string // where the next range begins; "": at the first row
	own     uint64 // entries that comparisons have added to the log in this term
	version uint64 // last entry before the pass, without those
	done    uint64 // version of the last complete pass; 0: none
	doneAt  time.Time
	found   map[uint64]Finding // replicas that differ, in this pass
	missed  map[uint64]bool    // replicas that were not compared in some range of this pass
}

// Finding is where a replica was found to differ from the others.
type Finding struct {
	Index uint64 // log entry
	Apart bool   // most others agree; false: there is no telling which replica is right
}

// Differing are the replicas of a shard that differ, as its leader has found. They are known from the moment at which they are found until
// a pass over all rows of all of them finds no difference.
type Differing struct {
	found atomic.Pointer[map[uint64]Finding]
}

// Of returns those that are among some replicas.
func (d *Differing) Of(members []uint64) map[uint64]Finding {
	found := d.found.Load()
	if found == nil {
		return nil
	}
	out := maps.Clone(*found)
	maps.DeleteFunc(out, func(id uint64, _ Finding) bool { return !slices.Contains(members, id) })
	return out
}

func (d *Differing) set(found map[uint64]Finding) { d.found.Store(&found) }

// Run compares until ctx ends. A node without others has nothing to compare, and sleeps.
func (c *Comparer) Run(ctx context.Context) {
	c.passes = map[uint32]*pass{}
	defer c.comparing.Wait()
	timer := time.NewTimer(compareInterval)
	defer timer.Stop()
	for {
		if changed, alone := c.Alone(); alone {
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
func (c *Comparer) compareNext(ctx context.Context) {
	led := slices.DeleteFunc(c.Replicas(), func(r Replica) bool {
		_, busy := c.busy.Load(r.ID)
		return busy || !r.Shard.Leads()
	})
	after := max(slices.IndexFunc(led, func(r Replica) bool { return r.ID > c.last }), 0)
	for _, r := range slices.Concat(led[after:], led[:after]) {
		if c.takeTurn(ctx, r) {
			c.last = r.ID
			return
		}
	}
}

// takeTurn compares the next range of a shard. It returns false if there is nothing to compare. A comparison that takes
// longer than turnTime goes on while others have their turns.
func (c *Comparer) takeTurn(ctx context.Context, r Replica) bool {
	p := c.passes[r.ID]
	if p == nil {
		p = &pass{}
		c.passes[r.ID] = p
	}
	c.busy.Store(r.ID, nil)
	done := make(chan bool, 1)
	c.comparing.Go(func() {
		compared, err := c.compare(ctx, r, p)
		if err != nil && ctx.Err() == nil {
			c.Logger.Debug("the replicas of a shard were not compared", "shard", r.ID, "error", err)
		}
		c.busy.Delete(r.ID)
		done <- compared && err == nil
	})
	late := time.NewTimer(turnTime)
	defer late.Stop()
	select {
	case compared := <-done:
		return compared
	case <-late.C:
		return true
	}
}

// compare compares the next range of a shard. It returns false if there is nothing to compare.
func (c *Comparer) compare(ctx context.Context, r Replica, p *pass) (compared bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, compareTime)
	defer cancel()
	st, err := r.Shard.Status(ctx)
	members := slices.Concat(st.Voters, st.Learners)
	if err != nil || !st.Leading || len(members) < 2 {
		return false, err
	}
	if p.term != st.Term {
		*p = pass{term: st.Term}
	}
	if p.from == "" {
		if p.version = st.Applied - p.own; p.version == p.done && time.Since(p.doneAt) < compareAgain {
			return false, nil
		}
		p.found, p.missed = map[uint64]Finding{}, map[uint64]bool{}
	}
	index, err := r.Shard.StartHash(ctx, shard.Range{From: p.from, Size: compareBytes})
	if errors.Is(err, shard.ErrChangeRefused) {
		return false, nil // next time
	}
	if err != nil {
		*p = pass{} // it is not known how many entries were added
		return false, err
	}
	p.own++
	hashes := c.collect(ctx, r.ID, index, members)
	mine, known := hashes[st.Replica]
	if !known {
		return true, nil // the same range next time
	}
	c.judge(r, p, hashes)
	for _, replica := range members {
		if _, compared := hashes[replica]; !compared {
			p.missed[replica] = true
		}
	}
	if p.from = mine.Next; p.from == "" {
		p.done, p.doneAt = p.version, time.Now()
		r.Differing.end(p, members)
	}
	return true, nil
}

// end notes the outcome of a pass. If a replica that differed was not compared, what was found before stands: with which replicas it agrees
// decides which of them differ.
func (d *Differing) end(p *pass, members []uint64) {
	for replica := range d.Of(members) {
		if p.missed[replica] {
			return
		}
	}
	d.set(p.found)
}

// collect returns the hashes of the replicas that computed theirs in time.
func (c *Comparer) collect(ctx context.Context, id uint32, index uint64, members []uint64) map[uint64]shard.Hash {
	var mu sync.Mutex
	hashes := map[uint64]shard.Hash{}
	var all sync.WaitGroup
	for _, replica := range members {
		all.Go(func() {
			if h, known := c.Hash(ctx, id, replica, index); known {
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
func (c *Comparer) judge(r Replica, p *pass, hashes map[uint64]shard.Hash) {
	for replica, f := range differ(hashes) {
		if _, known := p.found[replica]; known {
			continue
		}
		p.found[replica] = f
		now := map[uint64]Finding{}
		if before := r.Differing.found.Load(); before != nil {
			maps.Copy(now, *before)
		}
		if _, told := now[replica]; !told {
			c.Logger.Error("a replica differs from the others", "shard", r.ID, "replica", shard.ReplicaName(r.ID, replica), "node",
				c.NodeName(replica), "index", f.Index, "most_others_agree", f.Apart)
		}
		now[replica] = f
		r.Differing.set(now)
	}
}

// differ returns the replicas whose hashes differ from those of most, or all if no hash is that of most.
func differ(hashes map[uint64]shard.Hash) map[uint64]Finding {
	votes := map[shard.Hash]int{}
	for _, h := range hashes {
		votes[h]++
	}
	found := map[uint64]Finding{}
	if len(votes) < 2 {
		return found
	}
	decided := false
	for _, n := range votes {
		decided = decided || 2*n > len(hashes)
	}
	for replica, h := range hashes {
		if !decided || 2*votes[h] <= len(hashes) {
			found[replica] = Finding{h.Index, decided}
		}
	}
	return found
}
