// Package outside holds stories that every SDK and REST must tell alike, as programs outside the server see them:
// against the real binary, over the network. Package conformance, above, tells more stories of the same kind in memory
// and in fake time, in Go only.
//
// A story is JSON in stories/. A small player in each language plays it: player_test.go here, for the Go SDK and for
// REST; clients/python/tests/outside.py; clients/typescript/tests/outside.ts. features.json says which features each of
// them has. A story names the features that it is about, and a player skips the stories about features that it lacks:
// there is no other way to skip one. docs/sdks.md shows the table, and a test compares it with features.json and the
// code.
//
// # Stories
//
// "@" stands for the name of the story, so that stories can share a broker without interfering. Each step is a call:
//
//	{"do": "enqueue", "with": {...}, "as": "t", "gives": {...}}
//
// The names of calls are the keys of the players' tables. Arguments and answers are in REST's words. "as" names the id in the
// answer, or those in a list; "members" names those of a new group's tasks. Later, "$t" stands for that id, as does ${t} within
// a text.
//
// An answer must have what "gives" says, and may have more; empty values may be missing; lists must have the given length. With
// "until" the call is repeated until the answer matches. With "refused" the call must be refused like that.
//
// Four steps are not calls: "worker" starts a worker, which stops with the story; "stop" drains it and waits until it has stopped;
// "open" opens a gate, and "await" waits for one.
//
// # Handlers
//
// A worker's "handlers" has a list for each type: what its first run does, its second, and so on. All of them must run, and no more.
// A run is a list of actions, the last of which may end it:
//
//	{"sees": {...}}                     the claim must have this
//	{"parent": {...}}                   the result of what the task follows
//	{"opens": "gate"}, {"holds": "gate"}
//	{"progress": 40, "message": "..."}
//	{"checkpoint": {...}}, {"last_checkpoint": {...}}
//	{"step": "name", "runs": 1, "gives": 1}   runs: what the step's function returns; without it, it must not run; fails: its error
//	{"once": "key", "runs": 1, "gives": 1}
//	{"interrupted": "cancelled"}        waits until it must stop for this reason: cancelled, draining, timed_out; as the last action, it
//	                                    is what the handler raises. With "checkpoint": the checkpoint fails with it
//	{"returns": 1}, {"fails": "...", "retry_in": "1s"}, {"dead": "..."}, {"discards": "..."}, {"poisons": "..."}, {"snoozes": "1s"}
//
// When a run of the type job has ended, the gate "job ended" is open.
//
// "%uuid" stands for a UUID of the story, "%1MiB" for a text of that length, and "+1h" as run_at for the time an hour from now.
//
// # Vectors
//
// keyring.json and payloads.json have values that all SDKs must encrypt, or encode, so that the others and the broker
// take them for the same.
//
// # Traces
//
// traces.json has what the broker sends to a worker, how handlers end and how time passes; and what the worker must
// send and hold then. The tests of each SDK play them in fake time, without a network, against the part of a worker
// that decides: trace_test.go in internal/client/work, clients/python/tests/test_traces.py,
// clients/typescript/tests/traces.test.ts.
//
// A step waits until the second "at", if there is one, and then one thing happens:
//
//	{"open": true}, {"break": true}                    a stream opens, or breaks
//	{"push": ["a"], "lease": 30, "timeout": 5}         the broker pushes tasks: these are the tokens of their claims
//	{"answer": {"ack": ["a"], "code": "unavailable", "reason": "", "retry_after": 3}} it confirms what it was sent, or refuses it
//	{"lost": ["a"], "reason": "cancelled"}             it says that claims are gone
//	{"quiet": true}                                    an operator's order
//	{"end": {"a": "returns"}}                          a handler ends: returns, fails, snoozes, stops (as it was told to), "returns what
//	                                                   cannot be sent", "fails without words" (its error can't be read)
//	{"progress": "a"}                                  a handler reports progress
//	{"drain": true}, {"stop": true}, {"abandon": true} the worker takes no more tasks; it tells handlers to stop; it leaves them behind
//
// "sends" has what the worker sent in the step and in the wait before it, in one frame or several: without it, nothing.
// "holds" has the phases of all claims, "stopped" why handlers were told to stop, "busy" the number of slots in use;
// they are compared if given. Pauses are random in part, and sweeps have steps of 50 ms, so steps keep some distance
// from the times that they look at.
package outside
