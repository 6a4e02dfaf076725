package callinfo

import (
	"context"
	"errors"
	"time"

	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// codeOK is the code under which successful calls are counted.
const codeOK = "ok"

// callKind is what the duration of a call depends on.
type callKind uint8

const (
	plainCall  callKind = iota
	pollCall            // asked to wait for something
	streamCall          // open-ended
)

// Meter observes calls, by interface (rest, grpc, sqs) and method. It must not block.
type Meter interface {
	// Called is called when a call has ended, with its code ("ok" or the error's), its duration (negative for streams), and whether
	// it was asked to wait for something.
	Called(iface, method, code string, took time.Duration, waits bool)
	// Streams is called when a stream is opened, with 1, and when it has ended, with -1.
	Streams(iface, method string, by int)
}

// noMeter observes nothing.
type noMeter struct{}

func (noMeter) Called(string, string, string, time.Duration, bool) {}
func (noMeter) Streams(string, string, int)                        {}

// Waits marks a call as one that was asked to wait, if it was.
func Waits(ctx context.Context, wait time.Duration) {
	if wait > 0 {
		Of(ctx).kind = pollCall
	}
}

// Observer reports calls to a meter, and refusals to a trail.
type Observer struct {
	meter Meter
	trail *trail.Trail
}

// NewObserver returns an observer that reports to a meter and a trail; nil: to none.
func NewObserver(m Meter, t *trail.Trail) Observer {
	if m == nil {
		m = noMeter{}
	}
	return Observer{m, t}
}

// Streams marks a call as a stream.
func (o Observer) Streams(c *Call) {
	if c.kind != streamCall {
		c.kind = streamCall
		o.meter.Streams(string(c.iface), c.Method, 1)
	}
}

// Observed reports a call that has ended.
func (o Observer) Observed(c *Call, err error, took time.Duration) {
	if c.kind == streamCall {
		took = -1
		o.meter.Streams(string(c.iface), c.Method, -1)
	}
	o.meter.Called(string(c.iface), c.Method, codeOf(err), took, c.kind == pollCall)
	if e, refused := c.refusal(err); refused {
		c.RecordRefusal(o.trail, e)
	}
}

// codeOf returns the code of a call's answer.
func codeOf(err error) string {
	e, refused := task.AsError(err)
	switch {
	case err == nil:
		return codeOK
	case refused:
		return string(e.Code)
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return string(task.CodeUnavailable)
	}
	return string(contract.CodeInternal)
}
