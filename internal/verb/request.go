package verb

import "time"

// Requests implement these interfaces by embedding structs with the methods.

// Sharded is a request for one shard.
type Sharded interface{ TargetShard() uint32 }

// AnyShard is a request that can be sent to any shard.
type AnyShard interface {
	Sharded
	SetShard(shard uint32)
}

// ToNode is a request to one node.
type ToNode interface{ TargetNode() uint32 }

// AnyNode is a request that can be sent to any node.
type AnyNode interface {
	ToNode
	SetNode(node uint32)
}

// AtNode is the part of such a request that says which.
type AtNode struct{ Node uint32 }

// TargetNode implements ToNode.
func (a *AtNode) TargetNode() uint32 { return a.Node }

// SetNode implements AnyNode.
func (a *AtNode) SetNode(node uint32) { a.Node = node }

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
