package verb

import "context"

// Frame is the wire form of a request to the system shard. Other fields, as sent by nodes of older releases, are ignored.
type Frame[Req any] struct {
	Shard uint32 // 0
	Args  Req
}

// SystemVerb is a verb of the system shard.
type SystemVerb[Req, Resp any] struct{ Framed *Verb[Frame[Req], Resp] }

// NewSystem defines a verb of the system shard, and adds it to the table of its package.
func NewSystem[Req, Resp any](to *Table, name string, idempotent bool, run func(ctx context.Context, here any, req Req) (Resp, error)) SystemVerb[Req, Resp] {
	return SystemVerb[Req, Resp]{New(to, Rule{Name: "shard." + name, Where: System, Idempotent: idempotent}, func(ctx context.Context, here any, f *Frame[Req]) (Resp, error) {
		return run(ctx, here, f.Args)
	})}
}

// Call has a runner run the verb.
func (v SystemVerb[Req, Resp]) Call(ctx context.Context, by Runner, req Req) (Resp, error) {
	return v.Framed.Call(ctx, by, Frame[Req]{Args: req})
}
