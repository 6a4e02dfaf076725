package pawl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/pawlq/pawl/internal/client/outcome"
)

// Handler runs one claimed task. nil means success; an error fails the attempt or steers (DeadLetter, Discard, RetryIn, Snooze, Poison).
//
// Its context ends when the task's timeout expires, the task is cancelled, the lease is lost or the worker has been draining for too
// long: context.Cause tells which. It may then return any error: the task of a draining worker is released, and no attempt is used.
// Handlers must be safe for concurrent use, and for being run more than once for one task.
type Handler func(ctx context.Context, c *Claim) error

// Mux dispatches each task to the handler of its type. A worker claims only the types of its mux.
type Mux struct {
	mu         sync.Mutex
	handlers   map[string]Handler
	middleware []func(Handler) Handler
}

// NewMux returns a mux without handlers.
func NewMux() *Mux { return &Mux{handlers: make(map[string]Handler)} }

// Handle registers the handler of T's type, wrapped in its own middleware inside that of Use. The payload is decoded from JSON; if that
// fails, the task is poisoned. Handle panics if the type already has a handler.
func Handle[T Args](m *Mux, handle func(ctx context.Context, t *Task[T]) error, middleware ...func(next Handler) Handler) {
	var none T
	m.HandleFunc(none.TaskType(), func(ctx context.Context, c *Claim) error {
		t := &Task[T]{Claim: c}
		if err := c.Decode(&t.Args); err != nil {
			return err
		}
		return handle(ctx, t)
	}, middleware...)
}

// HandleFunc registers the handler of a type by name, wrapped in its own middleware inside that of Use. It panics if the type already has
// a handler, or is empty.
func (m *Mux) HandleFunc(taskType string, h Handler, middleware ...func(next Handler) Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case taskType == "" || !utf8.ValidString(taskType):
		panic(fmt.Sprintf("pawl: %q is not a task type", taskType))
	case h == nil:
		panic(fmt.Sprintf("pawl: handler of type %q is nil", taskType))
	case m.handlers[taskType] != nil:
		panic(fmt.Sprintf("pawl: type %q already has a handler", taskType))
	}
	m.handlers[taskType] = wrapped(func(ctx context.Context, c *Claim) error { return outcome.Interrupted(ctx, h(ctx, c)) }, middleware)
}

// Use wraps all handlers, present and future, in middleware: logging, metrics, transactions. The first is the outermost.
//
// A handler that was stopped has not failed. The error that middleware then sees wraps the reason (ErrDraining, ErrCancelled or
// ErrLeaseLost) as well as what the handler returned. OutcomeOf returns the outcome; Outcome.Failed reports whether it counts as a
// failure.
func (m *Mux) Use(middleware ...func(next Handler) Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.middleware = append(m.middleware, middleware...)
}

// Types returns the types that have a handler, sorted.
func (m *Mux) Types() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.handlers))
}

// Handler returns the mux as one handler, with its middleware. It is a snapshot: later registrations don't change it. It lets tests run a
// task without a worker.
func (m *Mux) Handler() Handler {
	m.mu.Lock()
	defer m.mu.Unlock()
	handlers := maps.Clone(m.handlers)
	var h Handler = func(ctx context.Context, c *Claim) error {
		handle, ok := handlers[c.Type]
		if !ok {
			return &outcome.UnknownType{Name: c.Type}
		}
		return handle(ctx, c)
	}
	return wrapped(h, m.middleware)
}

// wrapped returns h wrapped in middleware. The first is the outermost.
func wrapped(h Handler, middleware []func(next Handler) Handler) Handler {
	for _, wrap := range slices.Backward(middleware) {
		h = wrap(h)
	}
	return h
}
