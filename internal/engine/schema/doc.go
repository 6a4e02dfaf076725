// Package schema is the form of a shard's state: which tables there are, the keys of their rows, and what the rows of a task say.
//
// Rows of policies (schedules, groups, breakers and so on) are described where the policy is; their tables and deadlines are listed
// here, so that no two have the same letter.
//
// It knows no verb: nothing here decides what becomes of a task.
package schema
