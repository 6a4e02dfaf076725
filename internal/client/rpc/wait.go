package rpc

import (
	"errors"
	"time"
)

// waitStep is how long one call waits for the end of a task; Wait makes as many as it takes.
const WaitStep = 30 * time.Second

// errWaitCutShort: the broker, perhaps as it shuts down, answered long before the wait was over.
var ErrWaitCutShort = errors.New("wait cut short")
