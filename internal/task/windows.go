package task

import "time"

// The windows of calls between shards. A call may be repeated, because its answer was lost or its shard had no leader, so the shard that
// answered it remembers it for a while. They are declared together because they depend on each other: a test states how.
const (
	// RequestWindow is how long a request id finds its task at least, whatever the task's retention: longer than a client
	// repeats a call whose answer was lost.
	RequestWindow = 10 * time.Minute
	// MessageWindow is how long a shard remembers a message from another shard's outbox: longer than that shard is without
	// a leader, even after the loss of a node. A sender repeats a message until it is answered, so one that is repeated
	// later takes effect twice. After a restore the window of what was remembered then begins anew.
	MessageWindow = 24 * time.Hour
	// NotificationWindow is how long the system shard remembers the last notification of a subject: it is one row for many
	// messages, so it may be generous. A later repeat makes a webhook's notice arrive twice, as it may anyway.
	NotificationWindow = 48 * time.Hour
	// StepWindow is how long a shard remembers its last step for an operation: an operator may pause an operation for
	// weeks. Tasks that it has sent to other shards keep the row for longer.
	StepWindow = 30 * 24 * time.Hour

	// ClockSlack is how much the clocks of two shards may differ.
	ClockSlack = time.Minute
	// MovedRequestWindow is how long the shard that a slot has left is asked about requests: until none from before is remembered there.
	MovedRequestWindow = RequestWindow + ClockSlack
	// MovedMessageWindow is the same for messages.
	MovedMessageWindow = MessageWindow + ClockSlack

	// CutWindow is how long a shard accepts no calls from other shards, at most, while a backup opens the images of all
	// shards. It is longer than that takes, and short for those who wait if the backup dies. What a shard forgets
	// ClockSlack after its end has ended in all images.
	CutWindow = 5 * time.Second
)
