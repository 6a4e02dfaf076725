// Package schema defines the layout of a shard's state: the tables, the keys of their rows, and the contents of the rows of a task.
//
// The rows of policies (schedules, groups, breakers and so on) are defined in the policy's package; their tables and
// deadlines are listed here, so that no two use the same letter.
//
// It knows no verb: nothing here decides about a task.
package schema
