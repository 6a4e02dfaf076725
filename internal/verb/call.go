package verb

import (
	"context"
	"time"
)

// call is a call of a verb.
type call[Req, Resp any] struct {
	verb *Verb[Req, Resp]
	Carried[Req, Resp]
	parts []Call
}

func (c *call[Req, Resp]) Rule() *Rule { return &c.verb.rule }

func (c *call[Req, Resp]) Run(ctx context.Context, here any) (err error) {
	c.Resp, err = c.verb.run(ctx, here, &c.Req)
	return err
}

func (c *call[Req, Resp]) Shard() uint32 {
	if p, ok := any(&c.Req).(Placed); ok {
		return p.Place()
	}
	return 0
}

func (c *call[Req, Resp]) Wait() *time.Duration {
	if w, ok := any(&c.Req).(Waiting); ok {
		return w.Waits()
	}
	return nil
}

func (c *call[Req, Resp]) Parts() []Call { return c.parts }

func (c *call[Req, Resp]) Split(shards []uint32) []Call {
	c.parts = make([]Call, len(shards))
	for i, shard := range shards {
		part := c.verb.new(c.Req)
		any(&part.Req).(Spread).Put(shard)
		c.parts[i] = part
	}
	return c.parts
}

func (c *call[Req, Resp]) Merge() (err error) {
	answers := make([]Resp, len(c.parts))
	for i, p := range c.parts {
		answers[i] = p.(*call[Req, Resp]).Resp
	}
	c.Resp, err = c.verb.merge(&c.Req, answers)
	return err
}
