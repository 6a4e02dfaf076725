package sqs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// A FIFO queue is one with a strict order of keys. The message group is the key; a claim returns runs of a group; a deduplication
// ID is an idempotency key of five minutes, whose repeats may have any content.

// dedupTime is how long a deduplication ID is remembered.
const dedupTime = 5 * time.Minute

// headerDedup holds the deduplication ID of a message.
const headerDedup = "sqs-deduplication-id"

// isFIFO reports whether a queue was created as a FIFO queue.
func isFIFO(c *task.QueueConfig) bool { return c.Annotations[noteAttribute+"FifoQueue"] == "true" }

// NewSettings returns the settings of a queue once s have replaced them: a FIFO queue keeps its order, unless that is given.
func NewSettings(c *task.QueueConfig, s task.Settings, orderGiven bool) task.Settings {
	if isFIFO(c) && !orderGiven {
		s.KeyOrder = c.Settings.KeyOrder
	}
	return s
}

// checkFIFOName rejects a name that doesn't match the type of the queue.
func checkFIFOName(name string, fifo bool) error {
	switch {
	case name == "":
		return wire.Missing("QueueName")
	case fifo && (!strings.HasSuffix(name, fifoSuffix) || !nameForm.MatchString(strings.TrimSuffix(name, fifoSuffix)) || len(name) > 80):
		return wire.ErrInvalidParameterValue.With("The name of a FIFO queue can only include alphanumeric characters, hyphens, or " +
			"underscores, must end with .fifo suffix and be 1 to 80 in length.")
	case !fifo && !nameForm.MatchString(name):
		return wire.ErrInvalidParameterValue.With("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	return nil
}

// idForm is the format of message group IDs, deduplication IDs and receive request attempt IDs.
var idForm = regexp.MustCompile("^[A-Za-z0-9!\"#$%&'()*+,./:;<=>?@\\[\\\\\\]^_`{|}~-]{1,128}$")

func checkID(name, id string) error {
	if id != "" && !idForm.MatchString(id) {
		return badID(name, id)
	}
	return nil
}

func badID(name, id string) error {
	return wire.BadValue(task.Cut(id, maxQuoted), name,
		name+" can only include alphanumeric and punctuation characters. 1 to 128 in length.")
}

// maxQuoted bounds how much of an ID an error repeats, in bytes.
const maxQuoted = 4 << 10

// Amazon SQS words it in two ways.
const (
	notOfThisType = "The request includes a parameter that is not valid for this queue type."
	forOtherType  = "The request include parameter that is not valid for this queue type."
)

// checkFIFO rejects what a queue of this type does not accept.
func (o *outgoing) checkFIFO(c *task.QueueConfig) error {
	fifo := isFIFO(c)
	switch {
	case !fifo && o.dedup != "":
		return wire.BadValue(task.Cut(o.dedup, maxQuoted), "MessageDeduplicationId", notOfThisType)
	case !fifo:
		return nil
	case o.group != "" && o.delay != nil && *o.delay != 0:
		return wire.BadValue(*o.delay, "DelaySeconds", forOtherType)
	}
	if err := o.lacks(c); err != nil {
		return err
	}
	return checkID("MessageDeduplicationId", o.dedup)
}

// lacks returns an error if a message for a FIFO queue lacks what each must have; nil: it does not.
func (o *outgoing) lacks(c *task.QueueConfig) *wire.Error {
	switch {
	case !isFIFO(c) || o.empty != "":
		return nil
	case o.group == "":
		return wire.Missing("MessageGroupId")
	case o.dedup == "" && attributeOf(c, "ContentBasedDeduplication") != "true":
		return wire.ErrInvalidParameterValue.With("The queue should either have ContentBasedDeduplication enabled or " +
			"MessageDeduplicationId provided explicitly")
	}
	return nil
}

// deduplicate sets a task's idempotency key from its deduplication ID. A purge forgets earlier messages, by changing all keys.
func (o *outgoing) deduplicate(s *task.Spec, q *queues.Queue) {
	id, c := o.dedup, &q.Config
	if id == "" {
		sum := sha256.Sum256([]byte(o.body))
		id = hex.EncodeToString(sum[:])
	}
	key := func(scope string) string {
		switch scope {
		case "":
			return ""
		case groupScope: // in the slot of the group, so that the queue can be in several shards
			return task.Beside(s.Key, digest("sqs-", c.Annotations[notePurged], o.group, id))
		}
		return digest("sqs-", c.Annotations[notePurged], "", id)
	}
	scope, older := scopes(c, time.Now())
	if q.Spread() { // it can have no other
		scope, older = attributeOf(c, dedupScope), ""
	}
	s.IdempotencyKey, s.OlderKey = key(scope), key(older)
	s.IdempotencyTTL, s.AnyContent = dedupTime, true
	s.Headers[headerDedup] = id
}

const (
	dedupScope = "DeduplicationScope"
	groupScope = "messageGroup"
	// scopeDelay is how long a change of the scope takes to apply, as in Amazon SQS.
	scopeDelay = time.Minute
)

// noteScopeChange notes that the scope is changed now, unless it is changed back to the one that still applies.
func noteScopeChange(notes map[string]string, c *task.QueueConfig, to string, now time.Time) {
	delete(notes, noteScope)
	if from, _ := scopes(c, now); from != to {
		notes[noteScope] = fmt.Sprintf("%d %s", now.Unix(), from)
	}
}

// scopes returns the scope that applies to new messages, and the one that has applied to messages whose IDs are still
// remembered; "": the same.
func scopes(c *task.QueueConfig, now time.Time) (scope, older string) {
	scope = attributeOf(c, dedupScope)
	at, from, _ := strings.Cut(c.Annotations[noteScope], " ")
	changed, err := strconv.ParseInt(at, 10, 64)
	switch since := now.Sub(time.Unix(changed, 0)); {
	case err != nil || since >= scopeDelay+dedupTime:
		return scope, ""
	case since < scopeDelay:
		return from, ""
	}
	return scope, from
}

// digest hashes several parts into one name.
func digest(prefix string, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return prefix + hex.EncodeToString(h.Sum(nil)[:20])
}

// sequence returns the sequence number of a message; "": its queue is not a FIFO queue.
func sequence(order uint64) string {
	if order == 0 {
		return ""
	}
	return fmt.Sprintf("%020d", order)
}

// attempt makes a receive safe to retry, by its ReceiveRequestAttemptId.
func (x *exchange) attempt(c *broker.ClaimCall, queue string, fifo bool) error {
	if x.in.AttemptID == "" {
		return nil
	}
	if !fifo {
		return wire.BadValue(task.Cut(x.in.AttemptID, maxQuoted), "ReceiveRequestAttemptId", forOtherType)
	}
	c.ClaimKey = digest("sqs-", queue, x.in.AttemptID)
	return checkID("ReceiveRequestAttemptId", x.in.AttemptID)
}

// hideAgain hides messages that a retried receive returns again for their full visibility timeout.
func (x *exchange) hideAgain(got []broker.Claimed, lease time.Duration) {
	var calls []broker.Settle
	for i := range got {
		if got[i].Exec.Claim.Repeated {
			calls = append(calls, broker.Settle{Verb: broker.Extend, Hold: holdOf(&got[i]),
				Extend: broker.Extension{Lease: lease, Exact: true}})
		}
	}
	if len(calls) > 0 {
		x.Core.Settle(x.ctx, calls) // one that fails keeps its lease
	}
}

// expired returns the error for a delete in a FIFO queue that comes too late: deleting must not interfere with the consumer that
// has the message now, or the next one of its group.
func expired(err error, receipt string) error {
	e, ok := task.AsError(err)
	if ok && e.Code == task.CodeStaleClaim && !e.State.Ended() {
		return wire.BadValue(receipt, "ReceiptHandle", "The receipt handle has expired.")
	}
	return deleted(err)
}
