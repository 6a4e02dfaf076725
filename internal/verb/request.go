package verb

import (
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// What a request may say of itself, beside its fields. It does so by a method of a struct that it embeds.

// Placed is a request that is for one shard.
type Placed interface{ Place() uint32 }

// Spread is a request that can be made to any shard.
type Spread interface {
	Placed
	Put(shard uint32)
}

// Homed is a request about a thing that lives in a shard which the system shard knows by its name.
type Homed interface {
	Spread
	Home() (ns, name string)
}

// Signed is a request of an operator, who is noted in the audit.
type Signed interface{ Author() *task.Author }

// Named is a request about a thing whose id says its shard: there is no such thing if nobody has the shard.
type Named interface {
	Placed
	Named() (kind, id string)
}

// Leveled is a request that leaders of an older release may not understand: a field says more than they know. "": it does not.
type Leveled interface{ NewField() string }

// Waiting is a request that may wait for something.
type Waiting interface{ Waits() *time.Duration }
