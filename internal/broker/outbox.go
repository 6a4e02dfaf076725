package broker

import (
	"context"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/engine/outbox"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// outboxChunk is how many messages are on their way at once.
	outboxChunk = 200
	// outboxRest and outboxLongRest bound the pause before messages are brought again that no shard has answered for.
	outboxRest     = 500 * time.Millisecond
	outboxLongRest = 10 * time.Second
)

// sendOutbox brings what lies in the outbox to its shards.
func (r *replica) sendOutbox(ctx context.Context) {
	rest := outboxRest
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.toSend:
		}
		err := r.sendAll(ctx)
		if err == nil {
			rest = outboxRest
			continue
		}
		if ctx.Err() == nil {
			r.warn("messages for other shards are on their way still", err)
		}
		sleep(ctx, rest)
		rest = min(2*rest, outboxLongRest)
		poke(r.toSend)
	}
}

// sendAll goes once through the outbox. Its error says why something stays there.
func (r *replica) sendAll(ctx context.Context) (waits error) {
	if !r.shard.Leads() {
		return nil
	}
	// As the shard has them: a node that has just started may not have heard of any queue yet.
	spaces, _, err := read(ctx, r, func(from store.Reader) ([]string, error) { return outbox.Namespaces(from), nil })
	if err != nil {
		return err
	}
	for _, ns := range spaces {
		for behind, more := (task.ID{}), true; more && ctx.Err() == nil; {
			var why, err error
			behind, more, why, err = r.sendSome(ctx, ns, behind)
			if err != nil {
				return err
			}
			if waits == nil {
				waits = why
			}
		}
	}
	return waits
}

// sendSome brings messages behind a request to their shards, and takes those out of the outbox that were answered for. Waits says
// why the first of the others was not.
func (r *replica) sendSome(ctx context.Context, ns string, behind task.ID) (last task.ID, more bool, waits, failed error) {
	if !r.shard.Leads() {
		return last, false, nil, nil
	}
	messages, _, err := read(ctx, r, func(from store.Reader) ([]*OutboxMessage, error) {
		return outbox.List(from, ns, behind, outboxChunk), nil
	})
	if err != nil || len(messages) == 0 {
		return last, false, nil, err
	}
	for _, p := range messages {
		if p.Notification != nil {
			p.Notification.Shard = r.id
		}
	}
	out := r.b.cfg.SendOutbox(ctx, ns, messages)
	kept, _, err := change(ctx, r, func(round *engine.Round) (kept []int, _ error) {
		for i, p := range messages {
			if refused, answered := answerOf(out[i].Err); answered {
				if stays := engine.Delivered(round, ns, p.Request, out[i].Accepted, refused); !stays {
					continue
				}
			}
			kept = append(kept, i)
		}
		return kept, nil
	})
	if err == nil {
		r.deliveries.done(messages, out, kept)
	}
	if len(kept) > 0 {
		waits = out[kept[0]].Err
	}
	for i := range out {
		if refused, answered := answerOf(out[i].Err); answered && refused != nil && err == nil && messages[i].IsTask() {
			r.logRefused(ns, messages[i], refused)
		}
	}
	return messages[len(messages)-1].Request, true, waits, err
}

func (r *replica) logRefused(ns string, p *OutboxMessage, refused *task.Error) {
	attrs := append([]any{"namespace", ns, "queue", p.Spec.Queue, "type", p.Spec.Type, "error", refused}, traceAttrs(p.Spec.Headers)...)
	switch {
	case p.From.Schedule != "":
		attrs = append(attrs, "schedule", p.From.Schedule)
	case p.From.Parent != (task.ID{}):
		attrs = append(attrs, "parent_id", p.From.Parent.String())
	}
	if p.Spec.Member != nil {
		attrs = append(attrs, "group_id", p.Spec.Member.Group.String())
	}
	r.log.Warn("a task for another shard was refused", attrs...)
}

// maxDeliveries bounds the messages of which tries are remembered: more are on their way only when a shard is lost, and then one says it for all.
const maxDeliveries = 1000

// deliveries are the tries to bring messages that came to nothing, in this term.
type deliveries struct {
	mu    sync.Mutex
	tried map[task.ID]explain.Delivery
}

func (e *deliveries) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tried = map[task.ID]explain.Delivery{}
}

// done notes what came of messages, of which some are kept.
func (e *deliveries) done(messages []*OutboxMessage, out []Enqueued, kept []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, p := range messages {
		if len(kept) == 0 || kept[0] != i {
			delete(e.tried, p.Request)
			continue
		}
		kept = kept[1:]
		c, known := e.tried[p.Request]
		if !known && len(e.tried) >= maxDeliveries {
			continue
		}
		if c.Tries, c.Error = c.Tries+1, "its shard did not answer"; out[i].Err != nil {
			if said, ok := task.AsError(out[i].Err); ok {
				c.Error = said.Message
			}
		}
		e.tried[p.Request] = c
	}
}

func (e *deliveries) of(message task.ID) explain.Delivery {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tried[message]
}

// answerOf tells a refusal from an error after which a message is to be brought again.
func answerOf(err error) (refused *task.Error, answered bool) {
	if err == nil {
		return nil, true
	}
	refused, ok := task.AsError(err)
	return refused, ok && refused.Code != task.CodeUnavailable
}
