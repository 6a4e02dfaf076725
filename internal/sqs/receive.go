package sqs

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// systemAttributes are the system attributes that a message may have.
var systemAttributes = []string{"SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp",
	"SequenceNumber", "MessageDeduplicationId", "MessageGroupId", traceHeader, "DeadLetterQueueSourceArn"}

// workerName identifies receives in the worker registry.
const workerName = "sqs"

// receive implements ReceiveMessage: a claim.
func receive(x *exchange) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	c, wait, err := x.claimOf(&q)
	if err != nil {
		return err
	}
	hide := c.Lease
	if hide == 0 { // the message must be visible immediately: claim it, then release it
		c.Lease = task.MinLease
	}
	fifo := isFIFO(&q.Config)
	c.Runs, c.Yields = fifo, fifo
	if err := x.attempt(&c, q.Name, fifo); err != nil {
		return err
	}
	policy, redrives := redriveOf(attributeOf(&q.Config, "RedrivePolicy"))
	deadline := time.Now().Add(wait)
	for {
		got, err := x.Core.Claim(x.ctx, c, max(time.Until(deadline), 0))
		if err != nil {
			return err
		}
		empty := len(got) == 0
		if redrives {
			if got, err = x.redrive(&q, policy, got); err != nil {
				return err
			}
		}
		if c.ClaimKey != "" {
			x.hideAgain(got, c.Lease)
		}
		if len(got) > 0 || empty {
			if hide == 0 {
				x.giveBack(got)
			}
			return x.messages(&q, got)
		}
	}
}

// claimOf converts the request to a claim.
func (x *exchange) claimOf(q *queues.Queue) (c broker.ClaimCall, wait time.Duration, err error) {
	c = broker.ClaimCall{Queues: []broker.Share{{Queue: q.Name}}, Max: 1, Worker: workerName}
	if n := x.in.Max; n != nil {
		if c.Max = *n; c.Max < 1 || c.Max > maxEntries {
			return c, 0, wire.BadValue(*n, "MaxNumberOfMessages", "Must be between 1 and 10, if provided.")
		}
	}
	seconds := numberOf(&q.Config, "ReceiveMessageWaitTimeSeconds")
	if n := x.in.Wait; n != nil {
		if seconds = *n; seconds < 0 || seconds > 20 {
			return c, 0, wire.BadValue(*n, "WaitTimeSeconds", "Must be >= 0 and <= 20, if provided.")
		}
	}
	hide := numberOf(&q.Config, "VisibilityTimeout")
	if n := x.in.Visibility; n != nil {
		if hide = *n; hide < 0 || hide > maxVisibility {
			return c, 0, wire.BadValue(*n, "VisibilityTimeout", "Must be between 0 and 43200, if provided.")
		}
	}
	c.Lease = time.Duration(hide) * time.Second
	for _, name := range slices.Concat(x.in.AttributeNames, x.in.SystemAttrNames) {
		if name != "All" && !slices.Contains(systemAttributes, name) {
			return c, 0, wire.ErrInvalidAttributeName.With("Unknown Attribute %s.", task.Cut(name, 100))
		}
	}
	return c, time.Duration(seconds) * time.Second, nil
}

// giveBack releases what was received with a visibility timeout of 0.
func (x *exchange) giveBack(got []broker.Claimed) {
	calls := make([]broker.Settle, len(got))
	for i := range got {
		calls[i] = broker.Settle{Verb: broker.Release, Hold: holdOf(&got[i])}
	}
	x.Core.Settle(x.ctx, calls) // one that fails waits for its lease to end, a second later
}

func holdOf(c *broker.Claimed) broker.Hold {
	return broker.Hold{Namespace: c.Namespace, ID: c.ID, Token: c.Token}
}

// receives returns how often a message was received, including this time.
func receives(c *broker.Claimed) uint64 {
	if !isDeadLetter(c) {
		return task.ClaimsAt(c.Token.Fence)
	}
	before, _ := strconv.ParseUint(c.Headers[headerReceives], 10, 32) // another producer's header may contain anything
	return before + task.ClaimsAt(c.Token.Fence)
}

// isDeadLetter reports whether a message is in the dead-letter queue that it was moved to. There its history is reported; once
// moved on from there, it is a new message.
func isDeadLetter(c *broker.Claimed) bool {
	return c.Headers[headerSource] != "" && (c.Headers[headerTarget] == "" || c.Headers[headerTarget] == c.Queue)
}

// redrive moves messages that were received too often to the dead-letter queue, and returns the others. An interrupted move is
// repeated at the next receive and creates no second message, because its request id is derived from the task.
// The policy is its operator's: the caller needs no right to the dead-letter queue.
func (x *exchange) redrive(q *queues.Queue, p redrive, got []broker.Claimed) (left []broker.Claimed, err error) {
	name, _ := queueOfARN(p.Target)
	for i := range got {
		c := &got[i]
		claims := task.ClaimsAt(c.Token.Fence)
		if claims <= uint64(p.Max) { // #nosec G115 -- between 1 and 1000
			left = append(left, *c)
			continue
		}
		ctx := task.WithoutScope(x.ctx)
		target, found, err := x.Core.Queue(ctx, name)
		if err != nil || !found || isFIFO(&target.Config) != isFIFO(&q.Config) || !allows(&target, q.Name) {
			// it can't be read now, or was deleted, created again as another one, or closed to this source
			left = append(left, *c)
			continue
		}
		spec := x.deadLetter(q, &target, c)
		if moved := x.Core.Enqueue(ctx, target, []task.Spec{spec}); moved[0].Err != nil {
			left = append(left, *c)
			continue
		}
		// If this fails, the message is received once more, and moved then.
		x.Core.Settle(x.ctx, []broker.Settle{{Verb: broker.Fail, Hold: holdOf(c), Fail: broker.Failing{Action: broker.FailDiscard,
			Failure: broker.Failure{Type: "redrive", Message: "received " + strconv.FormatUint(claims-1, 10) + " times: moved to " +
				name}}}})
	}
	return left, nil
}

// deadLetter returns the message to enqueue in a dead-letter queue.
func (x *exchange) deadLetter(from, to *queues.Queue, c *broker.Claimed) task.Spec {
	headers := map[string]string{}
	maps.Copy(headers, c.Headers)
	headers[headerReceives] = strconv.FormatUint(receives(c)-1, 10)
	headers[headerMessageID], headers[headerSent] = messageID(c), sentAt(c)
	headers[headerSource], headers[headerTarget] = x.arnOf(from.Name), to.Name
	sum := sha256.Sum256(append([]byte("redrive\x00"+to.Name+"\x00"), c.ID[:]...))
	s := task.Spec{Type: c.Type, Queue: to.Name, Payload: c.Payload, ContentType: c.ContentType, Key: c.Key, Headers: headers,
		MaxAttempts: maxReceives, Priority: c.Exec.Priority, Tags: []string{sourceTag(from.Name)}, RequestID: task.ID(sum[:16])}
	retain(&s, to)
	s.Fill()
	return s
}

func messageID(c *broker.Claimed) string {
	if id := c.Headers[headerMessageID]; id != "" && isDeadLetter(c) {
		return id
	}
	return c.ID.String()
}

func sentAt(c *broker.Claimed) string {
	if at := c.Headers[headerSent]; at != "" && isDeadLetter(c) {
		return at
	}
	return millis(c.Exec.CreatedAt.Time())
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// messages adds the claimed messages to the response.
func (x *exchange) messages(q *queues.Queue, got []broker.Claimed) error {
	names := slices.Concat(x.in.AttributeNames, x.in.SystemAttrNames)
	for i := range got {
		c := &got[i]
		body, attributes := bodyOf(c.Payload, c.ContentType, c.Headers)
		maps.DeleteFunc(attributes, func(name string, _ wire.Attribute) bool { return !wanted(x.in.MessageAttrNames, name) })
		m := wire.Message{ID: messageID(c), ReceiptHandle: handle(q.Name, c.ID, c.Token), Body: body, MD5OfBody: wire.MD5(body),
			MessageAttributes: attributes, MD5OfAttributes: wire.MD5OfAttributes(attributes)}
		var err error
		if m.Attributes, err = x.system(c, names); err != nil {
			return err
		}
		x.out.Messages = append(x.out.Messages, m)
	}
	return nil
}

// wanted reports whether a message attribute was asked for: by name, by prefix, or because all were.
func wanted(names []string, attribute string) bool {
	for _, n := range names {
		prefix, all := strings.CutSuffix(n, "*")
		if n == "All" || n == attribute || all && strings.HasPrefix(attribute, strings.TrimSuffix(prefix, ".")) {
			return true
		}
	}
	return false
}

// system returns the attributes that the service itself gives a message.
func (x *exchange) system(c *broker.Claimed, names []string) (map[string]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	values := map[string]string{"SenderId": accountOf(x.Core.Namespace(x.ctx)), "SentTimestamp": sentAt(c),
		"ApproximateReceiveCount": strconv.FormatUint(receives(c), 10), "MessageGroupId": c.Key, traceHeader: c.Headers[headerTrace],
		"MessageDeduplicationId": c.Headers[headerDedup], "SequenceNumber": sequence(c.Exec.Order)}
	if isDeadLetter(c) {
		values["DeadLetterQueueSourceArn"] = c.Headers[headerSource]
	}
	all := slices.Contains(names, "All")
	const first = "ApproximateFirstReceiveTimestamp"
	if all || slices.Contains(names, first) {
		at := c.Exec.Claim.At.Time()
		if c.Token.Fence > 1 {
			earlier, err := x.Core.FirstClaimed(x.ctx, c.ID)
			if err != nil {
				return nil, err
			}
			if !earlier.IsZero() {
				at = earlier
			}
		}
		values[first] = millis(at)
	}
	maps.DeleteFunc(values, func(name, value string) bool { return value == "" || !all && !slices.Contains(names, name) })
	return values, nil
}
