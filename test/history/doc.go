// Package history records what clients asked of a broker and what it answered, and decides afterwards whether a queue that
// keeps Pawl's promises can have given these answers.
//
//	record.go     one call of a client and its answer; JSON lines
//	recorder.go   where concurrent clients put them
//	model.go      the life of one task as callers may see it; verbs.go, refuse.go, guess.go: answered, refused, unanswered
//	book.go       records sorted by task; lost.go: calls without an answer are given to the tasks they may have moved
//	facts.go      what holds among tasks: request ids, payloads, final reads
//	sweep.go      the order of answers in real time, in the log, and in the shard's time
//	stream.go     replays each task in the order of the log
//	exact.go      searches, with porcupine, for any order in which the answers of a task make sense
//	check.go      Check puts them together
//
// A task whose calls were all answered is replayed, which costs about a microsecond per call. A task that an unanswered call may have
// moved is searched, and so is a sample of the others, without using the indexes of the log.
//
// The package knows records of client calls and the contract of the API. It knows nothing of servers: neither processes, nor
// replicas, nor how a promise is kept. It does not model edits of waiting tasks, purges, expires_in, unique keys, retention that
// deletes a task, claims by the Work stream, or recovery under a new epoch: histories that are checked must not use them. It can't
// see what no client knows: a claim that the broker took back at once leaves a gap in the fences, which is accepted if there was
// an unanswered claim, or if reads show more releases than there were calls.
package history
