package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/node/members"
	"github.com/pawlq/pawl/internal/transport"
)

// An empty or outdated map costs a node none of its replicas: deleting them would lose a vote or, on a standalone node, a shard.
func TestReplicasStayWithoutACurrentMap(t *testing.T) {
	const again = 3<<32 | 2 // node 2's replica of incarnation 3
	me := datadir.Identity{Node: 2, Replicas: map[uint32]datadir.Holding{0: {Replica: 2, Founder: true}, 1: {Replica: again}}}
	row := func(id, next uint32, replicas ...uint64) cluster.Shard {
		s := cluster.Shard{ID: id, NextIncarnation: next}
		for _, r := range replicas {
			s.Replicas = append(s.Replicas, cluster.Replica{ID: r, Node: cluster.NodeOf(r)})
		}
		return s
	}
	for name, c := range map[string]struct {
		rows       []cluster.Shard
		left, here []uint32
	}{
		"no map":                           {nil, nil, nil},
		"all are there":                    {[]cluster.Shard{row(0, 1, 2), row(1, 4, again)}, nil, []uint32{0, 1}},
		"a shard of which it did not know": {[]cluster.Shard{row(0, 1, 2)}, nil, []uint32{0}},
		"before the replica was made":      {[]cluster.Shard{row(0, 1, 2), row(1, 3, 1)}, nil, []uint32{0}},
		"after it has left":                {[]cluster.Shard{row(0, 1, 2), row(1, 4, 1)}, []uint32{1}, []uint32{0}},
		"replaced by another":              {[]cluster.Shard{row(0, 1, 2), row(1, 5, 1, 4<<32|2)}, []uint32{1}, []uint32{0, 1}},
		"to be added":                      {[]cluster.Shard{row(0, 1, 2), row(1, 4, again), row(2, 1, 2)}, nil, []uint32{0, 1, 2}},
	} {
		left, here := placed(me, &cluster.Map{Shards: c.rows})
		if slices.Sort(left); !slices.Equal(left, c.left) || !slices.Equal(slices.Sorted(maps.Keys(here)), c.here) {
			t.Errorf("%s: %v have left and %v are here, want %v and %v", name, left, here, c.left, c.here)
		}
	}
}

// A new map that could not be saved, or not noted to have other nodes, is saved a little later, although it does not change again.
func TestMapIsSavedOnceItCanBe(t *testing.T) {
	for _, file := range []string{datadir.MapFile, datadir.IdentityFile} {
		t.Run(file, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var full atomic.Bool
				full.Store(true)
				mem := vfs.NewMem()
				disk := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if full.Load() && op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, file) {
						return errors.New("full")
					}
					return nil
				}))
				me := datadir.NewIdentity("n1")
				me.Cluster, me.Node = datadir.NewNonce(), 1
				dir := &datadir.Dir{FS: disk, Path: "d", Identity: datadir.NewIdentityStore(disk, "d", me)}
				link, err := transport.New(transport.Config{Self: func() transport.Peer { return transport.Peer{Number: 1} }})
				if err = errors.Join(err, mem.MkdirAll("d", 0o700)); err != nil {
					t.Fatal(err)
				}
				defer link.Close()
				a := &agent{dir: dir, transport: link, copy: cluster.NewCopy(nil), logger: slog.New(slog.DiscardHandler)}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go a.run(ctx)
				synctest.Wait()
				a.copy.Apply(cluster.Delta{Map: &cluster.Map{Version: 7, Nodes: []cluster.Node{{Number: 1, Name: "n1"},
					{Number: 2, Name: "n2"}}}})
				synctest.Wait()
				full.Store(false)
				time.Sleep(agentRetry)
				synctest.Wait()
				if of, m := members.Saved(dir); of != me.Cluster || m == nil || m.Version != 7 || !dir.Identity.Read().Others {
					t.Errorf("saved are the map %+v of cluster %q, and others: %t", m, of, dir.Identity.Read().Others)
				}
			})
		})
	}
}
