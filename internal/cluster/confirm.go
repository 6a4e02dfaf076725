package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
)

// confirmTime is how long a call waits until the nodes have heard of a change. It is what revocation may take.
const confirmTime = time.Second

// follows registers up to which version a node's copy is complete, by its own word.
func (c *Control) follows(node uint32, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copies[node] = version
	if c.awaited != nil {
		close(c.awaited)
		c.awaited = nil
	}
}

// Confirm waits until the copies of all nodes that are alive are complete up to a version, for a second at most. Behind are the names
// of those members that have not said so, whether they are alive or not: one that hears nothing does not go by its copy for long.
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

// usesRest lies between two writes of when tokens were last used.
const usesRest = time.Minute

// used notes what a node has told of tokens.
func (c *Control) used(uses []auth.Use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range uses {
		if len(c.uses) < maxTokens && u.At > c.uses[u.Token] {
			c.uses[u.Token] = u.At
		}
	}
}

// usedAt is when a token was last used, if that is not written yet.
func (c *Control) usedAt(of auth.TokenName) store.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uses[of]
}

// writeUses writes when tokens were last used, all in one round. What is lost with a leader is a minute of that.
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
