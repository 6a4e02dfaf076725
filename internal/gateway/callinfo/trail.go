package callinfo

import (
	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/task"
)

// Event returns an event of the call, by its caller.
func (c *Call) Event(kind trail.Kind) trail.Event {
	e := trail.Event{Kind: kind, Namespace: c.Namespace, Method: c.Method, Outcome: codeOK, Trace: c.header(c.from, "traceparent")}
	if c.Principal.Principal != nil {
		e.Actor = c.Principal.Actor()
		if c.Principal.Name != "" {
			e.Token = c.Principal.Namespace + "/" + c.Principal.Name
		}
	}
	e.Interface, e.Address = Source(c.from, c)
	return e
}

// RecordRefusal records that the caller was refused: once for a call, however many of its items were refused.
func (c *Call) RecordRefusal(t *trail.Trail, err *task.Error) {
	c.mu.Lock()
	told := c.told
	c.told = true
	c.mu.Unlock()
	if told || !t.Records(trail.Refusal) {
		return
	}
	e := c.Event(trail.Refusal)
	e.Outcome, e.Reason = string(err.Code), err.Message
	t.Record(e)
}

// deny notes that an item of the call was refused. The call itself may succeed.
func (c *Call) deny(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.denied == nil {
		c.denied = err
	}
}

// refusal returns why the caller of a call that ended with err was refused, if it was.
func (c *Call) refusal(err error) (*task.Error, bool) {
	if e, ok := task.AsError(err); ok && (e.Code == task.CodeUnauthenticated || e.Code == task.CodePermissionDenied) {
		return e, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return task.AsError(c.denied)
}
