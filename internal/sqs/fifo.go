package sqs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/task"
)

// A FIFO queue is one with a strict order of keys. The message group is the key; a claim gives runs of a group; a deduplication id is an
// idempotency key of five minutes, whose repeats may hold anything.

// dedupTime is how long a deduplication id finds its message.
const dedupTime = 5 * time.Minute

// headerDedup is the deduplication id of a message.
const headerDedup = "sqs-deduplication-id"

// isFIFO says whether a queue was made as a FIFO queue.
func isFIFO(c *task.QueueConfig) bool { return c.Annotations[noteAttribute+"FifoQueue"] == "true" }

// checkFIFOName refuses a name that does not go with the type of the queue.
func checkFIFOName(name string, fifo bool) error {
	switch {
	case name == "":
		return wire.Missing("QueueName")
	case fifo && (!strings.HasSuffix(name, fifoSuffix) || !nameForm.MatchString(strings.TrimSuffix(name, fifoSuffix)) || len(name) > 80):
		return wire.ErrInvalidParameterValue.With("The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length.")
	case !fifo && !nameForm.MatchString(name):
		return wire.ErrInvalidParameterValue.With("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	return nil
}

// idForm is that of message groups, deduplication ids and attempts to receive.
var idForm = regexp.MustCompile("^[A-Za-z0-9!\"#$%&'()*+,./:;<=>?@\\[\\\\\\]^_`{|}~-]{1,128}$")

func checkID(name, id string) error {
	if id != "" && !idForm.MatchString(id) {
		return wire.BadValue(task.Cut(id, 128), name, name+" can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	}
	return nil
}

// The service words it in two ways.
const (
	notOfThisType = "The request includes a parameter that is not valid for this queue type."
	forOtherType  = "The request include parameter that is not valid for this queue type."
)

// checkFIFO refuses what a queue of its type does not take.
func (o *outgoing) checkFIFO(c *task.QueueConfig) error {
	fifo := isFIFO(c)
	switch {
	case !fifo && o.dedup != "":
		return wire.BadValue(task.Cut(o.dedup, 128), "MessageDeduplicationId", notOfThisType)
	case !fifo:
		return nil
	case o.group == "":
		return wire.Missing("MessageGroupId")
	case o.delay != nil && *o.delay != 0:
		return wire.BadValue(*o.delay, "DelaySeconds", forOtherType)
	case o.dedup == "" && told(c, "ContentBasedDeduplication") != "true":
		return wire.ErrInvalidParameterValue.With("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	}
	return checkID("MessageDeduplicationId", o.dedup)
}

// deduplicate gives a task the idempotency key of its deduplication id. A purge begins anew: it changes all keys.
func (o *outgoing) deduplicate(s *task.Spec, c *task.QueueConfig) {
	id := o.dedup
	if id == "" {
		sum := sha256.Sum256([]byte(o.body))
		id = hex.EncodeToString(sum[:])
	}
	scope := ""
	if told(c, "DeduplicationScope") == "messageGroup" {
		scope = o.group
	}
	s.IdempotencyKey, s.IdempotencyTTL, s.AnyContent = digest("sqs-", c.Annotations[notePurged], scope, id), dedupTime, true
	if s.Headers == nil {
		s.Headers = map[string]string{}
	}
	s.Headers[headerDedup] = id
}

// digest is a name made of several parts.
func digest(prefix string, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return prefix + hex.EncodeToString(h.Sum(nil)[:20])
}

// sequence is the sequence number of a message; "": its queue is no FIFO queue.
func sequence(order uint64) string {
	if order == 0 {
		return ""
	}
	return fmt.Sprintf("%020d", order)
}

// attempt makes a receive repeatable by its ReceiveRequestAttemptId.
func (x *exchange) attempt(c *broker.ClaimCall, queue string, fifo bool) error {
	if x.in.AttemptID == "" {
		return nil
	}
	if !fifo {
		return wire.BadValue(task.Cut(x.in.AttemptID, 128), "ReceiveRequestAttemptId", forOtherType)
	}
	c.ClaimKey = digest("sqs-", queue, x.in.AttemptID)
	return checkID("ReceiveRequestAttemptId", x.in.AttemptID)
}

// hideAgain hides for their whole visibility timeout messages that a repeated receive got again.
func (x *exchange) hideAgain(got []broker.Claimed, lease time.Duration) {
	var calls []broker.Settle
	for i := range got {
		if got[i].Exec.Claim.Repeated {
			calls = append(calls, broker.Settle{Verb: broker.Extend, Hold: holdOf(&got[i]), Extend: broker.Extension{Lease: lease, Exact: true}})
		}
	}
	if len(calls) > 0 {
		x.Core.Settle(x.ctx, calls) // one that fails keeps its lease
	}
}

// expired is what a client of a FIFO queue is told of a delete that comes too late: who has the message now, or the next of its group,
// must not be confused.
func expired(err error, receipt string) error {
	e, ok := task.AsError(err)
	if ok && e.Code == task.CodeStaleClaim && (e.Reason == task.StaleExpired || e.Reason == task.StaleReclaimed) {
		return wire.BadValue(receipt, "ReceiptHandle", "The receipt handle has expired.")
	}
	return deleted(err)
}
