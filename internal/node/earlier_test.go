package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/node/members"
	"github.com/pawlq/pawl/internal/transport"
	"github.com/pawlq/pawl/pawltype"
)

// copyDir returns a copy of a data directory.
func copyDir(t *testing.T, dir string) (copied string) {
	t.Helper()
	copied = filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return copied
}

// putBack replaces a data directory, or a part of it, by a copy.
func putBack(t *testing.T, copied, dir, part string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, part)), os.CopyFS(filepath.Join(dir, part),
		os.DirFS(filepath.Join(copied, part)))); err != nil {
		t.Fatal(err)
	}
}

// A member on an earlier copy of its directory, or of its logs, does not run: it rejoins and is filled again, whoever knows what it had:
// the leader, which still leads, or the other nodes, although they were restarted since.
func TestEarlierCopyRejoins(t *testing.T) {
	for what, c := range map[string]struct {
		part    string
		restart bool // of the others
		flush   bool // the state before the crash, so that it is newer than the logs
	}{
		"all":                  {"", false, false},
		"all, restarted since": {"", true, false},
		"logs":                 {"raft", false, false},
		"logs, flushed since":  {"raft", false, true},
	} {
		t.Run(what, func(t *testing.T) {
			if !c.restart && !c.flush {
				bySameGoroutines(t, "the case of the same part in which something has happened since")
			}
			synctest.Test(t, func(t *testing.T) {
				w := newNetwork(t)
				dirs := w.grow()
				enqueue(t, w.nodes["n2"].client(), "mail")
				pass(time.Minute)
				copied := copyDir(t, dirs["n3"])
				id, _ := enqueue(t, w.nodes["n2"].client(), "mail")
				pass(time.Minute)
				old := w.nodes["n3"].dir.Identity.Read().Node
				if c.flush {
					if err := w.nodes["n3"].replicas.get(1).state.Flush(); err != nil {
						t.Fatal(err)
					}
				}
				w.crash("n3")
				if c.restart {
					for _, name := range []string{"n1", "n2"} {
						w.crash(name)
						w.start(name, dirs[name])
						pass(10 * time.Second)
					}
				}
				putBack(t, copied, dirs["n3"], c.part)
				w.start("n3", dirs["n3"])
				if now := w.nodes["n3"].dir.Identity.Read().Node; now == old {
					t.Errorf("it runs under its old number, %d", now)
				}
				w.until("three voters each", w.replicated(3))
				if info, err := w.nodes["n3"].client().Task(t.Context(), id); err != nil || info.State != pawltype.StateReady {
					t.Errorf("the task is %+v, %v", info, err)
				}
			})
		})
	}
}

// A member on an earlier copy does not help a node that lacks an acknowledged write to a majority, even if all who had it are down: the
// others have heard of it.
func TestEarlierCopyDoesNotVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dirs := w.grow()
		enqueue(t, w.nodes["n1"].client(), "mail")
		pass(time.Minute)
		copied := copyDir(t, dirs["n3"])
		pass(time.Minute)
		enqueue(t, w.nodes["n1"].client(), "mail")
		pass(time.Minute)
		w.writeWithoutN2()
		putBack(t, copied, dirs["n3"], "")
		w.start("n2", dirs["n2"])
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := w.tryStart(ctx, "n3", dirs["n3"]); !errors.Is(err, ErrDamaged) {
			t.Errorf("it runs: %v", err)
		}
		if rep := w.nodes["n2"].replicas.get(1); rep.shard.Leads() {
			t.Error("n2 leads")
		}
		w.start("n1", dirs["n1"])
		w.start("n3", dirs["n3"])
		w.until("three voters each", w.replicated(3))
	})
}

// A founder on a copy from when it was alone does not go on alone: it asks at the addresses of --join, or is told by the others.
func TestCopyFromBeforeTheOthers(t *testing.T) {
	for _, join := range [][]string{nil, {"n2"}} {
		t.Run(fmt.Sprint(join), func(t *testing.T) {
			if join != nil {
				bySameGoroutines(t, "the founder that is told by the others and then asks them")
			}
			synctest.Test(t, func(t *testing.T) {
				w := newNetwork(t)
				ended := make(chan error, 4)
				w.fatal = func(err error) { ended <- err }
				dirs := map[string]string{"n1": t.TempDir()}
				w.start("n1", dirs["n1"])
				id, _ := enqueue(t, w.nodes["n1"].client(), "mail")
				pass(time.Minute)
				copied := copyDir(t, dirs["n1"])
				for _, name := range []string{"n2", "n3"} {
					dirs[name] = t.TempDir()
					w.start(name, dirs[name], "n1")
				}
				w.until("three voters each", w.replicated(3))
				pass(time.Minute)
				w.crash("n1")
				pass(time.Minute)
				putBack(t, copied, dirs["n1"], "")
				w.start("n1", dirs["n1"], join...)
				if join == nil {
					if err := soon(t, ended); !errors.Is(err, ErrDamaged) {
						t.Fatalf("it ended with %v", err)
					}
					w.crash("n1")
					if _, err := w.tryStart(t.Context(), "n1", dirs["n1"]); !errors.Is(err, ErrDamaged) {
						t.Errorf("it started again: %v", err)
					}
					w.start("n1", dirs["n1"], "n2")
				}
				w.until("three voters each", w.replicated(3))
				if info, err := w.nodes["n1"].client().Task(t.Context(), id); err != nil || info.State != pawltype.StateReady {
					t.Errorf("the task is %+v, %v", info, err)
				}
			})
		})
	}
}

// Two processes that run as one node, one of them on a copy of its directory, don't both go on: the others tell one of them, if a leader
// doesn't find out first what it lacks.
func TestNodeRunsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dirs := w.grow()
		for range 2 { // each restart is another process, too
			w.crash("n3")
			w.start("n3", dirs["n3"])
			pass(time.Minute)
		}
		w.crash("n3")
		copied := copyDir(t, dirs["n3"])
		type end struct {
			dir string
			err error
		}
		ended := make(chan end, 4)
		both := map[string]*server{}
		for _, dir := range []string{dirs["n3"], copied} {
			w.fatal = func(err error) { ended <- end{dir, err} }
			both[dir] = w.start("n3", dir)
		}
		pass(time.Minute)
		select {
		case one := <-ended:
			if !strings.Contains(one.err.Error(), "another process") && !errors.Is(one.err, ErrDamaged) {
				t.Errorf("it ended with %v", one.err)
			}
			both[one.dir].end()
		default:
			t.Error("both go on for a minute")
		}
		pass(time.Minute)
		w.until("three voters each", w.replicated(3))
		select {
		case other := <-ended:
			t.Errorf("the other ended too, with %v", other.err)
		default:
		}
	})
}

// From a removed node not even its reach is accepted: what is remembered of it is deleted, and would be saved and deleted again and again.
func TestRemovedNodeTellsNothing(t *testing.T) {
	dir := &datadir.Dir{FS: vfs.NewMem(), Identity: datadir.NewIdentityStore(nil, "", datadir.NewIdentity("n1"))}
	n := &Node{dir: dir, witness: members.OpenWitness(dir)}
	n.copy = cluster.NewCopy(&cluster.Map{Nodes: []cluster.Node{{Number: 3, Name: "n3", State: cluster.Removed}}})
	n.replicas = &replicas{}
	n.member.Store(true)
	request, err := cbor.Marshal(members.Told{Reached: []members.ReplicaReach{{Shard: 1, Replica: 3, Index: 9}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (peerHandler{n}).Call(t.Context(), transport.Peer{Number: 3}, methodReach, request); err == nil ||
		!strings.Contains(err.Error(), "as a member") {
		t.Errorf("a removed node is answered with %v", err)
	}
}

// Another node knows that a replica has reached an entry. Whether the replica has it is found out without its shard,
// which may hang, if it has applied the entry; otherwise the shard is asked.
func TestLastEntryBesideAHangingShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faultyNode{server: start(t, Config{InMemory: true})}
		rep := s.replicas.get(1)
		at := rep.state.Applied().Index
		heal := s.hang(1)
		defer heal()
		ctx, cancel := context.WithTimeout(t.Context(), tellTime)
		defer cancel()
		began := time.Now()
		known := members.ReplicaReach{Shard: 1, Replica: rep.id, Index: at}
		if last := s.replicas.lastOf(ctx, known); last != at || time.Since(began) != 0 {
			t.Errorf("the last entry is %d after %v, want %d at once", last, time.Since(began), at)
		}
		known.Index++
		if last := s.replicas.lastOf(ctx, known); last != known.Index || time.Since(began) != tellTime {
			t.Errorf("the last entry is %d after %v, want %d, since it is unknown after %v", last, time.Since(began), known.Index, tellTime)
		}
	})
}

// A leader that answers another node knows at least what the replicas of its other shards have reached while one hangs,
// and answers in time.
func TestReachBesideAHangingShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faultyNode{server: start(t, Config{InMemory: true, DataShards: 3})}
		var told members.Told
		for id := range uint32(4) {
			told.Reached = append(told.Reached, members.ReplicaReach{Shard: id, Replica: s.replicas.get(id).id})
		}
		request, err := cbor.Marshal(told)
		if err != nil {
			t.Fatal(err)
		}
		for hung := range uint32(4) {
			heal := s.hang(hung)
			began := time.Now()
			answer, err := (peerHandler{s.Node}).Call(t.Context(), peerHandler{s.Node}.self(), methodReach, request)
			took := time.Since(began)
			heal()
			var known members.Known
			if err := errors.Join(err, cbor.Unmarshal(answer, &known)); err != nil {
				t.Fatal(err)
			}
			for _, r := range known.Reached {
				if want := s.replicas.get(r.Shard).state.Applied().Index; r.Shard != hung && r.Index != want {
					t.Errorf("while shard %d hangs, the replica of shard %d is known to have reached entry %d, want %d", hung,
						r.Shard, r.Index, want)
				}
			}
			if len(known.Reached) != 4 || took != knownTime {
				t.Errorf("while shard %d hangs, %+v is known after %v, want all within %v", hung, known, took, knownTime)
			}
		}
	})
}
