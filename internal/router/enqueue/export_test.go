package enqueue

// IsNewMember is exported for the tests.
var IsNewMember = isNewMember
