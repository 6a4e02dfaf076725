package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

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

// Meter observes calls, by face (rest, grpc) and method. It must not block.
type Meter interface {
	// Called is called when a call has ended, with its code ("ok" or the error's), its duration (negative for streams), and whether
	// it was asked to wait for something.
	Called(face, method, code string, took time.Duration, waits bool)
	// Streams is called when a stream is opened, with 1, and when it has ended, with -1.
	Streams(face, method string, by int)
}

// noMeter observes nothing.
type noMeter struct{}

func (noMeter) Called(string, string, string, time.Duration, bool) {}
func (noMeter) Streams(string, string, int)                        {}

// waits marks a call as one that was asked to wait, if it was.
func waits(ctx context.Context, wait time.Duration) {
	if wait > 0 {
		callOf(ctx).kind = pollCall
	}
}

// streams marks a call as a stream.
func (g *Gateway) streams(c *call) {
	if c.kind != streamCall {
		c.kind = streamCall
		g.cfg.Meter.Streams(c.face, c.method, 1)
	}
}

// observed reports a call that has ended.
func (g *Gateway) observed(c *call, err error, took time.Duration) {
	if c.kind == streamCall {
		took = -1
		g.cfg.Meter.Streams(c.face, c.method, -1)
	}
	g.cfg.Meter.Called(c.face, c.method, codeOf(err), took, c.kind == pollCall)
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

// rpcName returns the name under which a method is counted: Service/Method.
func rpcName(full string) string {
	if ours, ok := strings.CutPrefix(full, apiPackage); ok {
		return ours
	}
	return strings.TrimPrefix(full, "/")
}
