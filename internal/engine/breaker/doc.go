// Package breaker implements the circuit breakers of a queue, one for each type of task that has a rule.
//
// A breaker judges the attempts of its type, in the log entry that ends each. It is closed while most succeed. When too
// many fail, it opens: the type is held, as by a pause, until the hold is over. Then it is probing: it lets one task
// through and waits for its outcome before the next. Enough successes close it; a failure opens it for longer.
//
// While it is not closed, only probes count: other running tasks were claimed before it opened, and tell nothing new. A
// probe that ends without a verdict makes room for the next one.
//
// It stores a row for each type that has recent outcomes or is not closed. Queues without a rule have none. The package
// knows neither rounds nor lanes: breakers act through a Host.
package breaker
