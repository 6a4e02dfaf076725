// Package webhooks keeps webhooks in the system shard: the settings of each, the state of its deliveries, and the notices to be sent. Its
// Dispatcher sends them on the node that leads, and notices when a queue crosses a threshold.
//
// The data shards collect events according to their copies of what all webhooks of a namespace together subscribe to. It knows neither
// HTTP, which is package webhook's, nor how a queue's depth is found out.
package webhooks
