package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/system"
)

// confirmTime is how long a call waits for the nodes to learn of a change. It bounds the time that a revocation takes.
const confirmTime = time.Second

// Copies keeps the copies of all nodes up to date.
type Copies struct {
	shard     *system.Shard
	placement *Placement
	noteUses  func([]auth.Use) // takes the uses of tokens that a node has reported

	mu      sync.Mutex
	copies  map[uint32]uint64 // up to which version nodes have reported their copies to be complete
	awaited chan struct{}     // closed when a node reports that; nil: nobody waits for it
}

// NewCopies returns the copies of a system shard's tables.
func NewCopies(shard *system.Shard, p *Placement, noteUses func([]auth.Use)) *Copies {
	return &Copies{shard: shard, placement: p, noteUses: noteUses, copies: map[uint32]uint64{}}
}

// Elected must be called before a term begins.
func (c *Copies) Elected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.copies)
}

// noteCopyVersion records up to which version a node says that its copy is complete.
func (c *Copies) noteCopyVersion(node uint32, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copies[node] = version
	if c.awaited != nil {
		close(c.awaited)
		c.awaited = nil
	}
}

// Confirm waits, for a second at most, until the copies of all live nodes are complete up to a version. behind names the members that have
// not confirmed it, alive or not: one that is cut off does not rely on its copy for long.
func (c *Copies) Confirm(ctx context.Context, version uint64) (behind []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	m, err := c.placement.Map(ctx)
	if err != nil {
		return nil, err
	}
	members := m.Members()
	for {
		c.mu.Lock()
		lack := slices.DeleteFunc(slices.Clone(members), func(n Node) bool { return c.copies[n.Number] >= version })
		if c.awaited == nil {
			c.awaited = make(chan struct{})
		}
		confirmed := c.awaited
		c.mu.Unlock()
		alive := slices.ContainsFunc(lack, func(n Node) bool { return c.placement.liveness.silent(n.Number) < aliveFor })
		if alive {
			select {
			case <-confirmed:
				continue
			case <-ctx.Done():
			}
		}
		for _, n := range lack {
			behind = append(behind, n.Name)
		}
		return behind, nil
	}
}
