package contract

import "time"

// How far one request may go. What a task itself may be is task.Limits.
const (
	// MaxMessage is the limit of one request or answer in bytes: gRPC's messages and REST's bodies.
	MaxMessage = 16 << 20
	// SmallMessage is what a request may have without being counted among the large ones. It is about what a stream of gRPC costs without one.
	SmallMessage = 16 << 10
	// MaxExtra is how many bytes of memory one request may take, once it is decoded, beyond what its length lets expect: two or three bytes of
	// it can become an object of hundreds. A thousand tasks with all the headers and tags that they may have stay below it.
	MaxExtra = 32 << 20
	// MaxWait is the longest a call may wait: longer ones are cut by proxies.
	MaxWait = time.Minute

	DefaultPage = 100  // items of a list
	MaxPage     = 1000 // items of a list

	MaxSettle   = 1000 // items of one request that acks, fails, extends or releases
	MaxSelected = 1000 // tasks that a bulk call may name by id
	MaxRate     = 1e6  // tasks a second, of a bulk call

	MaxAttempts = 1000 // that a task may be given

	// MaxClaimBytes bounds the tasks of one answer, so that there is room in a message for what lies around the payloads.
	MaxClaimBytes = 12 << 20

	// MaxParts bounds what is read of a wish for parts of a queue; what is allowed is less, and is said by the cluster.
	MaxParts = 1 << 20

	MaxScaleSlots = 100_000 // of one worker, for the figure of autoscalers
)

// MemoryFor is how many bytes of memory a request of so many is expected to take once it is decoded, beside their own number: a task of 20
// bytes becomes an object of some 400.
func MemoryFor(size int) int { return min(32*size, 1<<20) }

// Replications are the numbers of replicas that a shard may have: an even one would bear no more deaths than the odd one
// below it.
var Replications = []int{1, 3, 5, 7}
