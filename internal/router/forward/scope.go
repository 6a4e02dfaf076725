package forward

import (
	"context"

	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// A call limited to some queues goes to another node wrapped in a method of its own. A node that does not know the method refuses it, and
// never runs the call without its limits.

// ScopedMethod is the name of that method.
const ScopedMethod = "scoped"

// scopedCall is a call with the queues that it may see.
type scopedCall struct {
	Queues  []string
	Method  string
	Request []byte
}

// wrapScope wraps a call for another node, if it is limited.
func wrapScope(ctx context.Context, name string, request []byte) (string, []byte, error) {
	scope := task.ScopeOf(ctx)
	if scope.All() {
		return name, request, nil
	}
	request, err := verb.Encode(&scopedCall{scope.Queues, name, request})
	return ScopedMethod, request, err
}

// unwrapScope is the inverse of wrapScope.
func unwrapScope(ctx context.Context, name string, request []byte) (context.Context, string, []byte, error) {
	if name != ScopedMethod {
		return ctx, name, request, nil
	}
	var c scopedCall
	if err := verb.Decode(request, &c); err != nil {
		return ctx, name, request, err
	}
	if c.Queues == nil { // no queue at all, rather than all
		c.Queues = []string{}
	}
	return task.WithScope(ctx, task.Scope{Queues: c.Queues}), c.Method, c.Request, nil
}
