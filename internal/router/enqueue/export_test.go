package enqueue

import ()

// IsNewMember is exported for the tests.
var IsNewMember = isNewMember
