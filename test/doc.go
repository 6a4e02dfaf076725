// Package test runs the real binary as its users do, breaks it as the world does, and checks the history of what was
// answered: that nothing accepted was lost, that a task had one valid claim at a time, and that no stale holder changed
// anything.
//
// Everything here is as real as it gets: processes, disks, sockets and clocks. What can be shown with less is shown beside
// the code.
//
// By default the tests take well under a minute. For longer runs the environment says how much they do (make soak):
//
//	PAWL_KILLS         kills of TestKill
//	PAWL_SHARD_KILLS   kills of TestShards
//	PAWL_TASKS         tasks on disk in TestStartWithManyTasks
//	PAWL_IDLE_SECONDS  for how long TestIdle looks
//	PAWL_SYNC_STEP     syncs between two kills of TestKillAtSync; 1: at each
//	PAWL_BUDGETS       if set, what takes longer than we promise is a failure, and not only logged
//
// Tests that need strace, or root to mount a disk, are skipped where these can't be had.
package test
