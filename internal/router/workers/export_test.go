package workers

// These are exported for the tests.
const (
	WorkersTime = workersTime
	TallyTime   = tallyTime
)
