package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/pawltype"

	pb "go.etcd.io/raft/v3/raftpb"
)

// twoShards is three nodes with two data shards, whose leaders crash, and a client with the addresses of all nodes. Data shard 2
// can be left without a leader while everything else continues.
type twoShards struct {
	*network
	dirs   map[string]string
	client *pawl.Client
	muted  atomic.Bool
}

func newTwoShards(t *testing.T) *twoShards {
	w := &twoShards{network: newNetwork(t)}
	w.dirs = w.grow()
	for _, s := range w.nodes { // for the shard that is about to be added
		plain := s.replicas.link
		s.replicas.link = func(id uint32) shard.Transport { return partition{plain(id), id, &w.muted} }
	}
	// longer than any shard is without a leader
	c, err := pawl.Dial("n1:7295,n2:7295,n3:7295", pawl.DialOptions{Dialer: w.dial, Logger: slog.New(slog.DiscardHandler),
		RetryFor: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	w.client = c
	w.addShard()
	return w
}

// partition keeps the replicas of shard 2 from reaching each other while it is shut. A restarted node is not gagged, but the other two
// are.
type partition struct {
	shard.Transport
	id   uint32
	shut *atomic.Bool
}

func (g partition) silent() bool { return g.id == 2 && g.shut.Load() }

func (g partition) Send(ms []*pb.Message) {
	if !g.silent() {
		g.Transport.Send(ms)
	}
}

func (g partition) SendSnapshot(ctx context.Context, m *pb.Message, size uint64, body func(io.Writer) error) error {
	if g.silent() {
		return errors.New("nobody hears it")
	}
	return g.Transport.SendSnapshot(ctx, m, size, body)
}

// place creates a queue spread over the shards in equal parts.
func (w *twoShards) place(queue string, settings admin.QueueSettings, shards ...int) {
	w.t.Helper()
	if _, err := admin.New(w.client).Queues().Put(w.t.Context(), queue, settings); err != nil {
		w.t.Fatal(err)
	}
	if _, err := admin.New(w.client).Queues().Spread(w.t.Context(), queue, admin.SpreadOptions{Shards: shards}); err != nil {
		w.t.Fatal(err)
	}
	w.until("the queue is in its shards", func() error {
		q, err := admin.New(w.client).Queues().Get(w.t.Context(), queue)
		if err != nil {
			return err
		}
		for _, p := range q.Parts {
			if here := slices.Contains(shards, p.Shard); p.Moving || here != (p.Slots == 64/len(shards)) || !here && p.Slots > 0 {
				return fmt.Errorf("part %+v", p)
			}
		}
		return nil
	})
}

// crashLeader takes the leader of a shard down, and restarts it when during has returned.
func (w *twoShards) crashLeader(shard uint32, during func()) {
	w.t.Helper()
	name := w.leaderOf(shard)
	w.crash(name)
	pass(8 * time.Second)
	during()
	w.start(name, w.dirs[name])
}

// loseShard2 leaves shard 2 without a leader. It works once, before any node has crashed.
func (w *twoShards) loseShard2() {
	w.t.Helper()
	w.muted.Store(true)
	w.until("shard 2 has no leader", func() error {
		if w.led(2) {
			return errors.New("somebody leads it")
		}
		return nil
	})
}

// healShard2 lets shard 2 elect a leader again after loseShard2.
func (w *twoShards) healShard2() {
	w.t.Helper()
	if w.led(2) {
		w.t.Error("shard 2 has a leader, and should have none")
	}
	w.muted.Store(false)
	w.until("three voters each", w.replicated(3))
}

func (w *twoShards) led(shard uint32) bool {
	for _, s := range w.nodes {
		if rep := s.replicas.get(shard); rep != nil {
			if _, leads := rep.shard.Now(); leads {
				return true
			}
		}
	}
	return false
}

// sound fails the test unless all replicas have the same, consistent state.
func (w *twoShards) sound() {
	w.t.Helper()
	w.until("three voters each", w.replicated(3))
	for id := range uint32(3) {
		v, err := admin.New(w.client).Cluster().VerifyShard(w.t.Context(), id)
		if err != nil || !v.Equal || len(v.Problems) > 0 {
			w.t.Errorf("shard %d: %+v, %v", id, v, err)
		}
	}
}

// tasks returns all tasks of a queue, with their attempts.
func (w *twoShards) tasks(queue string) (all []*pawltype.Task) {
	w.t.Helper()
	for info, err := range admin.New(w.client).Tasks().List(w.t.Context(), admin.Filter{Queue: queue}) {
		if err == nil {
			info, err = w.client.Task(w.t.Context(), info.ID)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, info)
	}
	return all
}

// ended returns a condition: all tasks of a queue have ended.
func (w *twoShards) ended(queue string) func() error {
	return func() error {
		q, err := admin.New(w.client).Queues().Get(w.t.Context(), queue)
		if d := q.Depth; err == nil && d.Scheduled+d.Ready+d.Claimed+d.Retrying > 0 {
			err = fmt.Errorf("queue %q has %+v", queue, d)
		}
		return err
	}
}

// inTheEnd waits for a condition that takes a while and is expensive to check.
func (w *twoShards) inTheEnd(what string, is func() error) {
	w.t.Helper()
	w.within(3*time.Minute, 2*time.Second, what, is)
}
