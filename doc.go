// Package pawl is the Go SDK of Pawl, a distributed task queue: producers give tasks to a broker, workers run them at least
// once, and what was accepted never gets lost.
//
//	client, err := pawl.Dial("localhost:7295")
//
// # Producers
//
// A task's arguments are a Go type with a name; the payload is its JSON.
//
//	type Welcome struct{ To string `json:"to"` }
//
//	func (Welcome) TaskType() string { return "mail.welcome" }
//
//	ref, err := client.Enqueue(ctx, Welcome{To: "a@example.com"}, pawl.Queue("mail"), pawl.In(time.Minute))
//
// When Enqueue returns without an error the task is on stable storage. Concurrent calls are gathered into batches. A call whose
// answer got lost is repeated with the same request id, so that it never makes a second task.
//
// # Workers
//
//	mux := pawl.NewMux()
//	pawl.Handle(mux, func(ctx context.Context, t *pawl.Task[Welcome]) error { return send(ctx, t.Args.To) })
//	worker := pawl.NewWorker(client, mux, pawl.WorkerConfig{Queues: pawl.Weighted{"mail": 7, "default": 3}, Concurrency: 50})
//	err := worker.Run(ctx) // drains when ctx ends
//
// A handler that returns nil has succeeded. An error is retried with growing pauses until the attempts run out and the task is a
// dead letter; DeadLetter, Discard, RetryIn, Snooze and Poison steer otherwise, and panics count as errors. Handlers may run more than once for one
// task: make them idempotent, or guard what they write with Claim.Fence, a number that grows with each claim of a task.
// Step records what was done within a task, Once among all tasks of a queue; docs/idempotency.md says what each gives.
//
// The worker extends leases while handlers run. The context of a handler ends when its task's timeout is over, when the task was cancelled, and as
// soon as the lease is lost; context.Cause tells which. A connection that breaks is made anew for ever, and what handlers
// ended with meanwhile is told then.
//
// # Chains and groups
//
// Then says what is enqueued when a task has succeeded; its handler reads the result with ParentResult. EnqueueGroup makes tasks that are
// waited for together, and enqueues another when all have ended. docs/workflows.md says what holds for both.
//
// # Clusters
//
// A Client that was told of some nodes of a cluster finds the others by itself, and sends each call to the node that leads the shard it is
// for. The answers tell it who that is, so that it follows leaders that move; callers see nothing of it. See Dial and WithoutDirect.
//
// # Traces
//
// The trace of a call's context goes along with the tasks that it enqueues, and is that of their handlers' contexts. With a provider
// of OpenTelemetry there are spans and metrics, too: docs/tracing.md.
//
// # Errors
//
// What the broker refuses is an *Error, with a stable code; test it with errors.Is and the sentinels (ErrNotFound, ErrStaleClaim, …).
//
// # What this package does not do
//
// It keeps no state between processes, and none in package variables: everything hangs on a Client. It knows nothing of how the
// broker stores or replicates. Operators' calls are under Client.Admin; the calls that workers are made of under Client.Claims.
package pawl
