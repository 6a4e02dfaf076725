// Package pawl is the Go SDK of Pawl, a distributed task queue: producers give tasks to a broker, workers run them at least once, and what
// was accepted is never lost.
//
//	client, err := pawl.Dial("localhost:7295")
//
// # Producers
//
// The arguments of a task are a Go type with a name; the payload is its JSON.
//
//	type Welcome struct{ To string `json:"to"` }
//
//	func (Welcome) TaskType() string { return "mail.welcome" }
//
//	ref, err := client.Enqueue(ctx, Welcome{To: "a@example.com"}, pawl.Queue("mail"), pawl.In(time.Minute))
//
// When Enqueue returns without an error, the task is on stable storage. Concurrent calls are gathered into batches. A call whose answer
// was lost is repeated with the same request id, so that it never makes a second task.
//
// # Workers
//
//	mux := pawl.NewMux()
//	pawl.Handle(mux, func(ctx context.Context, t *pawl.Task[Welcome]) error { return send(ctx, t.Args.To) })
//	worker := pawl.NewWorker(client, mux, pawl.WorkerConfig{Queues: pawl.Weighted{"mail": 7, "default": 3}, Concurrency: 50})
//	err := worker.Run(ctx) // drains when ctx ends
//
// A handler that returns nil has succeeded. An error is retried, with growing pauses, until the attempts run out and the task is a dead
// letter. DeadLetter, Discard, RetryIn, Snooze and Poison say otherwise, and panics count as errors. A handler may run more than once for
// one task: make it idempotent, or guard what it writes with Claim.Fence, a number that grows with each claim of the task. Step records
// what was done within a task, Once among all tasks of a queue; docs/idempotency.md compares them.
//
// The worker extends leases while handlers run. The context of a handler ends when the timeout of its task is over, when the task is
// cancelled, and as soon as the lease is lost; context.Cause tells which. A connection that breaks is made anew for ever, and how handlers
// ended meanwhile is told then.
//
// # Chains and groups
//
// Then names a task that is enqueued when this one has succeeded; its handler reads the result with Claim.ParentResult. EnqueueGroup makes
// tasks that are waited for together, and enqueues another one when all have ended. docs/workflows.md has the rules.
//
// # Clusters
//
// A Client that was told some nodes of a cluster finds the others by itself, and sends each call to the node that leads its shard. Answers
// tell who that is, so the client follows leaders that move, and callers notice nothing.
//
// # Traces
//
// The trace of a call's context travels with the tasks that the call enqueues, and reaches the contexts of their handlers. With an
// OpenTelemetry provider there are spans and metrics, too: docs/tracing.md.
//
// # Errors
//
// The broker refuses a call with an *Error, which has a stable code: test it with errors.Is and ErrNotFound, ErrStaleClaim and the others.
//
// # Other packages
//
// Package pawltype has the data that calls answer with. Package admin has the operators' calls, package claims the calls that a worker is
// made of, package keyring encryption. Package pawltest runs a broker in a test, package embedded runs one in a program.
//
// This package keeps no state between processes, and none in package variables: everything hangs on a Client.
package pawl
