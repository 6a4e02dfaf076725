package lanes

// Bounds limits what is kept in memory. Tests change them.
var Bounds = struct {
	LaneHead int // tasks at the front of a lane that are kept in memory

	Warm  int // flows of a queue that stay in memory as they are, even if they only have waiting tasks
	Head  int // tasks of a cold lane that are kept, its first included: forgetting them costs a read for each key
	Heads int // tasks of all cold lanes of a queue that are kept: 7 MB

	Stale int // stale rows of a lane before they are deleted; a shorter lane has none

	// Lanes to read. A key's lanes of one priority are always read together, because their tasks are ordered.
	FirstRead int // per priority when a queue is first used
	TickRead  int // in a Tick, and when a type is released
	ClaimRead int // by claims of one round that found nothing, the first lanes included
}{256, 1000, 16, 200_000, 1024, 500, 2000, 2000}
