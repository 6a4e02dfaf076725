package node

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Config says what a node is to be.
type Config struct {
	// Dir is the data directory. InMemory, for tests, keeps everything in memory instead.
	Dir      string
	InMemory bool

	// Listener takes connections. Once Start has succeeded the node closes it.
	Listener net.Listener

	// DataShards is how many data shards the node has, 1 to 64, as the flag --shards says; 0: as many as the directory has,
	// and 1 in a new one. A larger number adds shards, for queues that are new; a smaller one is refused.
	DataShards int

	Limits    task.Limits
	MaxQueues int

	// MinFree is how many bytes of disk must be free for enqueues to be taken.
	MinFree int64

	ArchiveMaxBytes int64
	ArchiveMaxAge   int // days

	// AcceptDataLoss opens what is left of a log that is ErrDamaged, under a new epoch, which makes all claims void. Lost is
	// what was answered from the damage on and had not been flushed to a shard's state.
	AcceptDataLoss bool

	Version string
	Logger  *slog.Logger
	Time    store.TimeSource
	// Fatal is called, at most once, when the node can't go on. The process should end at once: it may hold in memory
	// what its disk does not.
	Fatal func(error)
}

// Defaults of Config.
const (
	DefaultMinFree            = 256 << 20
	DefaultArchiveDays        = 90
	maxDataShards             = 64
	systemShard        uint32 = 0
)

func (c *Config) setDefaults() error {
	if c.DataShards < 0 || c.DataShards > maxDataShards {
		return fmt.Errorf("shards: %d is not between 1 and %d", c.DataShards, maxDataShards)
	}
	if c.Limits == (task.Limits{}) {
		c.Limits = task.DefaultLimits()
	}
	if c.MinFree == 0 {
		c.MinFree = DefaultMinFree
	}
	if c.ArchiveMaxAge == 0 {
		c.ArchiveMaxAge = DefaultArchiveDays
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Time.Wall == nil {
		c.Time = store.SystemTime()
	}
	if c.Fatal == nil {
		c.Fatal = func(err error) { panic(err) }
	}
	return nil
}
