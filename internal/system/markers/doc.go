// Package markers keeps markers in the system shard: moments and spans of time with a title, such as deployments and incidents, which are
// drawn on charts.
//
// Nothing is decided by them. It knows neither charts nor the queues that a marker names.
package markers
