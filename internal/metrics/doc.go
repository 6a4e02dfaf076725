// Package metrics makes the page that Prometheus reads: names, help texts, labels and their bounds. It gathers what others count
// or know when somebody asks, and counts the calls of the API itself.
//
// It knows statistics by queue and type, and figures of shards and disks as numbers; it does not know tasks, Raft or HTTP routes, nor
// which node leads what: each node tells of the shards that it leads, so that the sum over all nodes is right.
package metrics
