package sqs

import (
	"errors"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/task"
)

// maxVisibility is the longest visibility timeout, in seconds.
const maxVisibility = 43200

// holdOf parses a receipt handle.
func (x *exchange) holdOf(queue, receipt string) (broker.Hold, error) {
	if receipt == "" {
		return broker.Hold{}, wire.Missing("ReceiptHandle")
	}
	id, token, err := parseHandle(queue, receipt)
	return broker.Hold{Namespace: x.Core.Namespace(x.ctx), ID: id, Token: token}, err
}

// deleteMessage implements DeleteMessage. The handle of the last receive works even after the visibility timeout has ended; an
// older one deletes nothing. Neither is an error.
func deleteMessage(x *exchange) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	hold, err := x.holdOf(q.Name, x.in.ReceiptHandle)
	if err != nil {
		return err
	}
	fifo := isFIFO(&q.Config)
	err = x.Core.Settle(x.ctx, []broker.Settle{{Verb: broker.Ack, Hold: hold, Late: !fifo}})[0].Err
	if fifo {
		return expired(err, x.in.ReceiptHandle)
	}
	return deleted(err)
}

// deleted returns the error of a delete, given that of the ack: a message that is gone, or that another consumer has received, is
// no error.
func deleted(err error) error {
	if errors.Is(err, task.ErrStaleClaim) || errors.Is(err, task.ErrNotFound) {
		return nil
	}
	return err
}

// deleteBatch implements DeleteMessageBatch. Each message has its own result.
func deleteBatch(x *exchange) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	fifo := isFIFO(&q.Config)
	return x.settleBatch("DeleteMessageBatchRequestEntry",
		func(_ *wire.Entry, hold broker.Hold) (broker.Settle, error) {
			return broker.Settle{Verb: broker.Ack, Hold: hold, Late: !fifo}, nil
		},
		func(e *wire.Entry, _ broker.Hold, s *broker.Settled) error {
			if fifo {
				return expired(s.Err, e.ReceiptHandle)
			}
			return deleted(s.Err)
		})
}

// changeVisibility implements ChangeMessageVisibility.
func changeVisibility(x *exchange) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	hold, err := x.holdOf(q.Name, x.in.ReceiptHandle)
	if err != nil {
		return err
	}
	call, err := hideCall(hold, x.in.Visibility)
	if err != nil {
		return err
	}
	s := x.Core.Settle(x.ctx, []broker.Settle{call})
	if err = x.hidden(hold, *x.in.Visibility, &s[0]); err == errNotHidden {
		return wire.BadValue(x.in.ReceiptHandle, "ReceiptHandle", notHidden+".")
	}
	return err
}

// errNotHidden is the error for changing the visibility of a message that is gone or was received again. Amazon SQS uses one code
// for a single change and another in a batch: batch clients drop ReceiptHandleIsInvalid.
var errNotHidden = errors.New("the message is gone, or was received again")

const notHidden = "Message does not exist or is not available for visibility timeout change"

// changeVisibilityBatch implements ChangeMessageVisibilityBatch. Each message has its own result.
func changeVisibilityBatch(x *exchange) error {
	return x.settleBatch("ChangeMessageVisibilityBatchRequestEntry",
		func(e *wire.Entry, hold broker.Hold) (broker.Settle, error) { return hideCall(hold, e.Visibility) },
		func(e *wire.Entry, hold broker.Hold, s *broker.Settled) error {
			err := x.hidden(hold, *e.Visibility, s)
			if err == errNotHidden {
				return wire.ErrReceiptHandleIsInvalid.With(notHidden)
			}
			return err
		})
}

// hideCall returns the call that hides a message for the given number of seconds from now: it extends the lease to then, or ends it
// now.
func hideCall(hold broker.Hold, seconds *int) (broker.Settle, error) {
	if seconds == nil {
		return broker.Settle{}, wire.Missing("VisibilityTimeout")
	}
	n := *seconds
	if n < 0 || n > maxVisibility {
		return broker.Settle{}, wire.BadValue(n, "VisibilityTimeout", "VisibilityTimeout must be an integer between 0 and 43200.")
	}
	if n == 0 {
		return broker.Settle{Verb: broker.Release, Hold: hold, Late: true}, nil
	}
	return broker.Settle{Verb: broker.Extend, Hold: hold, Extend: broker.Extension{Lease: time.Duration(n) * time.Second, Exact: true}}, nil
}

// hidden returns the error of a visibility change. If the lease has ended, and nobody has received the message since, it delays the
// message instead.
func (x *exchange) hidden(hold broker.Hold, seconds int, s *broker.Settled) error {
	err := s.Err
	if errors.Is(err, task.ErrStaleClaim) && seconds > 0 {
		late := broker.Settle{Verb: broker.Release, Hold: hold, Late: true, Delay: time.Duration(seconds) * time.Second}
		err = x.Core.Settle(x.ctx, []broker.Settle{late})[0].Err
	}
	if errors.Is(err, task.ErrStaleClaim) || errors.Is(err, task.ErrNotFound) {
		return errNotHidden
	}
	return err
}

// settleBatch settles the entries of a batch in one call.
func (x *exchange) settleBatch(name string, call func(*wire.Entry, broker.Hold) (broker.Settle, error),
	answer func(*wire.Entry, broker.Hold, *broker.Settled) error) error {
	q, err := x.queue()
	if err != nil {
		return err
	}
	if err := x.checkEntries(name); err != nil {
		return err
	}
	var calls []broker.Settle
	var index []int
	for i := range x.in.Entries {
		e := &x.in.Entries[i]
		hold, err := x.holdOf(q.Name, e.ReceiptHandle)
		c := broker.Settle{}
		if err == nil {
			c, err = call(e, hold)
		}
		if err != nil {
			x.failed(e.ID, err)
			continue
		}
		calls, index = append(calls, c), append(index, i)
	}
	settled := x.Core.Settle(x.ctx, calls)
	for n := range settled {
		e := &x.in.Entries[index[n]]
		if err := answer(e, calls[n].Hold, &settled[n]); err != nil {
			x.failed(e.ID, err)
			continue
		}
		x.out.Successful = append(x.out.Successful, wire.Result{ID: e.ID})
	}
	return nil
}
