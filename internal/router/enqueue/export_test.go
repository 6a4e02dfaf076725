package enqueue

import ()

// IsNewMember is known to the tests.
var IsNewMember = isNewMember
