// Package schedules creates, removes and triggers schedules. A schedule is in one shard, and the system shard knows by its name which one: the
// calls here keep the two in step.
//
// It does not know when a schedule is due.
package schedules
