package verb

import (
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// A request implements these interfaces by embedding structs that have their methods.

// Placed is a request that is for one shard.
type Placed interface{ Place() uint32 }

// Spread is a request that can be made to any shard.
type Spread interface {
	Placed
	Put(shard uint32)
}

// Homed is a request about an object whose shard the system shard knows by the object's name.
type Homed interface {
	Spread
	Home() (ns, name string)
}

// Signed is a request of an operator, who is noted in the audit.
type Signed interface{ Author() *task.Author }

// Named is a request about an object whose id names its shard. If no node has that shard, the object does not exist.
type Named interface {
	Placed
	Named() (kind, id string)
}

// Leveled is a request that may use a field which leaders of an older release do not know. It returns the field, or "".
type Leveled interface{ NewField() string }

// Waiting is a request that may wait for something.
type Waiting interface{ Waits() *time.Duration }
