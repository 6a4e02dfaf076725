package engine

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// makeRepeatable makes the claim repeatable until the earliest end of its leases.
func (p *claiming) makeRepeatable() {
	r, c, got := p.r, p.c, p.got
	row := schema.ClaimKeyRow{Until: got[0].Exec.Claim.Until}
	for _, t := range got {
		row.Until = min(row.Until, t.Exec.Claim.Until)
		row.Claims = append(row.Claims, schema.ClaimRef{ID: t.ID, Fence: t.Exec.Fence})
	}
	key := schema.ClaimKeyKey(c.Namespace, c.ClaimKey)
	r.tx.Set(key, row.Encode())
	r.SetDeadline(row.Until, schema.OnClaimKey, c.Namespace, key[len(c.Namespace)+2:])
}

// reclaim answers a repeated claim with those of its claims that still hold. If none does, it is treated as a new claim.
func (c *ClaimRequest) reclaim(r *Round) ([]Claimed, bool) {
	row, ok := r.tx.Get(schema.ClaimKeyKey(c.Namespace, c.ClaimKey))
	if !ok {
		return nil, false
	}
	k := schema.Must(schema.DecodeClaimKey(row))
	if k.Until <= r.now {
		return nil, false
	}
	again := make([]Claimed, 0, len(k.Claims))
	for _, ref := range k.Claims {
		x, err := r.Exec(c.Namespace, ref.ID)
		if err != nil || x.State != task.Claimed || x.Fence != ref.Fence {
			continue
		}
		e := r.Envelope(c.Namespace, ref.ID)
		q := r.Queue(c.Namespace, x.Queue)
		if !x.Claim.Repeated {
			step := r.Change(c.Namespace, ref.ID, x)
			step.To.Claim.Repeated = true
			step.Move()
			x = step.To
		}
		again = append(again, r.claimed(q, e, x, r.Checkpoint(c.Namespace, ref.ID, x)))
	}
	return again, len(again) > 0
}
