// Package conformance holds stories about the life of a task. Each is written once and run through every API: direct calls of
// the broker, REST, gRPC, and the Go SDK. A fifth run makes each call through the next API in turn, so that one API continues what
// another one began.
//
// Where to look: api_test.go defines what an API can do, in terms that belong to none of them; world_test.go assembles a node in memory;
// the stories are in files named for their subjects. A story is a function over a world; it must not ask which API it goes through.
//
// Package outside, below, has stories that the SDKs of other languages run as well, over the network.
//
// It knows how a node is assembled and what the API's contract says, and nothing of how the promises are kept. Time is
// fake, and the disk and the network are in memory.
package conformance
