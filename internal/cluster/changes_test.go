package cluster

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/systemtest"
	"github.com/pawlq/pawl/internal/task"
)

// poll asks for changes for node 1.
func poll(t *testing.T, c *Control, after uint64, wait time.Duration) Delta {
	t.Helper()
	d, err := c.Copies.Changes(bg, after, Report{Node: 1}, wait)
	must(t, err)
	return d
}

// brief renders a delta in words.
func (d Delta) brief() string {
	var names []string
	for _, q := range d.Queues {
		names = append(names, fmt.Sprint(q.Name, q.Config.Version))
	}
	for _, q := range d.Dropped {
		names = append(names, "-"+q.Name)
	}
	slices.Sort(names)
	return fmt.Sprint(names, " all ", d.All, " map ", d.Map != nil)
}

func TestChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", asItIs)
		must(t, err)
		first := poll(t, c, 0, time.Minute)
		if got := first.brief(); got != "[a1] all true map true" || first.Version != w.State.Applied().Index || len(first.Map.Shards) != 2 {
			t.Errorf("an empty copy got %s, version %d", got, first.Version)
		}
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "b", asItIs)
		must(t, err)
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(2))
		must(t, err)
		second := poll(t, c, first.Version, 0)
		if got := second.brief(); got != "[a2 b1] all false map false" {
			t.Errorf("after two changes the copy got %s", got)
		}
		must(t, c.Queues.DropQueue(bg, nobody, "default", "a"))
		must(t, c.Placement.Drain(bg, nobody, "n1"))
		third := poll(t, c, second.Version, 0)
		if got := third.brief(); got != "[-a] all false map true" {
			t.Errorf("after a deletion and a drain the copy got %s", got)
		}
		if got := poll(t, c, third.Version, 0).brief(); got != "[] all false map false" {
			t.Errorf("without a change the copy got %s", got)
		}
		if got := poll(t, c, third.Version+9, 0).brief(); got != "[b1] all true map true" {
			t.Errorf("a copy with a later version than the leader's got %s, want everything", got)
		}
	})
}

// A poll waits for changes, but not forever, and a change wakes it immediately.
func TestChangesWait(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		at := poll(t, c, 0, 0).Version
		pass(time.Minute)
		began := time.Now()
		time.AfterFunc(maxWait-1, func() {
			if d := c.Placement.liveness.silent(1); d > maxWait {
				t.Errorf("a node that is polling counts as silent for %v", d)
			}
		})
		if d := poll(t, c, at, time.Hour); d.Version != at || time.Since(began) != maxWait {
			t.Errorf("a poll without changes returned version %d after %v, want the same version after maxWait",
				d.Version, time.Since(began))
		}
		var wg sync.WaitGroup
		began = time.Now()
		wg.Go(func() {
			if d := poll(t, c, at, 2*time.Second); d.brief() != "[a1] all false map false" || time.Since(began) != time.Second {
				t.Errorf("the poll returned %s after %v, want queue a after 1s", d.brief(), time.Since(began))
			}
		})
		pass(time.Second)
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", asItIs)
		must(t, err)
		wg.Wait()
		// The leader is replaced: the caller gets an error immediately.
		at = poll(t, c, 0, 0).Version
		began = time.Now()
		wg.Go(func() {
			if _, err := c.Copies.Changes(bg, at, Report{Node: 1}, 5*time.Second); !errors.Is(err, systemtest.ErrNotLeader) ||
				time.Since(began) != time.Second {
				t.Errorf("a poll of a replaced leader: %v after %v, want ErrNotLeader after 1s", err, time.Since(began))
			}
		})
		pass(time.Second)
		w.newReplica().lead()
		wg.Wait()
		// The caller gives up.
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		c = w.leader.control
		began = time.Now()
		_, _ = c.Copies.Changes(ctx, at, Report{Node: 1}, 5*time.Second)
		if time.Since(began) != time.Second {
			t.Errorf("a poll waited %v although its caller gave up after 1s", time.Since(began))
		}
	})
}

// A new leader sends nothing to a copy that is up to date, and everything to one that may be missing changes.
func TestChangesAfterElection(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		old := poll(t, c, 0, 0).Version
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", asItIs)
		must(t, err)
		at := poll(t, c, 0, 0).Version
		c = w.open(1)
		if got := poll(t, c, at, 0).brief(); got != "[] all false map false" {
			t.Errorf("an up-to-date copy got %s from a new leader", got)
		}
		c = w.open(1) // a change comes before the first poll
		_, err = c.Queues.PutQueue(bg, auditlog.Action{}, "default", "b", asItIs)
		must(t, err)
		if got := poll(t, c, at, 0); got.brief() != "[b1] all false map false" || got.Version <= at {
			t.Errorf("an up-to-date copy got %s, version %d, want the change made before its first poll", got.brief(), got.Version)
		}
		if got := poll(t, c, old, 0).brief(); got != "[a1 b1] all true map true" {
			t.Errorf("a copy from before the election got %s, want everything", got)
		}
	})
}

// A leader's change log is bounded, and a copy that is too far behind still gets everything.
func TestChangesAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		from := poll(t, c, 0, 0).Version
		for i := range 3 * system.ChangeLogSize {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", setLength(int64(i+1)))
			must(t, err)
		}
		if got := poll(t, c, from, 0); !got.All {
			t.Errorf("a copy that is %d versions behind got %s, want everything", 3*system.ChangeLogSize, got.brief())
		}
		last := w.State.Applied().Index
		if got := poll(t, c, last-system.ChangeLogSize/2, 0).brief(); got != fmt.Sprintf("[a%d] all false map false",
			3*system.ChangeLogSize) {
			t.Errorf("a copy that is slightly behind got %s", got)
		}
	})
}

// Copies of random readers agree with the tables, whoever leads.
func TestCopiesConverge(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		copies := []*Copy{NewCopy(nil), NewCopy(nil), NewCopy(nil)}
		rnd := newFleet(t, 7).rnd
		joins := 1
		for i := range 600 {
			name := string(rune('a' + rnd.IntN(3)))
			switch rnd.IntN(6) {
			case 0:
				_ = c.Queues.DropQueue(bg, nobody, "default", name)
			case 1:
				joins++
				join(t, c, fmt.Sprint("n", joins), joins)
			case 2:
				if rnd.IntN(10) == 0 {
					c = w.open(1)
				}
			default:
				_, _ = c.Queues.PutQueue(bg, auditlog.Action{}, "default", name, setLength(int64(i)))
			}
			if cp := copies[rnd.IntN(3)]; rnd.IntN(3) == 0 {
				cp.Apply(poll(t, c, cp.Version(), 0))
				checkCopy(t, c, cp)
			}
			if t.Failed() {
				return
			}
		}
	})
}

func checkCopy(t *testing.T, c *Control, cp *Copy) {
	t.Helper()
	want, err := c.Queues.Queues(bg, "default", queues.Query{Limit: 10})
	must(t, err)
	if got := cp.Queues("default", "", 10); !reflect.DeepEqual(got, want) {
		t.Errorf("the copy has %+v, want %+v", got, want)
	}
	m := mapOf(t, c)
	if got := cp.Map(); !slices.Equal(got.Nodes, m.Nodes) || got.Settings != m.Settings || len(got.Shards) != len(m.Shards) {
		t.Errorf("the copy has %+v, want %+v", got, m)
	}
}

func TestFollow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		cp := NewCopy(nil)
		var fails atomic.Bool
		var polls atomic.Int64
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		changed := cp.Changed()
		var told auth.Access
		cp.OnAccess(func(a auth.Access) { told = a })
		var current []time.Time // as reported by the copy, which must be complete the first time
		wg.Go(func() {
			cp.Follow(ctx, func(ctx context.Context, after uint64, wait time.Duration) (Delta, error) {
				if polls.Add(1); fails.Load() {
					return Delta{}, systemtest.ErrNotLeader
				}
				return c.Copies.Changes(ctx, after, Report{Node: 1}, wait)
			}, func(asked time.Time) {
				if current = append(current, asked); len(told.Namespaces) == 0 || cp.Version() == 0 {
					t.Errorf("the copy was reported as current at version %d, with access %+v", cp.Version(), told)
				}
			})
		})
		began := time.Now()
		synctest.Wait()
		if len(current) != 1 || !current[0].Equal(began) {
			t.Errorf("the copy is current as of %v, want one report, as of %v, when it asked", current, began)
		}
		select {
		case <-changed:
		default:
			t.Error("the map changed, but Changed was not closed")
		}
		if fmt.Sprint(cp.Shards()) != "[1 2]" || cp.Version() == 0 {
			t.Errorf("the copy has shards %v, version %d, want shards 1 and 2", cp.Shards(), cp.Version())
		}
		_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", asItIs)
		must(t, err)
		synctest.Wait()
		if _, ok := cp.Queue("default", "a"); !ok {
			t.Error("the copy did not receive the queue immediately")
		}
		if c.Placement.liveness.silent(1) > pollWait {
			t.Errorf("a node that is following counts as silent for %v", c.Placement.liveness.silent(1))
		}
		fails.Store(true)
		polls.Store(0)
		pass(pollWait)
		synctest.Wait() // the poll in progress ends at this moment
		before := len(current)
		polls.Store(0)
		pass(time.Minute)
		if len(current) != before {
			t.Errorf("the copy was reported as current %d times without an answer", len(current)-before)
		}
		if n := polls.Load(); n < 20 || n > 80 {
			t.Errorf("%d polls in a minute without a leader, want 20 to 80", n)
		}
		must(t, c.Placement.Drain(bg, nobody, "n1"))
		fails.Store(false)
		pass(maxFollowPause)
		if synctest.Wait(); cp.Map().Nodes[0].State != Draining {
			t.Error("the copy no longer follows changes")
		}
		cancel()
		wg.Wait()
	})
}

// A leader that answers immediately without changes is not polled in a tight loop.
func TestFollowIsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		polls := 0
		NewCopy(nil).Follow(ctx, func(context.Context, uint64, time.Duration) (Delta, error) { polls++; return Delta{}, nil },
			func(time.Time) {})
		if polls > 80 {
			t.Errorf("%d polls in a minute, want at most 80", polls)
		}
	})
}

func TestCopyIsUpdated(t *testing.T) {
	cp := NewCopy(nil)
	cp.Apply(Delta{Version: 5, All: true, Queues: []queues.Queue{queueAt("a", 3)}})
	cp.Learned(queueAt("a", 2))
	cp.Learned(queueAt("b", 1))
	if a, _ := cp.Queue("default", "a"); a.Config.Version != 3 {
		t.Errorf("an older version replaced queue a: %+v, want version 3", a)
	}
	if _, ok := cp.Queue("default", "b"); !ok || fmt.Sprint(cp.Namespaces()) != "[default]" || len(cp.Queues("default", "a", 5)) != 1 {
		t.Errorf("the copy does not have a queue that it learned of")
	}
	cp.Apply(Delta{Version: 4, Queues: []queues.Queue{queueAt("a", 1)}}) // an old answer
	if a, _ := cp.Queue("default", "a"); a.Config.Version != 3 || cp.Version() != 5 {
		t.Errorf("an old answer changed queue a: %+v, want version 3", a)
	}
	cp.Dropped("default", "a")
	if _, ok := cp.Queue("default", "a"); ok {
		t.Error("the copy still has a deleted queue")
	}
	cp.Apply(Delta{Version: 3, All: true})
	if cp.Version() != 3 || len(cp.Namespaces()) != 0 {
		t.Errorf("the copy did not take a full answer with a lower version: version %d, want 3 and no queues", cp.Version())
	}
}

func queueAt(name string, version uint64) queues.Queue {
	return queues.Queue{Namespace: "default", Name: name, Shard: 1, Config: task.QueueConfig{Version: version,
		Settings: task.DefaultSettings()}}
}

func TestMapFile(t *testing.T) {
	m := &Map{Version: 9, Settings: system.Settings{Replication: 3, NextNode: 4, DataShards: 2},
		Nodes: []Node{{Number: 1, Name: "n1", State: Active}, {Number: 3, Name: "n3", State: Removed}}, Shards: []Shard{{ID: 0},
			{ID: 2, Replicas: []Replica{{ID: ReplicaID(7, 3), Node: 3}}}}}
	got, err := DecodeMap(m.Encode())
	must(t, err)
	if n, ok := got.Node(3); !ok || n.Name != "n3" || got.Version != 9 || got.Settings != m.Settings {
		t.Errorf("got %+v, want node 3 and the settings of the encoded map", got)
	}
	if s, ok := got.Shard(2); !ok || s.Replicas[0].ID != ReplicaID(7, 3) {
		t.Errorf("shard 2 is %+v, want its replica on node 3", s)
	}
	if _, ok := got.Named("n3"); ok {
		t.Error("Named found a removed node")
	}
	if _, ok := got.Node(2); ok {
		t.Error("Node(2) found a node, want none")
	}
	for _, bad := range []string{"", "{", "null", `{"Format":2}`} {
		if _, err := DecodeMap([]byte(bad)); err == nil {
			t.Errorf("DecodeMap(%q) succeeded", bad)
		}
	}
	cp := NewCopy(got)
	if _, ok := cp.Node(1); !ok || cp.Version() != 0 {
		t.Errorf("a copy loaded from a file has version %d, want 0 and node 1", cp.Version())
	}
	if s, ok := cp.Shard(2); !ok || s.ID != 2 {
		t.Errorf("shard 2 of the copy is %+v", s)
	}
}

// Queues returns up to limit queues of a namespace after a name, in the order of their names.
func (c *Copy) Queues(ns, after string, limit int) (found []queues.Queue) {
	c.mu.RLock()
	for _, q := range c.queues {
		if q.Namespace == ns && q.Name > after {
			found = append(found, q)
		}
	}
	c.mu.RUnlock()
	slices.SortFunc(found, func(a, b queues.Queue) int { return strings.Compare(a.Name, b.Name) })
	return found[:min(limit, len(found))]
}
