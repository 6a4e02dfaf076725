package claim

// These are exported for the tests.
const (
	AwaitTime   = awaitTime
	BriefTime   = briefTime
	LinkIdle    = linkIdle
	WatchMethod = watchMethod
)

// Served returns how many claims run here for other nodes.
func (c *Claims) Served() int {
	c.served.mu.Lock()
	defer c.served.mu.Unlock()
	return len(c.served.byID)
}

// Abandoned returns how many claims with lost answers are being looked after.
func (c *Claims) Abandoned() int { return c.abandoned.count() }

// Watches returns how many shared watches there are.
func (c *Claims) Watches() int {
	c.awaits.mu.Lock()
	defer c.awaits.mu.Unlock()
	return len(c.awaits.byForm)
}

// Remote counts what remains of claims in other nodes' shards.
type Remote struct {
	Claims, Shards, Links int
	Running               bool
}

// Remote returns these counts.
func (c *Claims) Remote() Remote {
	c.remote.mu.Lock()
	defer c.remote.mu.Unlock()
	return Remote{len(c.remote.claims), len(c.remote.byShard), len(c.remote.links), c.remote.running}
}

// Break ends the stream to a node.
func (c *Claims) Break(node uint32) {
	c.remote.mu.Lock()
	l := c.remote.links[node]
	c.remote.mu.Unlock()
	c.remote.broken(l)
}

// Post tells where the claims of a shard are watched.
type Post struct{ Node, Failed uint32 }

// Post returns where the claims of a shard are watched.
func (c *Claims) Post(shard uint32) Post {
	c.remote.mu.Lock()
	defer c.remote.mu.Unlock()
	p := c.remote.byShard[shard]
	return Post{p.node, p.failed}
}

// Frame and Notices are the frames of the streams that watch claims.
type (
	Frame   = watchFrame
	Notices = notices
)
