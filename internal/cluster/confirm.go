package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
)

// confirmTime is how long a call waits for the nodes to learn of a change. It bounds the time that a revocation takes.
const confirmTime = time.Second

// noteCopyVersion records up to which version a node says that its copy is complete.
func (c *Control) noteCopyVersion(node uint32, version uint64) {
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
func (c *Control) Confirm(ctx context.Context, version uint64) (behind []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	m, err := c.Map(ctx)
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
		news := c.awaited
		c.mu.Unlock()
		alive := slices.ContainsFunc(lack, func(n Node) bool { return c.silent(n.Number) < aliveFor })
		if alive {
			select {
			case <-news:
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

// noteTokenUses records the uses of tokens that a node reported.
func (c *Control) noteTokenUses(uses []auth.Use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range uses {
		if len(c.uses) < maxTokens && u.At > c.uses[u.Token] {
			c.uses[u.Token] = u.At
		}
	}
}

// usedAt returns when a token was last used, if that is not written yet.
func (c *Control) usedAt(of auth.TokenName) store.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uses[of]
}

// writeUses writes when tokens were last used, all in one round. A leader that fails loses at most a minute of that.
func (c *Control) writeUses(ctx context.Context) error {
	c.mu.Lock()
	uses := c.uses
	c.uses = map[auth.TokenName]store.Time{}
	c.mu.Unlock()
	if len(uses) == 0 {
		return nil
	}
	_, err := update(ctx, c, func(tx *store.Tx) (struct{}, error) {
		for of, at := range uses {
			if _, exists := tx.Get(tokenKey(of)); exists && uint64(at) > getNumber(tx, usedKey(of)) { // #nosec G115 -- after 1970
				tx.Set(usedKey(of), encodeNumber(uint64(at))) // #nosec G115
			}
		}
		return struct{}{}, nil
	})
	return err
}
