// Package outside holds stories that every SDK and REST must tell alike, as programs outside of the server see them: against the real
// binary, over the network. Package conformance, above, tells more stories of the same kind in memory and in fake time, to Go alone.
//
// A story is JSON in stories/. A small player in each language plays it: player_test.go here, for the Go SDK and for REST;
// clients/python/tests/outside.py; clients/typescript/tests/outside.ts. features.json says what each of them has. A story names the
// features that it is about, and a player passes over the stories of features that it lacks: there is no other way to pass over one.
// docs/sdks.md shows the table, and a test holds it to features.json and to the code.
//
// # Stories
//
// "@" is the name of the story wherever it stands, so that stories share a broker and nothing else. Each step is a call:
//
//	{"do": "enqueue", "with": {...}, "as": "t", "gives": {...}}
//
// The names of calls are the keys of the players' tables. What they take and give is in REST's words. "as" gives a name to the id
// in the answer, or to those in a list; "members" to those of a new group's tasks. Later, "$t" is that id, and ${t} in
// a text.
//
// An answer must have what "gives" says, and may have more; what is empty may be missing; lists are as long as they say. With
// "until" the call is repeated until the answer is right. With "refused" the call must be refused so.
//
// Four steps are no calls: "worker" starts a worker, which ends with the story; "stop" drains it and waits for that; "open" opens a
// gate, and "await" waits for one.
//
// # Handlers
//
// A worker's "handlers" has a list for each type: what its first run does, its second, and so on. All of them must run, and no more.
// A run is a list of actions, of which the last may end it:
//
//	{"sees": {...}}                     the claim has this
//	{"parent": {...}}                   the result of what the task follows
//	{"opens": "gate"}, {"holds": "gate"}
//	{"progress": 40, "message": "..."}
//	{"checkpoint": {...}}, {"last_checkpoint": {...}}
//	{"step": "name", "runs": 1, "gives": 1}   runs: what the step's function returns; without it, it must not run; fails: its error
//	{"once": "key", "runs": 1, "gives": 1}
//	{"interrupted": "cancelled"}        waits until it is told to stop, and why: cancelled, draining, timed_out; if it is the last, that is
//	                                    what the handler raises. Beside "checkpoint": that is refused so
//	{"returns": 1}, {"fails": "...", "retry_in": "1s"}, {"dead": "..."}, {"discards": "..."}, {"poisons": "..."}, {"snoozes": "1s"}
//
// When a run of the type job has ended, the gate "job ended" is open.
//
// "%uuid" is a UUID of the story's own, "%1MiB" a text of that length, and "+1h" as run_at the time an hour from now.
package outside
