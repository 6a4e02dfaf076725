package sqs

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// settling is a Core that records what is settled, and accepts or refuses messages by their payload.
type settling struct {
	oneQueue
	gone     bool             // there is no queue
	refusals map[string]error // by payload
	moved    []string
	settled  []broker.Settle
}

func (c *settling) Queue(_ context.Context, name string) (queues.Queue, bool, error) {
	return queues.Queue{Name: name, Config: c.q.Config}, !c.gone, nil
}

func (c *settling) Enqueue(_ context.Context, q queues.Queue, specs []task.Spec) []broker.Enqueued {
	out := make([]broker.Enqueued, len(specs))
	for i, s := range specs {
		if out[i].Err = c.refusals[string(s.Payload)]; out[i].Err == nil {
			c.moved = append(c.moved, q.Name+" "+string(s.Payload))
		}
	}
	return out
}

func (c *settling) Settle(_ context.Context, calls []broker.Settle) []broker.Settled {
	c.settled = append(c.settled, calls...)
	return make([]broker.Settled, len(calls))
}

// A message leaves its queue only once the dead-letter queue has it; until then receivers get it, and the other
// messages of the receive are moved.
func TestRedriveRefused(t *testing.T) {
	const byQueue = `{"redrivePermission":"byQueue","sourceQueueArns":["arn:aws:sqs:us-east-1:000000000000:`
	fifo := map[string]string{noteAttribute + "FifoQueue": "true"}
	for name, c := range map[string]struct {
		gone   bool
		source map[string]string // annotations
		target map[string]string // those of the dead-letter queue
		err    error
	}{
		"FIFO, of a standard one":   {target: fifo},
		"standard, of a FIFO one":   {source: fifo},
		"FIFO, of a FIFO one, full": {source: fifo, target: fifo, err: &task.Error{Code: task.CodeQueueFull}},
		"closed":                    {target: map[string]string{noteAttribute + "RedriveAllowPolicy": `{"redrivePermission":"denyAll"}`}},
		"open to another source":    {target: map[string]string{noteAttribute + "RedriveAllowPolicy": byQueue + `other"]}`}},
		"open to this source, full": {target: map[string]string{noteAttribute + "RedriveAllowPolicy": byQueue + `mail"]}`},
			err: &task.Error{Code: task.CodeQueueFull}},
		"full":        {err: &task.Error{Code: task.CodeQueueFull}},
		"unavailable": {err: task.Unavailable(0, "a shard has no leader")},
		"not allowed": {err: &task.Error{Code: task.CodePermissionDenied}},
		"too large":   {err: task.Invalid("payload", "too large")},
		"unknown":     {err: errors.New("no refusal")},
		"gone":        {gone: true},
	} {
		core := &settling{gone: c.gone, refusals: map[string]error{"refused": c.err}}
		core.q.Config.Annotations = c.target
		x := exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: httptest.NewRequest("POST", "http://pawl/", nil)}
		var got []broker.Claimed
		var holds []broker.Hold
		for i, payload := range []string{"new", "first", "refused", "last"} {
			token := task.Token{Fence: 4, Nonce: uint64(i)}
			if payload == "new" {
				token.Fence = 3
			}
			m := broker.Claimed{Envelope: &schema.Envelope{ID: task.NewID(1, int64(i), 0), Payload: []byte(payload)}, Exec: &schema.Exec{},
				Token: token}
			got, holds = append(got, m), append(holds, holdOf(&m))
		}
		wantLeft, wantMoved, wantEnded := "new refused", []string{"dead first", "dead last"}, []broker.Hold{holds[1], holds[3]}
		if c.err == nil {
			wantLeft, wantMoved, wantEnded = "new first refused last", nil, nil
		}
		left, err := x.redrive(&queues.Queue{Name: "mail", Config: task.QueueConfig{Annotations: c.source}},
			redrive{Target: "arn:aws:sqs:us-east-1:000000000000:dead", Max: 3}, got)
		if err != nil {
			t.Fatal(err)
		}
		stays := ""
		for _, m := range left {
			stays += " " + string(m.Payload)
		}
		var ended []broker.Hold
		for _, s := range core.settled {
			if ended = append(ended, s.Hold); s.Verb != broker.Fail || s.Fail.Action != broker.FailDiscard {
				t.Errorf("%s: a message that was moved is settled by %+v, want it discarded", name, s)
			}
		}
		if stays != " "+wantLeft || !slices.Equal(core.moved, wantMoved) || !slices.Equal(ended, wantEnded) {
			t.Errorf("%s: the receiver gets%s, want %s; moved are %q, want %q; ended are %v, want %v", name, stays, wantLeft, core.moved,
				wantMoved, ended, wantEnded)
		}
	}
}

// Keys that make calls repeatable differ in everything that makes the calls differ, and in nothing else.
func TestKeysOfRepeatedCalls(t *testing.T) {
	fifo := map[string]string{noteAttribute + "FifoQueue": "true"}
	perGroup := map[string]string{noteAttribute + "DeduplicationScope": "messageGroup"}
	purged := map[string]string{notePurged: "1767225600"}
	attempt := func(queue, id string) string {
		var c broker.ClaimCall
		x := exchange{in: &wire.Input{AttemptID: id}}
		if err := x.attempt(&c, queue, true); err != nil {
			t.Fatal(err)
		}
		return c.ClaimKey
	}
	dedup := func(notes map[string]string, body, group, id string) string {
		s := task.Spec{Headers: map[string]string{}}
		o := outgoing{body: body, group: group, dedup: id}
		o.deduplicate(&s, &queues.Queue{Config: task.QueueConfig{Annotations: notes}})
		return s.IdempotencyKey
	}
	letter := func(from, to string, id task.ID) string {
		x := exchange{Handler: New(Config{Core: &oneQueue{}}), ctx: t.Context(), r: httptest.NewRequest("POST", "http://pawl/", nil)}
		m := broker.Claimed{Envelope: &schema.Envelope{ID: id}, Exec: &schema.Exec{}, Token: task.Token{Fence: 4}}
		s := x.deadLetter(&queues.Queue{Name: from}, &queues.Queue{Name: to}, &m)
		return s.RequestID.String()
	}
	one, two := task.NewID(1, 1, 1), task.NewID(1, 1, 2)
	for _, c := range []struct {
		what string
		a, b string
		same bool
	}{
		{"an attempt and its repeat", attempt("a.fifo", "1"), attempt("a.fifo", "1"), true},
		{"attempts", attempt("a.fifo", "1"), attempt("a.fifo", "2"), false},
		{"attempts at two queues", attempt("a.fifo", "1"), attempt("b.fifo", "1"), false},
		{"attempts whose parts join to the same", attempt("a.fifo", "11"), attempt("a.fifo1", "1"), false},
		{"a message and its repeat", dedup(fifo, "a", "g", "1"), dedup(fifo, "a", "g", "1"), true},
		{"contents with the same ID", dedup(fifo, "a", "g", "1"), dedup(fifo, "b", "g", "1"), true},
		{"groups", dedup(fifo, "a", "g", "1"), dedup(fifo, "a", "h", "1"), true},
		{"IDs", dedup(fifo, "a", "g", "1"), dedup(fifo, "a", "g", "2"), false},
		{"contents without an ID", dedup(fifo, "a", "g", ""), dedup(fifo, "b", "g", ""), false},
		{"content and its repeat", dedup(fifo, "a", "g", ""), dedup(fifo, "a", "g", ""), true},
		{"groups that deduplicate apart", dedup(perGroup, "a", "g", "1"), dedup(perGroup, "a", "h", "1"), false},
		{"messages before and after a purge", dedup(fifo, "a", "g", "1"), dedup(purged, "a", "g", "1"), false},
		{"a dead letter and its repeat", letter("a", "dead", one), letter("a", "dead", one), true},
		{"dead letters", letter("a", "dead", one), letter("a", "dead", two), false},
		{"dead letters in two queues", letter("a", "dead", one), letter("a", "dead2", one), false},
	} {
		if (c.a == c.b) != c.same || c.a == "" {
			t.Errorf("%s: the keys are %q and %q, want them equal: %t", c.what, c.a, c.b, c.same)
		}
	}
}

// A handle of another queue settles nothing, alone or in a batch. In a FIFO queue a late delete is refused.
func TestHandlesOfOtherQueues(t *testing.T) {
	id, token, zero, ten := task.NewID(3, 1, 2), task.Token{Epoch: 1, Fence: 1, Nonce: 7}, 0, 10
	own, other := handle("mail", id, token), handle("other", id, token)
	for name, do := range map[string]action{"delete": deleteMessage, "delete in a batch": deleteBatch, "hide": changeVisibility,
		"hide in a batch": changeVisibilityBatch} {
		for _, fifo := range []string{"false", "true"} {
			for _, seconds := range []*int{&zero, &ten} {
				for _, c := range []struct {
					receipt string
					settled int
				}{{own, 1}, {other, 0}} {
					core := &settling{oneQueue: oneQueue{q: queues.Queue{Name: "mail", Config: task.QueueConfig{Version: 1,
						Annotations: map[string]string{
							noteAttribute + "FifoQueue": fifo}}}}}
					in := &wire.Input{QueueURL: "http://pawl/000000000000/mail", ReceiptHandle: c.receipt, Visibility: seconds,
						Entries: []wire.Entry{{ID: "a", ReceiptHandle: c.receipt, Visibility: seconds}}}
					x := &exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: httptest.NewRequest("POST", "http://pawl/", nil),
						in: in}
					err := do(x)
					if refused := err != nil || len(x.out.Failed) > 0; refused != (c.settled == 0) || len(core.settled) != c.settled {
						t.Errorf("%s: settled are %v, want %d; %v, %v", name, core.settled, c.settled, err, x.out.Failed)
					}
					if strings.HasPrefix(name, "delete") && c.settled > 0 && core.settled[0].Late == (fifo == "true") {
						t.Errorf("%s, FIFO queue %s: a handle whose timeout has ended deletes: %t", name, fifo, core.settled[0].Late)
					}
				}
			}
		}
	}
}

// A late delete in a FIFO queue is refused while the message is there, however the receive of the handle ended.
func TestLateDeletesInFIFOQueues(t *testing.T) {
	for _, reason := range []string{task.StaleExpired, task.StaleReclaimed, task.StaleCompleted, task.StaleCancelled} {
		for state, refused := range map[task.State]bool{task.Ready: true, task.Scheduled: true, task.Claimed: true, task.Succeeded: false,
			task.Discarded: false, task.Cancelled: false, task.Dead: false} {
			err := expired(&task.Error{Code: task.CodeStaleClaim, Reason: reason, State: state}, "handle")
			if got := errorShown(err); (got != "<nil>") != refused || refused &&
				got != "InvalidParameterValue: Value handle for parameter ReceiptHandle is invalid. Reason: The receipt handle "+
					"has expired." {
				t.Errorf("%s, the message is %s: %s", reason, state, got)
			}
		}
	}
	if err := expired(task.ErrNotFound, "handle"); err != nil {
		t.Errorf("a message that is gone: %v", err)
	}
	if err := expired(task.ErrUnavailable, "handle"); err == nil {
		t.Error("a message that can't be reached is deleted")
	}
}
