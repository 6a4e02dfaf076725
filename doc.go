// Package pawl is the Go SDK of Pawl, a distributed task queue: producers enqueue tasks, and workers run them at least once. An
// accepted task is never lost.
//
//	client, err := pawl.Dial("localhost:7295")
//
// # Producers
//
// The arguments of a task are a Go type with a name; its JSON is the payload.
//
//	type Welcome struct{ To string `json:"to"` }
//
//	func (Welcome) TaskType() string { return "mail.welcome" }
//
//	ref, err := client.Enqueue(ctx, Welcome{To: "a@example.com"}, pawl.Queue("mail"), pawl.In(time.Minute))
//
// When Enqueue returns without an error, the task is on stable storage. Concurrent calls are batched. If the response to a call is lost,
// the client retries it with the same request id, so it never creates a second task.
//
// # Workers
//
//	mux := pawl.NewMux()
//	pawl.Handle(mux, func(ctx context.Context, t *pawl.Task[Welcome]) error { return send(ctx, t.Args.To) })
//	worker := pawl.NewWorker(client, mux, pawl.WorkerConfig{Queues: pawl.Weighted{"mail": 7, "default": 3}, Concurrency: 50})
//	err := worker.Run(ctx) // drains when ctx ends
//
// A handler succeeds by returning nil. After an error the task is retried, with exponential backoff, until it runs out of attempts and
// becomes a dead letter. DeadLetter, Discard, RetryIn, Snooze and Poison override that, and a panic counts as an error. A handler may run
// more than once for one task: make it idempotent, or guard what it writes with Claim.Fence, a number that grows with each claim of the
// task. Step records what was done within a task, Once among all tasks of a queue; docs/idempotency.md compares them.
//
// The worker extends leases while handlers run. A handler's context ends when the task's timeout expires, when the task is cancelled, or
// as soon as the lease is lost; context.Cause tells which. If the connection breaks, the worker reconnects for as long as it takes, and
// then reports the outcomes of handlers that ended meanwhile.
//
// # Chains and groups
//
// Then names a task to enqueue once this one has succeeded; its handler reads the result with Claim.ParentResult. EnqueueGroup enqueues a
// group of tasks, and another task when all of them have ended. docs/workflows.md has the rules.
//
// # Clusters
//
// Give a Client the addresses of some nodes: it discovers the others, and sends each call to the node that leads its shard. Responses name
// the leader, so the client follows when leadership moves.
//
// # Traces
//
// The trace in a call's context travels with the tasks that the call enqueues, and is in the contexts of their handlers. With an
// OpenTelemetry provider, the SDK makes spans and metrics, too: docs/tracing.md.
//
// # Errors
//
// A call that the broker refuses returns an *Error with a stable code: test it with errors.Is and ErrNotFound,
// ErrStaleClaim and the others.
//
// # Other packages
//
// Package pawltype has the types that calls return. Package admin has the operators' calls, and package claims the
// calls that a worker makes. Package keyring encrypts the contents of tasks. Package pawltest runs a broker in a test,
// and package embedded runs one in a program.
//
// This package keeps no state between processes, and none in package variables: all state belongs to a Client.
package pawl
