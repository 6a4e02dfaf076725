package verb

import (
	"context"
	"slices"
	"time"
)

// CallOf is a call of a verb.
type CallOf[Req, Resp any] struct {
	verb *Verb[Req, Resp]
	Payload[Req, Resp]
	parts []Call
}

// Rule implements Call.
func (c *CallOf[Req, Resp]) Rule() *Rule { return &c.verb.rule }

// Run implements Call.
func (c *CallOf[Req, Resp]) Run(ctx context.Context, here any) (err error) {
	c.Resp, err = c.verb.run(ctx, here, &c.Req)
	return err
}

// Shard implements Call.
func (c *CallOf[Req, Resp]) Shard() uint32 {
	if p, ok := any(&c.Req).(Sharded); ok {
		return p.TargetShard()
	}
	return 0
}

// Wait implements Call.
func (c *CallOf[Req, Resp]) Wait() *time.Duration {
	if w, ok := any(&c.Req).(Waiting); ok {
		return w.Waits()
	}
	return nil
}

// Parts implements Call.
func (c *CallOf[Req, Resp]) Parts() []Call { return c.parts }

// Split implements Call.
func (c *CallOf[Req, Resp]) Split(shards []uint32) []Call {
	c.parts = make([]Call, len(shards))
	for i, shard := range shards {
		part := c.verb.Make(c.Req)
		any(&part.Req).(AnyShard).SetShard(shard)
		c.parts[i] = part
	}
	return c.parts
}

// Merge implements Call.
func (c *CallOf[Req, Resp]) Merge(missing []Missing) (err error) {
	c.parts = slices.DeleteFunc(c.parts, func(p Call) bool {
		return slices.ContainsFunc(missing, func(m Missing) bool { return m.Shard == p.Shard() })
	})
	answers := make([]Resp, len(c.parts))
	for i, p := range c.parts {
		answers[i] = p.(*CallOf[Req, Resp]).Resp
	}
	c.Resp, err = c.verb.merge(&c.Req, answers)
	if l, ok := any(&c.Resp).(MayLack); ok {
		l.lack(missing)
	}
	return err
}
