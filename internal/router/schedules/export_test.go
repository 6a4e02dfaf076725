package schedules

// MaxChanges and OnSchedule are exported for the tests.
const MaxChanges = maxChanges

var OnSchedule = onSchedule
