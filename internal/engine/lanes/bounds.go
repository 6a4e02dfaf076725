package lanes

// Bounds are what memory is kept to. Tests change them.
var Bounds = struct {
	LaneHead int // tasks of a lane that are kept in memory in front of it

	Warm  int // flows of a queue that stay in memory as they are, even if they only wait
	Head  int // tasks of a cold lane that are remembered, with its first: to forget them costs a read for each key
	Heads int // tasks of all cold lanes of a queue that are: 7 MB

	Stale int // rows that tasks leave behind in a lane before they are deleted; a shorter lane has none

	// Of the lanes that are read. A key's lanes of one priority are read at once, whatever their number: their tasks have an order.
	FirstRead int // of each priority when a queue is first used
	TickRead  int // in a Tick, and when a type is no longer held
	ClaimRead int // by the claims of a round that found nothing, first lanes included
}{256, 1000, 16, 200_000, 1024, 500, 2000, 2000}
