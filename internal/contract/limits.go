package contract

import "time"

// Limits of one request. Those of a task itself are task.Limits.
const (
	// MaxMessage is the limit of one request or answer in bytes: gRPC's messages and REST's bodies.
	MaxMessage = 16 << 20
	// SmallMessage is the size up to which a request is not counted among the large ones. A gRPC stream costs about as much without
	// any request.
	SmallMessage = 16 << 10
	// MaxExtra bounds the memory, in bytes, that one decoded request may take beyond what its length suggests: two or three bytes
	// of a request can become an object of hundreds. A thousand tasks with the maximum of headers and tags stay below it.
	MaxExtra = 32 << 20
	// MaxWait is the longest a call may wait: proxies cut longer ones.
	MaxWait = time.Minute

	DefaultPage = 100  // items of a list
	MaxPage     = 1000 // items of a list

	MaxSettle = 1000 // items of one request that acks, fails, extends or releases
	MaxRate   = 1e6  // tasks a second, of an operation

	MaxAttempts = 1000 // that a task may be given

	// MaxClaimBytes bounds the tasks of one answer, so that a message has room for what surrounds the payloads.
	MaxClaimBytes = 12 << 20

	// MaxParts bounds the number of parts of a queue that a request may ask for when it is decoded; the cluster's limit is lower,
	// and is enforced there.
	MaxParts = 1 << 20

	MaxScaleSlots = 100_000 // of one worker, for the figure of autoscalers
)

// MemoryFor returns how many bytes of memory a request of the given size is expected to take once decoded, in addition to the
// request itself: a task of 20 bytes becomes an object of some 400.
func MemoryFor(size int) int { return min(32*size, 1<<20) }

// Replications are the numbers of replicas that a shard may have. An even number would tolerate no more failures than the odd one
// below it.
var Replications = []int{1, 3, 5, 7}
