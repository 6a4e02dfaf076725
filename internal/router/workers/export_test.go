package workers

import ()

// What the tests know.
const (
	WorkersTime = workersTime
	TallyTime   = tallyTime
)
