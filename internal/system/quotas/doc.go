// Package quotas divides a namespace's quotas among the data shards, and the limits of a queue among the shards that it
// is spread over. Each shard decides by its share alone. The simple way, equal shares, would refuse work while there is
// room elsewhere; so shares follow the use. At no moment do they exceed the quota: a share grows only by what others
// have confirmed to have given up, and a row of the system shard, written before the share is sent, says how much each
// shard may use at most.
//
// It knows no tasks, only what a namespace or a queue uses in each shard.
package quotas
