package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// codeOK is the code of a call that was not refused, where calls are counted.
const codeOK = "ok"

// callKind says what the time that a call takes depends on.
type callKind uint8

const (
	plainCall  callKind = iota
	pollCall            // it was asked to wait for something
	streamCall          // it goes on until somebody ends it
)

// Meter is told of calls, by face (rest, grpc) and method. It must not block.
type Meter interface {
	// Called is told of a call that has ended, with its code, "ok" or as of the answer, how long it took, below 0 for streams, and
	// whether it was asked to wait for something.
	Called(face, method, code string, took time.Duration, waits bool)
	// Streams is told that a stream was opened, 1, or has ended, -1.
	Streams(face, method string, by int)
}

// noMeter is told nothing.
type noMeter struct{}

func (noMeter) Called(string, string, string, time.Duration, bool) {}
func (noMeter) Streams(string, string, int)                        {}

// waits notes that a call was asked to wait for something, if it was.
func waits(ctx context.Context, wait time.Duration) {
	if wait > 0 {
		callOf(ctx).kind = pollCall
	}
}

// streams notes that a call goes on until somebody ends it.
func (g *Gateway) streams(c *call) {
	if c.kind != streamCall {
		c.kind = streamCall
		g.cfg.Meter.Streams(c.face, c.method, 1)
	}
}

// observed tells of a call that has ended.
func (g *Gateway) observed(c *call, err error, took time.Duration) {
	if c.kind == streamCall {
		took = -1
		g.cfg.Meter.Streams(c.face, c.method, -1)
	}
	g.cfg.Meter.Called(c.face, c.method, codeOf(err), took, c.kind == pollCall)
}

// codeOf is the code of a call as its answer has it.
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

// rpcName is a method as it is counted: Service/Method.
func rpcName(full string) string {
	if ours, ok := strings.CutPrefix(full, apiPackage); ok {
		return ours
	}
	return strings.TrimPrefix(full, "/")
}
