package verb

import (
	"context"
	"time"
)

// call is the part of a call that does not depend on the types of its verb: it is compiled once, and not for each verb.
type call struct {
	rule            *Rule
	request, answer any // point to the fields of the CallOf
	parts           []Call
}

// Rule implements Call.
func (c *call) Rule() *Rule { return c.rule }

// Request implements Call.
func (c *call) Request() any { return c.request }

// Answer implements Call.
func (c *call) Answer() any { return c.answer }

// Shard implements Call.
func (c *call) Shard() uint32 {
	if p, ok := c.request.(Sharded); ok {
		return p.TargetShard()
	}
	return 0
}

// Wait implements Call.
func (c *call) Wait() *time.Duration {
	if w, ok := c.request.(Waiting); ok {
		return w.Waits()
	}
	return nil
}

// Parts implements Call.
func (c *call) Parts() []Call { return c.parts }

// DecodeRequest implements Codec.
func (c *call) DecodeRequest(b []byte) error { return Decode(b, c.request) }

// Split makes n calls with the request of a call of all shards or each node; to says which shard or node each is for.
func Split(c Call, n int, to func(i int, request any)) []Call {
	parts := make([]Call, n)
	for i := range parts {
		parts[i] = c.Again()
		to(i, parts[i].Request())
	}
	return parts
}

// CallOf is a call of a verb.
type CallOf[Req, Resp any] struct {
	call
	verb *Verb[Req, Resp]
	Req  Req
	Resp Resp
}

// Make returns a call for a runner.
func (v *Verb[Req, Resp]) Make(req Req) *CallOf[Req, Resp] {
	c := &CallOf[Req, Resp]{verb: v, Req: req}
	c.rule, c.request, c.answer = &v.rule, &c.Req, &c.Resp
	return c
}

// Again implements Call.
func (c *CallOf[Req, Resp]) Again() Call { return c.verb.Make(c.Req) }

// Run implements Call.
func (c *CallOf[Req, Resp]) Run(ctx context.Context, here any) (err error) {
	c.Resp, err = c.verb.run(here, ctx, c.Req)
	return err
}

// Merge implements Call.
func (c *CallOf[Req, Resp]) Merge(answered []Call, missing []Missing) (err error) {
	c.parts = answered
	answers := make([]Resp, len(answered))
	for i, p := range answered {
		answers[i] = p.(*CallOf[Req, Resp]).Resp
	}
	c.Resp, err = c.verb.merge(&c.Req, answers)
	if l, ok := c.answer.(MayLack); ok {
		l.lack(missing)
	}
	return err
}

// EncodeRequest implements Codec. It clears the answer of an earlier attempt.
func (c *CallOf[Req, Resp]) EncodeRequest() ([]byte, error) {
	c.Resp = *new(Resp)
	return Encode(c.request)
}

// EncodeReply implements Codec.
func (c *CallOf[Req, Resp]) EncodeReply(fault []byte) ([]byte, error) {
	return Encode(&reply[Resp]{Out: &c.Resp, Fault: fault})
}

// DecodeReply implements Codec.
func (c *CallOf[Req, Resp]) DecodeReply(b []byte) ([]byte, error) {
	var a reply[Resp]
	if err := Decode(b, &a); err != nil {
		return nil, err
	}
	if a.Out == nil && len(a.Fault) == 0 { // both may be null, but what answers a call names both
		return nil, errNoReply
	}
	if c.Resp = *new(Resp); a.Out != nil {
		c.Resp = *a.Out
	}
	return a.Fault, nil
}
