package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/gateway"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Node is a running node.
type Node struct {
	cfg   Config
	id    identity
	cache *pebble.Cache

	gateway *gateway.Gateway
	broker  *broker.Broker
	serving sync.WaitGroup
	closers []func() error                  // in the order of opening
	serves  atomic.Pointer[gateway.Gateway] // the gateway, for fail, which may come before Start returns

	fatal sync.Once
	stop  sync.Once
	err   error // of Stop
}

// ErrDamaged: a log has lost something that was synced, and Start has changed nothing; errors.As with *DamageError says
// where. A sound copy of the directory is the cure, or Config.AcceptDataLoss.
var ErrDamaged = raftlog.ErrDamaged

// DamageError says which part of which file is lost.
type DamageError = raftlog.DamageError

// logDir is where the logs lie in the data directory, stateDir where the state of a shard does.
const logDir = "raft"

func stateDir(shard uint32) string { return fmt.Sprintf("shard-%04d", shard) }

// cacheSize is the memory for blocks read from disk, shared by all stores of the node.
const cacheSize = 12 << 20

// Start starts a node. It serves when this returns. After an error nothing is left running.
func Start(ctx context.Context, cfg Config) (_ *Node, err error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if err := n.openDir(); err != nil {
		return nil, err
	}
	room := n.room()
	shards, err := n.startShards(ctx, room)
	if err != nil {
		return nil, err
	}
	c, err := cluster.Open(ctx, cluster.Config{System: shards.system, Shards: shards.broker, DataShards: shards.data, MaxQueues: cfg.MaxQueues, Room: room})
	if err != nil {
		return nil, err
	}
	shards.cluster = c
	n.broker = shards.broker
	n.broker.Start()
	n.gateway = gateway.New(gateway.Config{Broker: n.broker, Cluster: c, Limits: cfg.Limits, Logger: cfg.Logger,
		Version: cfg.Version, ClusterID: n.id.Cluster, Node: fmt.Sprintf("n%d", n.id.Node)})
	n.serves.Store(n.gateway)
	n.serving.Go(func() {
		// Server closed: Stop came before Serve had begun.
		if err := n.gateway.Serve(cfg.Listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			n.fail(fmt.Errorf("serve on %s: %w", cfg.Listener.Addr(), err))
		}
	})
	return n, nil
}

// openDir takes possession of the data directory.
func (n *Node) openDir() error {
	if n.cfg.InMemory {
		n.id = newIdentity(n.cfg.DataShards)
		dir, err := os.MkdirTemp("", "pawl-archive-")
		if err != nil {
			return err
		}
		n.cfg.Dir = dir
		n.closers = append(n.closers, func() error { return os.RemoveAll(dir) })
		return nil
	}
	if err := os.MkdirAll(n.cfg.Dir, 0o700); err != nil {
		return err
	}
	lock, err := lockDir(n.cfg.Dir)
	if err != nil {
		return err
	}
	n.closers = append(n.closers, lock.Close)
	n.id, err = readIdentity(n.cfg.Dir, n.cfg.DataShards)
	return err
}

// shards are what lies below the gateway.
type shards struct {
	system  *system
	data    []uint32
	broker  *broker.Broker
	cluster *cluster.Cluster // set once the system shard could be read
}

// checkLogs refuses states of shards without their logs. To raftlog a directory that is gone is a new one, and what the
// states had not flushed would be lost without a word.
func (n *Node) checkLogs() error {
	if n.cfg.InMemory || n.cfg.AcceptDataLoss {
		return nil
	}
	if _, err := os.Stat(n.path(logDir)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(n.path(stateDir(systemShard))); err != nil {
		return nil // a new directory
	}
	return &DamageError{File: n.path(logDir), Reason: "it is missing, and states of shards are there"}
}

func (n *Node) startShards(ctx context.Context, room func() error) (*shards, error) {
	if err := n.checkLogs(); err != nil {
		return nil, err
	}
	fs := vfs.Default
	if n.cfg.InMemory {
		fs = vfs.NewMem()
	}
	n.cache = pebble.NewCache(cacheSize)
	n.closers = append(n.closers, func() error { n.cache.Unref(); return nil })
	log, err := raftlog.Open(raftlog.Config{Dir: n.path(logDir), FS: fs, Identity: raftlog.Identity{Cluster: n.id.cluster(), Node: n.id.Node},
		Cache: n.cache, AcceptDataLoss: n.cfg.AcceptDataLoss, Logger: n.cfg.Logger, Fatal: n.fail})
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, log.Close)
	dead, err := archive.Open(archive.Config{Dir: n.path("archive"), MaxBytes: n.cfg.ArchiveMaxBytes,
		MaxAge: time.Duration(n.cfg.ArchiveMaxAge) * 24 * time.Hour})
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, dead.Close)
	s := &shards{}
	s.broker = broker.New(broker.Config{Limits: n.cfg.Limits, Archive: dead, Logger: n.cfg.Logger, Room: room,
		Namespaces: func() []string { return s.cluster.Namespaces() },
		EnsureQueue: func(ctx context.Context, shard uint32, ns, queue string) error {
			return s.cluster.EnsureQueue(ctx, shard, ns, queue)
		}})
	start := func(id uint32, hooks shard.Hooks) (*shard.Shard, error) { return n.startShard(ctx, id, hooks, log, fs) }
	control, err := start(systemShard, shard.Hooks{})
	if err != nil {
		return nil, err
	}
	s.system = &system{control}
	for id := uint32(1); id <= uint32(n.id.Shards); id++ {
		err := s.broker.Add(id, func(h shard.Hooks) (*shard.Shard, error) { return start(id, h) })
		if err != nil {
			return nil, err
		}
		s.data = append(s.data, id)
	}
	n.closers = append(n.closers, func() error { s.broker.Stop(); return nil })
	return s, nil
}

// room is how the broker asks whether the disk has room.
func (n *Node) room() func() error {
	if n.cfg.InMemory {
		return nil
	}
	r := &room{dir: n.cfg.Dir, min: n.cfg.MinFree, free: freeBytes}
	return r.check
}

// startShard opens the state of a shard and starts its replica, and waits until it leads.
func (n *Node) startShard(ctx context.Context, id uint32, hooks shard.Hooks, log *raftlog.Log, fs vfs.FS) (*shard.Shard, error) {
	state, err := store.Open(store.Config{Dir: n.path(stateDir(id)), FS: fs,
		Identity: store.Identity{Cluster: n.id.cluster(), Replica: n.id.Node, Shard: id},
		Cache:    n.cache, Logger: n.cfg.Logger, Fatal: n.fail})
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, state.Close)
	s, err := shard.Start(shard.Config{ID: id, Replica: n.id.Node, Voters: []uint64{n.id.Node}, Log: log, State: state, Hooks: hooks,
		Time: n.cfg.Time, Logger: n.cfg.Logger, Fatal: n.fail, Limits: shard.Limits{CallBytes: callBytes}})
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, func() error { s.Stop(); return nil })
	return s, waitUntilLed(ctx, s)
}

// callBytes holds the largest request, 16 MiB, and the rows that it makes.
const callBytes = 24 << 20

func waitUntilLed(ctx context.Context, s *shard.Shard) error {
	for {
		if _, leads := s.Now(); leads {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no leader yet: %w", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (n *Node) path(name string) string {
	if n.cfg.InMemory {
		return name
	}
	return filepath.Join(n.cfg.Dir, name)
}

// ClusterID names the cluster that the node belongs to.
func (n *Node) ClusterID() string { return n.id.Cluster }

// Stop drains the node: it takes no new connections, tells streams to settle what they hold, waits for them until ctx
// ends, and closes everything. It may be called more than once.
func (n *Node) Stop(ctx context.Context) error {
	n.stop.Do(func() {
		n.broker.Drain()
		n.gateway.Shutdown(ctx)
		n.serving.Wait()
		n.err = n.close()
	})
	return n.err
}

// close closes what was opened, the last first.
func (n *Node) close() error {
	var err error
	for i := len(n.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, n.closers[i]())
	}
	n.closers = nil
	return err
}

// fail cuts everybody off, so that they go elsewhere or come again, and reports why. What comes then is the end of the
// process, which a disk that hangs can hold up for as long as it does.
func (n *Node) fail(err error) {
	n.fatal.Do(func() {
		_ = n.cfg.Listener.Close()
		if g := n.serves.Load(); g != nil {
			g.Abort()
		}
		n.cfg.Fatal(err)
	})
}

// system is the system shard as the cluster package sees it.
type system struct{ shard *shard.Shard }

func (s *system) Update(ctx context.Context, fn func(tx *store.Tx) error) error {
	_, _, err := shard.Update(ctx, s.shard, func(tx *store.Tx) (struct{}, error) { return struct{}{}, fn(tx) })
	return unavailable(err)
}

func (s *system) View(ctx context.Context, fn func(store.Reader) error) error {
	_, _, err := shard.View(ctx, s.shard, func(r store.Reader) (struct{}, error) { return struct{}{}, fn(r) })
	return unavailable(err)
}

// unavailable puts what can go wrong around a round into the words of the API. A queue's change may be repeated safely,
// so an unknown outcome needs no word of its own.
func unavailable(err error) error {
	if _, refused := task.AsError(err); err == nil || refused {
		return err
	}
	return task.Unavailable(200*time.Millisecond, "system shard: %v", err)
}
