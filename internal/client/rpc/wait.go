package rpc

import (
	"errors"
	"time"
)

// WaitStep is how long one call waits for the end of a task; Wait makes as many as it takes.
const WaitStep = 30 * time.Second

// ErrWaitCutShort: the broker responded long before the wait was over, perhaps because it is shutting down.
var ErrWaitCutShort = errors.New("wait cut short")
