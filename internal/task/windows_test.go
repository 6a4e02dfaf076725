package task

import (
	"testing"
	"time"
)

// Each window exceeds what depends on it.
func TestWindows(t *testing.T) {
	for what, w := range map[string]struct{ longer, shorter time.Duration }{
		"a message is remembered for longer than a request": {MessageWindow, RequestWindow},
		"a notification is remembered for longer than a message is repeated": {NotificationWindow,
			MessageWindow + ClockSlack},
		"a step is remembered for longer than the messages that it sends":                   {StepWindow, NotificationWindow},
		"the old shard of a slot is asked about requests for longer than it remembers them": {MovedRequestWindow, RequestWindow},
		"the old shard of a slot is asked about messages for longer than it remembers them": {MovedMessageWindow, MessageWindow},
		"keys end in the images of a backup before a shard is no longer asked about them":   {ClockSlack, 2 * CutWindow},
		"the old shard of a slot is asked about messages for longer than about requests":    {MovedMessageWindow, MovedRequestWindow},
	} {
		if w.longer <= w.shorter {
			t.Errorf("%s: %v, want more than %v", what, w.longer, w.shorter)
		}
	}
	if MovedRequestWindow-RequestWindow < ClockSlack || MovedMessageWindow-MessageWindow < ClockSlack {
		t.Errorf("the windows of moved slots leave %v and %v for clocks that differ, want %v", MovedRequestWindow-RequestWindow,
			MovedMessageWindow-MessageWindow, ClockSlack)
	}
}
