// Package auditlog records in the system shard what operators do to queues and to the cluster, in the round that changes the rows.
//
// It knows no rows but the log's own and the cluster's settings: whoever makes a change says what was before and after it.
package auditlog
