// Package breaker has the circuit breakers of a queue, one for each type of task that has a rule.
//
// A breaker judges the attempts of its type, in the entry of the log that ends each. It is closed while most succeed. When too many fail,
// it opens: the type is held, as by a pause, until the hold is over. Then it is probing: it lets one task through, and looks how that
// ends, before the next. Enough successes close it; a failure opens it for longer.
//
// While it is not closed only probes count: what else runs was claimed before, and says what is known. A probe that ends without a
// verdict makes place for the next one.
//
// What is stored is a row for each type that was heard of lately or is not closed. Queues without a rule have none. The package knows
// neither rounds nor lanes: what a breaker brings about goes through a Host.
package breaker
