package forward

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/verb"
)

// here runs a call on this node.
func (f *Forwarder) here(ctx context.Context, c verb.Call) error {
	return broker.Refusal(c.Shard(), f.cfg.Parts.Do(ctx, c))
}

// safely runs a call on this node, and turns a panic into an error.
func (f *Forwarder) safely(ctx context.Context, c verb.Call) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f.here(ctx, c)
}

// Serve runs a call that another node's router sent with Peers.Call, on this node and no other: a served call is never forwarded. Errors of
// the call itself are in the answer.
func (f *Forwarder) Serve(ctx context.Context, name string, request []byte) ([]byte, error) {
	ctx, name, request, err := unwrapScope(ctx, name, request)
	if err != nil {
		return verb.Encode(&refused{Fault: &Fault{NotRun: "what it is limited to can't be read"}})
	}
	c := f.cfg.Parts.Named(name)
	if c == nil {
		return verb.Encode(&refused{Fault: &Fault{NotRun: fmt.Sprintf("it does not know the call %q", name)}})
	}
	if err := c.DecodeRequest(request); err != nil {
		return verb.Encode(&refused{Fault: &Fault{Within: fmt.Sprintf("%s: request of %d bytes: %v", name, len(request), err)}})
	}
	err = f.safely(ctx, c)
	fault := FaultOf(err)
	if fault != nil && fault.Within != "" {
		f.log.Error("a call of another node failed within", "method", name, "error", err)
	}
	raw, err := rawFault(fault)
	if err != nil {
		return nil, err
	}
	return c.EncodeReply(raw)
}

// ask runs a call at another node.
func (f *Forwarder) ask(ctx context.Context, c verb.Call, shard, node uint32) error {
	name := c.Rule().Name
	request, err := c.EncodeRequest()
	if err != nil {
		return fmt.Errorf("%s for node %d: %w", name, node, err)
	}
	sent, request, err := wrapScope(ctx, name, request)
	if err != nil {
		return fmt.Errorf("%s for node %d: %w", name, node, err)
	}
	away, leave := f.remoteCalls.begin(ctx, destination{shard, node})
	defer leave()
	answer, err := f.cfg.Peers.Call(away, node, sent, request)
	if cause := context.Cause(away); errors.Is(cause, ErrNewLeader) && err != nil {
		err = cause
	}
	switch {
	case err == nil:
	case f.cfg.NotSent(err):
		return &notRun{err}
	default:
		return broker.Unknown("shard %d: node %d did not answer: %v", shard, node, err)
	}
	raw, err := c.DecodeReply(answer)
	var fault *Fault
	if err == nil {
		fault, err = ReadFault(raw)
	}
	if err != nil {
		f.log.Error("an answer of another node can't be read", "method", name, "node", node, "error", err)
		return broker.Unknown("shard %d: the answer of node %d can't be read", shard, node)
	}
	return fault.Err(shard, node)
}
