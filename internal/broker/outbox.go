package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/broker/tasklog"
	"github.com/pawlq/pawl/internal/broker/waiting"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// outboxChunk is how many messages are read at a time.
	outboxChunk = 200
	// outboxSendTime bounds one delivery of a batch.
	outboxSendTime = 5 * time.Second
	// outboxReadPause is the pause after a pass for each message that was read in vain, so that a backlog leaves the node time for others.
	outboxReadPause, outboxLongPause = 10 * time.Microsecond, time.Second
	// outboxRetry is the pause before the outbox is read again when that has failed.
	outboxRetry = time.Second
	// outboxWarnEach is how often undelivered messages are logged.
	outboxWarnEach = 5 * time.Second
)

// outboxSender delivers the messages in a shard's outbox to their shards.
type outboxSender struct {
	r      *replica
	wake   chan struct{} // messages wait
	lanes  waiting.Lanes
	warned atomic.Int64 // when undelivered messages were last logged, in nanoseconds
}

// run delivers while this node leads the shard, until ctx ends.
func (s *outboxSender) run(ctx context.Context) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-again:
		}
		again = nil
		pass := outboxPass{s: s}
		if err := pass.run(ctx); err != nil {
			s.warn(ctx, err)
			sleep(ctx, outboxRetry)
			poke(s.wake)
		} else if !pass.due.IsZero() {
			again = time.After(time.Until(pass.due))
		}
		if pass.inVain > outboxChunk {
			sleep(ctx, min(time.Duration(pass.inVain)*outboxReadPause, outboxLongPause))
		}
	}
}

// warn logs why messages are still there, now and then.
func (s *outboxSender) warn(ctx context.Context, err error) {
	last, now := s.warned.Load(), time.Now().UnixNano()
	if ctx.Err() == nil && now-last >= int64(outboxWarnEach) && s.warned.CompareAndSwap(last, now) {
		s.r.warn("messages for other shards are not delivered yet", err)
	}
}

// outboxPass goes through the outbox once, and sends what does not wait.
type outboxPass struct {
	s      *outboxSender
	inVain int       // messages that were read and wait
	due    time.Time // when the first of them may be sent; zero: not before something wakes the sender
}

func (p *outboxPass) run(ctx context.Context) error {
	if !p.s.r.shard.Leads() {
		return nil
	}
	p.s.lanes.Begin()
	// From the shard itself: a node that has just started may not know any queue yet.
	spaces, _, err := read(ctx, p.s.r, func(from store.Reader) ([]string, error) { return schema.MessageNamespaces(from), nil })
	if err != nil {
		return err
	}
	for _, ns := range spaces {
		last, err := p.page(ctx, ns, task.ID{})
		for err == nil && last != (task.ID{}) {
			last, err = p.page(ctx, ns, last)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// page sends some messages after a request id, and returns the last one's; zero: there was none.
func (p *outboxPass) page(ctx context.Context, ns string, behind task.ID) (last task.ID, err error) {
	for {
		ended := p.s.lanes.Ended()
		all, _, err := read(ctx, p.s.r, func(from store.Reader) ([]schema.StoredMessage, error) {
			return schema.ListMessages(from, ns, behind, outboxChunk), nil
		})
		if err != nil || len(all) == 0 {
			return last, err
		}
		if sent, err := p.send(ctx, ns, all, ended); err != nil || sent {
			return all[len(all)-1].Request, err
		}
	}
}

// send sends those of the messages of a page that do not wait, unless the page must be read again.
func (p *outboxPass) send(ctx context.Context, ns string, all []schema.StoredMessage, ended uint64) (sent bool, err error) {
	now := time.Now()
	messages := make([]waiting.Message, len(all))
	for i, m := range all {
		messages[i] = waiting.Message{ID: m.Request, To: p.s.destination(ns, m.To)}
	}
	batches, due, ok := p.s.lanes.Assign(messages, ended, now)
	if !ok {
		return false, nil
	}
	decoded := make([][]*OutboxMessage, len(batches))
	for n, b := range batches {
		if decoded[n], err = p.s.decode(ctx, ns, all, b.Indexes); err != nil || len(decoded[n]) < len(b.Indexes) {
			return false, err
		}
	}
	p.due = waiting.Earlier(p.due, due)
	p.inVain += len(all)
	for n, b := range batches {
		if !p.s.lanes.Start(ctx, b) { // the end of a batch may have been what changed its lane, so do not wait for one
			p.due = waiting.Earlier(p.due, now.Add(waiting.MinPause))
			continue
		}
		p.inVain -= len(b.Indexes)
		p.s.r.work.Go(func() { p.s.send(ctx, ns, b, decoded[n]) })
	}
	return true, nil
}

// destination returns where a message goes, as far as this node knows.
func (s *outboxSender) destination(ns string, to schema.Address) waiting.Destination {
	d := waiting.Destination{Shard: to.Shard, Namespace: ns, Queue: to.Queue}
	if to.Queue != "" {
		d.Shard = s.r.b.cfg.ShardOf(ns, to.Queue, to.Slot)
	}
	return d
}

// decode decodes some of the messages of a page. Those that can't be understood it sets apart, and leaves out.
func (s *outboxSender) decode(ctx context.Context, ns string, all []schema.StoredMessage,
	indexes []int) (decoded []*OutboxMessage, err error) {
	for _, i := range indexes {
		m, damage := all[i].Message()
		if damage == nil {
			decoded = append(decoded, m)
		} else if err = s.setApart(ctx, ns, all[i].Request, damage); err != nil {
			return nil, err
		}
	}
	return decoded, nil
}

// send sends a batch of messages, and removes the answered ones from the outbox.
func (s *outboxSender) send(ctx context.Context, ns string, b *waiting.Batch, messages []*OutboxMessage) {
	for _, p := range messages {
		if p.Notification != nil {
			p.Notification.Shard = s.r.id
		}
	}
	sending, cancel := context.WithTimeout(ctx, outboxSendTime)
	defer cancel()
	out := s.r.b.cfg.SendOutbox(sending, ns, messages)
	s.sendAlone(sending, ns, messages, out)
	kept, err := s.delivered(ctx, ns, messages, out)
	if s.lanes.End(b, failures(kept, out), err == nil) {
		poke(s.wake)
	}
	for i := range out {
		if refused, answered := answerOf(out[i].Err); answered && refused != nil && err == nil && messages[i].IsTask() {
			s.logRefused(ns, messages[i], refused)
		}
	}
	if err == nil && len(kept) > 0 {
		err = out[kept[0]].Err
	}
	if err != nil {
		s.warn(ctx, err)
	}
}

// failures returns why the messages at some indexes stay in the outbox.
func failures(kept []int, out []Enqueued) []waiting.Failure {
	all := make([]waiting.Failure, len(kept))
	for n, i := range kept {
		_, answered := answerOf(out[i].Err)
		all[n] = waiting.Failure{Index: i, Reason: "its shard did not answer", Answered: answered}
		var panicked *PanicError
		if refusal, refused := task.AsError(out[i].Err); refused {
			all[n].Reason = refusal.Message
		} else if errors.As(out[i].Err, &panicked) {
			all[n] = waiting.Failure{Index: i, Reason: "its shard panicked, as its log says", Answered: true, Panicked: true}
		}
	}
	return all
}

func (s *outboxSender) setApart(ctx context.Context, ns string, message task.ID, why error) error {
	_, _, err := change(ctx, s.r, func(round *engine.Round) (struct{}, error) {
		engine.SetMessageApart(round, ns, message, why.Error())
		return struct{}{}, nil
	})
	return err
}

// sendAlone sends messages again, each in a call of its own, if a call with several has failed in a way that none of
// them explains: one of them may be what its shard can't handle, and would keep the others from it for ever.
func (s *outboxSender) sendAlone(ctx context.Context, ns string, messages []*OutboxMessage, out []Enqueued) {
	if len(messages) < 2 {
		return
	}
	for i := range out {
		var notLeader *NotLeader
		_, refused := task.AsError(out[i].Err)
		switch {
		case out[i].Err == nil || refused || errors.As(out[i].Err, &notLeader):
		case ctx.Err() != nil:
			out[i].Err = ctx.Err() // the error of all may be a panic, and this one need not be why
		default:
			out[i] = s.r.b.cfg.SendOutbox(ctx, ns, messages[i:i+1])[0]
		}
	}
}

// delivered records the outcome for messages, and returns the indexes of those that stay in the outbox. One whose
// outcome can't be recorded is set apart.
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
	attrs := append([]any{"namespace", ns, "queue", p.Spec.Queue, "type", p.Spec.Type, "error", refused}, tasklog.Trace(p.Spec.Headers)...)
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

// answerOf distinguishes a refusal from an error after which a message must be sent again.
func answerOf(err error) (refused *task.Error, answered bool) {
	if err == nil {
		return nil, true
	}
	refused, ok := task.AsError(err)
	return refused, ok && refused.Code != task.CodeUnavailable
}
