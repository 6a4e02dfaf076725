package verb

import (
	"context"
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
	c.Resp, err = c.verb.run(here, ctx, c.Req)
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
func (c *CallOf[Req, Resp]) Split(n int, to func(i int, request any)) []Call {
	parts := make([]Call, n)
	for i := range parts {
		part := c.verb.Make(c.Req)
		to(i, &part.Req)
		parts[i] = part
	}
	return parts
}

// Merge implements Call.
func (c *CallOf[Req, Resp]) Merge(answered []Call, missing []Missing) (err error) {
	c.parts = answered
	answers := make([]Resp, len(answered))
	for i, p := range answered {
		answers[i] = p.(*CallOf[Req, Resp]).Resp
	}
	c.Resp, err = c.verb.merge(&c.Req, answers)
	if l, ok := any(&c.Resp).(MayLack); ok {
		l.lack(missing)
	}
	return err
}
