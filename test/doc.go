// Package test runs the real binary as its users do, breaks it as the world does, and checks the history of what was
// answered: that nothing accepted was lost, that a task had one valid claim at a time, and that no stale holder changed
// anything.
//
// Everything here is real: processes, disks, sockets and clocks. What can be tested with less is tested next to the code.
//
//	process_test.go   a server's process: started, killed, its log read
//	workload_test.go  producers, workers and disrupters; record_test.go: their calls become records of package history
//	check_test.go     the end of a load: all tasks are finished and read, and the history is checked
//	strace_test.go    disk failures; netns_test.go: networks that can be cut
//	disk_test.go      full disks; backup_test.go: also during a backup or a restore
//	cluster_damage_test.go  members of a cluster that lose part of their directory
//	cluster_test.go   clusters of three servers, and how long writes are unavailable
//	idempotency_test.go  killed workers, and the effects that they repeat, with and without protection
//	upgrade_test.go   servers of two releases: the newer one is built with one more feature level
//
// An impossible history is written to a directory that outlives the test and is printed: history.Read reads it.
//
// By default the tests of one server take well under a minute, and those of clusters, which run one after the other, two more.
// For longer runs, environment variables set how much they do (make soak):
//
//	PAWL_KILLS           kills of TestKill
//	PAWL_SHARD_KILLS     kills of TestShards
//	PAWL_CLUSTER_KILLS   kills of TestClusterKill
//	PAWL_CLUSTER_PAUSES  pauses of TestClusterPause
//	PAWL_CLUSTER_ROUNDS  restarts of each server in TestClusterRollingRestart
//	PAWL_CLUSTER_CUTS    cuts of each kind in TestClusterCut
//	PAWL_CLUSTER_DAMAGES losses in TestClusterDamage
//	PAWL_PAYMENTS        payments of each layer in TestIdempotency
//	PAWL_TASKS           tasks on disk in TestStartWithManyTasks
//	PAWL_IDLE_SECONDS    duration of TestIdle
//	PAWL_SYNC_STEP       syncs between two kills in TestKillAtSync; 1: at each
//	PAWL_LONG            if set, everything is tried of which other runs try a sample
//	PAWL_BUDGETS         if set, taking longer than promised is a failure rather than just logged
//
// Tests that need strace, or root to mount a disk or to create a network, are skipped where these are unavailable.
package test
