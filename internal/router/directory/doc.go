// Package directory is the directory of queues: which shards have a queue, and its settings. Queues are read and changed on the system shard,
// wherever it is led; which shards have one comes from this node's copy, which is corrected when a call shows that a queue has moved.
//
// It does not know what is in a queue, nor who may change it.
package directory
