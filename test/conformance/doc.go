// Package conformance holds the stories of a task's life, each written once and told through every door of the house:
// direct calls of the broker, REST, gRPC, and the Go SDK. A fifth telling passes each call through the next door in turn,
// so that what one door began another one ends.
//
// Where to look: door_test.go says what a door can do, in words that belong to none of them; world_test.go puts the house
// together; the stories are in the files named for what they are about. A story is a function over a world; it may not
// ask which door it goes through.
//
// Package outside, below, has stories that the SDKs of other languages tell as well, over the network.
//
// It knows how a node is put together and what the contract says, and nothing of how the promises are kept. Time is fake,
// the disk and the network are in memory.
package conformance
