package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/engine/outbox"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// outboxChunk is how many messages are in flight at a time.
	outboxChunk = 200
	// outboxRetry and outboxLongRetry bound the pause before unanswered messages are sent again.
	outboxRetry     = 500 * time.Millisecond
	outboxLongRetry = 10 * time.Second
)

// outboxSender delivers the messages in a shard's outbox to their shards.
type outboxSender struct {
	r          *replica
	wake       chan struct{} // messages wait
	deliveries deliveries
}

// run delivers while this node leads the shard, until ctx ends.
func (s *outboxSender) run(ctx context.Context) {
	retry := outboxRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		err := s.sendAll(ctx)
		if err == nil {
			retry = outboxRetry
			continue
		}
		if ctx.Err() == nil {
			s.r.warn("messages for other shards are not delivered yet", err)
		}
		sleep(ctx, retry)
		retry = min(2*retry, outboxLongRetry)
		poke(s.wake)
	}
}

// sendAll goes through the outbox once. The error says why a message is still there.
func (s *outboxSender) sendAll(ctx context.Context) (waits error) {
	if !s.r.shard.Leads() {
		return nil
	}
	// From the shard itself: a node that has just started may not know any queue yet.
	spaces, _, err := read(ctx, s.r, func(from store.Reader) ([]string, error) { return outbox.Namespaces(from), nil })
	if err != nil {
		return err
	}
	for _, ns := range spaces {
		for behind, more := (task.ID{}), true; more && ctx.Err() == nil; {
			var why, err error
			behind, more, why, err = s.sendSome(ctx, ns, behind)
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

// sendSome sends the messages after a request id to their shards, and removes the answered ones from the outbox. waits is the reason
// why the first of the others was not answered.
func (s *outboxSender) sendSome(ctx context.Context, ns string, behind task.ID) (last task.ID, more bool, waits, failed error) {
	if !s.r.shard.Leads() {
		return last, false, nil, nil
	}
	all, _, err := read(ctx, s.r, func(from store.Reader) ([]*OutboxMessage, error) {
		return outbox.List(from, ns, behind, outboxChunk), nil
	})
	if err != nil || len(all) == 0 {
		return last, false, nil, err
	}
	last = all[len(all)-1].Request
	messages, err := s.setDamagedApart(ctx, ns, all)
	if err != nil {
		return last, false, nil, err
	}
	messages, paused := s.deliveries.due(messages, time.Now())
	if len(messages) == 0 {
		return last, true, paused, nil
	}
	for _, p := range messages {
		if p.Notification != nil {
			p.Notification.Shard = s.r.id
		}
	}
	out := s.r.b.cfg.SendOutbox(ctx, ns, messages)
	s.sendAlone(ctx, ns, messages, out)
	kept, err := s.delivered(ctx, ns, messages, out)
	if err == nil {
		s.deliveries.done(messages, out, kept, time.Now())
	}
	if waits = paused; len(kept) > 0 {
		waits = out[kept[0]].Err
	}
	for i := range out {
		if refused, answered := answerOf(out[i].Err); answered && refused != nil && err == nil && messages[i].IsTask() {
			s.logRefused(ns, messages[i], refused)
		}
	}
	return last, true, waits, err
}

// setDamagedApart sets messages apart that can't be understood, and returns the others.
func (s *outboxSender) setDamagedApart(ctx context.Context, ns string, all []*OutboxMessage) (sound []*OutboxMessage, err error) {
	for _, p := range all {
		if p.Damage == "" {
			sound = append(sound, p)
		} else if err = s.setApart(ctx, ns, p.Request, errors.New(p.Damage)); err != nil {
			return nil, err
		}
	}
	return sound, nil
}

func (s *outboxSender) setApart(ctx context.Context, ns string, message task.ID, why error) error {
	_, _, err := change(ctx, s.r, func(round *engine.Round) (struct{}, error) {
		engine.SetMessageApart(round, ns, message, why.Error())
		return struct{}{}, nil
	})
	return err
}

// sendAlone sends messages again, each in a call of its own, if a call with several has failed in a way that none of them explains: one of them may be
// what its shard can't handle, and would keep the others from it for ever.
func (s *outboxSender) sendAlone(ctx context.Context, ns string, messages []*OutboxMessage, out []Enqueued) {
	if len(messages) < 2 {
		return
	}
	for i := range out {
		var notLeader *NotLeader
		_, refused := task.AsError(out[i].Err)
		if out[i].Err == nil || refused || errors.As(out[i].Err, &notLeader) || ctx.Err() != nil {
			continue
		}
		out[i] = s.r.b.cfg.SendOutbox(ctx, ns, messages[i:i+1])[0]
	}
}

// delivered records the outcome for messages, and returns the indexes of those that stay in the outbox. One whose outcome can't be recorded is set
// apart.
func (s *outboxSender) delivered(ctx context.Context, ns string, messages []*OutboxMessage, out []Enqueued) (kept []int, err error) {
	kept, _, err = change(ctx, s.r, func(round *engine.Round) (kept []int, _ error) {
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
	var panicked *PanicError
	if !errors.As(err, &panicked) {
		return kept, err
	}
	if len(messages) == 1 {
		return nil, s.setApart(ctx, ns, messages[0].Request, panicked)
	}
	for i := range messages {
		stays, err := s.delivered(ctx, ns, messages[i:i+1], out[i:i+1])
		if err != nil {
			return nil, err
		}
		if len(stays) > 0 {
			kept = append(kept, i)
		}
	}
	return kept, nil
}

func (s *outboxSender) logRefused(ns string, p *OutboxMessage, refused *task.Error) {
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
	s.r.log.Warn("a task for another shard was refused", attrs...)
}

// maxDeliveries bounds the messages whose attempts are remembered: more are in flight only when a shard is lost, and then any of them is representative.
const maxDeliveries = 1000

// A message that makes its shard panic is not sent again for a while: each panic costs the shard's leader its memory. It is not set apart, because it
// may be sound: a release that does not panic takes it. The pause doubles from panicPause to panicLongPause.
const panicPause, panicLongPause = 10 * time.Second, time.Hour

// deliveries records failed attempts to deliver messages in this term.
type deliveries struct {
	mu    sync.Mutex
	tried map[task.ID]delivery
}

type delivery struct {
	explain.Delivery
	pause time.Duration // after the last panic of the message's shard
	until time.Time     // when that pause ends
}

func (e *deliveries) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tried = map[task.ID]delivery{}
}

// due returns the messages that may be sent now, and why others may not.
func (e *deliveries) due(messages []*OutboxMessage, now time.Time) (due []*OutboxMessage, paused error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range messages {
		if c := e.tried[p.Request]; now.Before(c.until) {
			paused = fmt.Errorf("message %s is sent again in %v: %s", p.Request, c.until.Sub(now).Round(time.Second), c.Error)
		} else {
			due = append(due, p)
		}
	}
	return due, paused
}

// done records the outcome for messages, of which those at the indexes kept stay in the outbox.
func (e *deliveries) done(messages []*OutboxMessage, out []Enqueued, kept []int, now time.Time) {
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
		c.failed(out[i].Err, now)
		e.tried[p.Request] = c
	}
}

// failed records a failed attempt.
func (c *delivery) failed(err error, now time.Time) {
	c.Tries++
	refusal, refused := task.AsError(err)
	var panicked *PanicError
	switch {
	case refused:
		c.Error = refusal.Message
	case errors.As(err, &panicked):
		c.Error = "its shard panicked, as its log says"
		c.pause = min(max(2*c.pause, panicPause), panicLongPause)
		c.until = now.Add(c.pause)
	default:
		c.Error = "its shard did not answer"
	}
}

func (e *deliveries) of(message task.ID) explain.Delivery {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tried[message].Delivery
}

// answerOf distinguishes a refusal from an error after which a message must be sent again.
func answerOf(err error) (refused *task.Error, answered bool) {
	if err == nil {
		return nil, true
	}
	refused, ok := task.AsError(err)
	return refused, ok && refused.Code != task.CodeUnavailable
}
