package verb

import (
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Requests implement these interfaces by embedding structs with the methods.

// Placed is a request for one shard.
type Placed interface{ Place() uint32 }

// Spread is a request that can be sent to any shard.
type Spread interface {
	Placed
	Put(shard uint32)
}

// Homed is a request about an object whose shard the system shard looks up by the object's name.
type Homed interface {
	Spread
	Home() (ns, name string)
}

// Signed is a request of an operator, who is recorded in the audit log.
type Signed interface{ Author() *task.Author }

// Named is a request about an object whose id names its shard. If no node has that shard, the object does not exist.
type Named interface {
	Placed
	Named() (kind, id string)
}

// Leveled is a request that may use a field that leaders of an older release do not know. NewField returns the field, or "".
type Leveled interface{ NewField() string }

// Waiting is a request that may wait for something.
type Waiting interface{ Waits() *time.Duration }
