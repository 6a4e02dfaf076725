// Package schedules keeps the names of schedules in the system shard, each with the data shard that has the schedule, so that names are
// unique.
//
// It knows nothing else about a schedule. A name is registered before its schedule is put, and removed after it was deleted, both with a
// version that only grows: the shard refuses late calls with an older one.
package schedules
