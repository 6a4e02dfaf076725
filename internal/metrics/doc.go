// Package metrics serves the page that Prometheus scrapes: names, help texts, labels and their bounds. It gathers on each scrape what
// others count or know, and counts the calls of the API itself.
//
// It knows statistics by queue and type, and figures of shards and disks as numbers. It does not know tasks, Raft or HTTP routes, nor which
// node leads what: each node reports the shards that it leads, so that the sum over all nodes is right.
package metrics
