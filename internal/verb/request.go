package verb

import (
	"time"
)

// Requests implement these interfaces by embedding structs with the methods.

// Sharded is a request for one shard.
type Sharded interface{ TargetShard() uint32 }

// AnyShard is a request that can be sent to any shard.
type AnyShard interface {
	Sharded
	SetShard(shard uint32)
}

// ByName is a request about an object whose shard the system shard looks up by the object's name.
type ByName interface {
	AnyShard
	ObjectName() (ns, name string)
}

// ByID is a request about an object whose id names its shard. If no node has that shard, the object does not exist.
type ByID interface {
	Sharded
	ObjectID() (kind, id string)
}

// Waiting is a request that may wait for something.
type Waiting interface{ Waits() *time.Duration }
