// Package schema defines the layout of a shard's state: the tables, the keys of their rows, and the contents of the rows of a task.
//
// The rows of policies (schedules, groups, breakers and so on) are defined in the policy's package; their tables and
// deadlines are listed here, so that no two use the same letter.
//
// outbox.go stores the shard's messages to other shards: a message is written in the log entry that needs it, delivered by the leader's
// sender as often as necessary, and removed when the other shard has answered. The receiving shard processes it once: a message has its own
// request id, which that shard remembers (task.MessageWindow).
//
// It knows no verb: nothing here decides about a task, nor who sends messages.
package schema
