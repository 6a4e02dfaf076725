// Package test runs the real binary as its users do, breaks it as the world does, and checks the history of what was
// answered: that nothing accepted was lost, that a task had one valid claim at a time, and that no stale holder changed
// anything.
//
// Everything here is as real as it gets: processes, disks, sockets and clocks. What can be shown with less is shown beside
// the code.
//
//	process_test.go   a server's process: started, killed, its log read
//	workload_test.go  producers, workers and meddlers; record_test.go: each of their calls becomes a record of package history
//	check_test.go     the end of a load: all is worked off, each task is read, the history is judged
//	strace_test.go    failures of the disk; netns_test.go: networks to be cut
//	disk_test.go      disks that get full; backup_test.go: while a backup is made or restored
//	cluster_damage_test.go  members of a cluster that lose a part of their directory
//	cluster_test.go   three servers that form a cluster, and how long writes get no answer
//	idempotency_test.go  workers that are killed, and what they bring about twice, with layers against that and without
//	upgrade_test.go   servers of two releases: the older one is this one without its newest feature level
//
// A history that can't be is written to a directory that outlives the test, and that is printed: history.Read reads it.
//
// By default the tests of one server take well under a minute, those of clusters, one after the other, two more. For longer
// runs the environment says how much they do (make soak):
//
//	PAWL_KILLS           kills of TestKill
//	PAWL_SHARD_KILLS     kills of TestShards
//	PAWL_CLUSTER_KILLS   kills of TestClusterKill
//	PAWL_CLUSTER_PAUSES  pauses of TestClusterPause
//	PAWL_CLUSTER_ROUNDS  restarts of each server in TestClusterRollingRestart
//	PAWL_CLUSTER_CUTS    cuts of each kind in TestClusterCut
//	PAWL_CLUSTER_DAMAGES members of TestClusterDamage that lose something
//	PAWL_PAYMENTS        payments of each layer in TestIdempotency
//	PAWL_TASKS           tasks on disk in TestStartWithManyTasks
//	PAWL_IDLE_SECONDS    for how long TestIdle looks
//	PAWL_SYNC_STEP       syncs between two kills of TestKillAtSync; 1: at each
//	PAWL_BUDGETS         if set, what takes longer than we promise is a failure, and not only logged
//
// Tests that need strace, or root to mount a disk or to make a network, are skipped where these can't be had.
package test
