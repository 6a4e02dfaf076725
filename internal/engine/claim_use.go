package engine

// beginClaim takes what the task's claim uses: slots, tokens, its key's turn.
func (c *Change) beginClaim() {
	r, q, x := c.r, c.q, c.To
	f := q.lanes.Flow(x.Key, r.now)
	q.lanes.Begin(f, r.now)
	taken := false
	if x.Key != "" {
		taken = q.limits.Begin(r, &f.Use, c.id, x)
	}
	if q.limits.TakeOfQueue(r, x) || taken {
		q.in(r).SweepLater()
	}
	q.lanes.BeginEnds(f, r.now)
	if q.breakers != nil {
		q.breakers.LetThrough(q.in(r), c.id, x.Type)
	}
}

// endClaim returns what the task's claim has used.
func (c *Change) endClaim() {
	r, q, x := c.r, c.q, c.From
	f := q.lanes.Flow(x.Key, r.now)
	if x.Key != "" && !q.limits.End(r, &f.Use, c.id, x) {
		q.lanes.Forget(f)
		f = q.lanes.Flow("", r.now) // as in readClaims
	}
	changed := q.lanes.End(&r.lanes, f)
	if changed || q.counts.Claimed == q.MaxRunning()-1 {
		q.in(r).Wake()
	}
	r.quotas.RoomIn(q.space)
}
