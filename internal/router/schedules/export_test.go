package schedules

import ()

// MaxChanges and OnSchedule are known to the tests.
const MaxChanges = maxChanges

var OnSchedule = onSchedule
