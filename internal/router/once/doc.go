// Package once finds once keys: in the shard of the task that names the key, or along the route of the key's slot while its queue is, or was,
// spread over shards.
//
// It does not know what happens once.
package once
