package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/backup"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/pawltype"
)

// backUp makes a backup through a node, as a client does, and returns its file.
func backUp(t *testing.T, s *server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pawl.backup")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	info, err := admin.New(s.client()).Cluster().Backup(t.Context(), f, nil)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if found, err := CheckBackup(t.Context(), file, "", func(int64, int64) {}); err != nil || found.Bytes != info.Bytes {
		t.Fatalf("the backup of %d bytes is %+v, %v", info.Bytes, found, err)
	}
	return file
}

// sound fails the test if pawl verify finds anything wrong in any shard.
func sound(t *testing.T, s *server) {
	t.Helper()
	for _, id := range append(s.copy.Shards(), systemShard) {
		v, err := newClusterAdmin(s.Node).Verify(t.Context(), id)
		if err != nil || !v.Equal || len(v.Problems) > 0 {
			t.Errorf("shard %d: %+v, %v", id, v, err)
		}
	}
}

// Three nodes are backed up under load, and the backup is restored as one node: what was answered before the backup began is there,
// nothing of the old cluster is accepted by the new one, and others join it.
func TestBackupOfClusterAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		if err := admin.New(w.nodes["n1"].client()).Cluster().AddShards(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		w.until("three voters each", w.replicated(3))
		was := w.nodes["n1"].ClusterID()
		l := startLoad(t, w)
		pass(2 * time.Second)
		c := w.nodes["n2"].client()
		enqueue(t, c, "held")
		held, err := claims.New(c).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"held"}, Lease: time.Minute})
		if err != nil || len(held) != 1 {
			t.Fatalf("claim: %d, %v", len(held), err)
		}
		before := l.answered()
		file := backUp(t, w.nodes["n3"])
		pass(time.Second)
		l.stop()
		for name := range w.nodes {
			w.crash(name)
		}

		dir := filepath.Join(t.TempDir(), "data")
		res, err := Restore(t.Context(), RestoreConfig{File: file, Dir: dir, Name: "n9"})
		if err != nil || res.Cluster == was || res.Backup.Cluster != was || len(res.Lost) > 0 || len(res.Backup.Parts) != 4 {
			t.Fatalf("restored %+v, %v", res, err)
		}
		w.start("n9", dir)
		if id := w.nodes["n9"].ClusterID(); id != res.Cluster {
			t.Errorf("the node is of cluster %s, want %s", id, res.Cluster)
		}
		c = w.nodes["n9"].client()
		before.mustBeIn(t, c)
		if len(before.enqueued) < 20 || len(before.acked) < 10 {
			t.Errorf("there was no load: %d tasks, %d acked", len(before.enqueued), len(before.acked))
		}
		sound(t, w.nodes["n9"])
		if err := claims.New(c).Ack(t.Context(), held[0]); !errors.Is(err, pawltype.ErrStaleClaim) {
			t.Errorf("an ack with a token of the former life: %v", err)
		}
		pass(2 * time.Minute) // the lease ends
		if again, err := claims.New(c).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"held"}}); err != nil || len(again) != 1 ||
			again[0].ID != held[0].ID {
			t.Errorf("the task that was claimed comes back as %+v, %v", again, err)
		}
		w.start("n1", t.TempDir(), "n9")
		w.start("n2", t.TempDir(), "n9")
		w.until("three voters each", w.replicated(3))
		sound(t, w.nodes["n2"])
		w.crash("n9")
		before.mustBeIn(t, w.nodes["n1"].client())
	})
}

// load is a set of clients working on all nodes.
type load struct {
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu   sync.Mutex
	done history
}

// history is what was acknowledged.
type history struct{ enqueued, acked []string }

func startLoad(t *testing.T, w *network) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel}
	for i, name := range []string{"n1", "n2", "n3"} {
		queue, c := fmt.Sprintf("load-%d", i), w.nodes[name].client()
		l.work.Go(func() {
			for ctx.Err() == nil {
				l.turn(ctx, t, c, queue)
				pass(100 * time.Millisecond)
			}
		})
	}
	return l
}

// turn enqueues two tasks and works on one.
func (l *load) turn(ctx context.Context, t *testing.T, c *pawl.Client, queue string) {
	for range 2 {
		payload := `"` + strings.Repeat("x", 50_000) + `"`
		ref, err := c.Enqueue(ctx, pawl.RawTask{Type: "job", Payload: []byte(payload)}, pawl.Queue(queue))
		if l.note(t, ctx, err) {
			l.mu.Lock()
			l.done.enqueued = append(l.done.enqueued, ref.ID)
			l.mu.Unlock()
		}
	}
	got, err := claims.New(c).Claim(ctx, claims.Request{Queues: pawl.Strict{queue}, Lease: time.Minute})
	if !l.note(t, ctx, err) || len(got) != 1 {
		return
	}
	if l.note(t, ctx, claims.New(c).Ack(ctx, got[0])) {
		l.mu.Lock()
		l.done.acked = append(l.done.acked, got[0].ID)
		l.mu.Unlock()
	}
}

// note reports whether a call was answered. While the load runs, all must be.
func (l *load) note(t *testing.T, ctx context.Context, err error) bool {
	if err != nil && ctx.Err() == nil {
		t.Errorf("under load: %v", err)
	}
	return err == nil
}

func (l *load) answered() history {
	l.mu.Lock()
	defer l.mu.Unlock()
	return history{slices.Clone(l.done.enqueued), slices.Clone(l.done.acked)}
}

func (l *load) stop() {
	l.cancel()
	l.work.Wait()
}

// mustBeIn fails the test unless all tasks exist, and those that were acked have succeeded.
func (h history) mustBeIn(t *testing.T, c *pawl.Client) {
	t.Helper()
	for _, id := range h.enqueued {
		info, err := c.Task(t.Context(), id)
		if err != nil {
			t.Errorf("task %s: %v", id, err)
		} else if slices.Contains(h.acked, id) && info.State != pawltype.StateSucceeded {
			t.Errorf("task %s was acked, and is %s", id, info.State)
		}
	}
}

// Changes while a backup is streamed are not in it: a deleted queue is there with its tasks, a new one is not, nor is an added shard.
func TestBackupOfChangingQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Dir: t.TempDir(), DataShards: 2})
		c := s.client()
		gone, _ := enqueue(t, c, "gone") // in one of the two shards, like new ones
		enqueue(t, c, "stays")
		file := s.backUpDuring(t, func() {
			if _, err := admin.New(c).Queues().Purge(t.Context(), "gone"); err != nil {
				t.Fatal(err)
			}
			if err := admin.New(c).Queues().Delete(t.Context(), "gone"); err != nil {
				t.Fatal(err)
			}
			enqueue(t, c, "new")
			if err := admin.New(c).Cluster().AddShards(t.Context(), 3); err != nil {
				t.Fatal(err)
			}
		})
		s.end()

		dir := t.TempDir()
		res, err := Restore(t.Context(), RestoreConfig{File: file, Dir: dir})
		if err != nil || len(res.Lost) > 0 {
			t.Fatalf("restored %+v, %v", res, err)
		}
		s = start(t, Config{Dir: dir})
		c = s.client()
		if info, err := c.Task(t.Context(), gone); err != nil || info.State != pawltype.StateReady {
			t.Errorf("the task of the deleted queue is %+v, %v", info, err)
		}
		if q, err := admin.New(c).Queues().Get(t.Context(), "gone"); err != nil || q.Depth.Ready != 1 {
			t.Errorf("the deleted queue is %+v, %v", q, err)
		}
		if q, err := admin.New(c).Queues().Get(t.Context(), "new"); !errors.Is(err, pawltype.ErrNotFound) {
			t.Errorf("the new queue is %+v, %v", q, err)
		}
		if err := admin.New(c).Cluster().AddShards(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		for i := range 10 { // some of them in the new shard
			enqueue(t, c, fmt.Sprintf("later-%d", i))
		}
		enqueue(t, c, "new")
		sound(t, s)
	})
}

// backUpDuring makes a backup and calls change after the first shard was streamed.
func (s *server) backUpDuring(t *testing.T, change func()) (file string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "b"))
	if err != nil {
		t.Fatal(err)
	}
	err = newClusterAdmin(s.Node).Backup(t.Context(), task.Author{}, f, func(done, _ int) error {
		if done == 1 {
			change()
		}
		return nil
	})
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// A backup is a cut: a task that moves from one shard to another while it is streamed, and one that follows another
// there, are in the restored cluster once.
func TestBackupIsACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Dir: t.TempDir(), DataShards: 2})
		c := s.client()
		for queue, shard := range map[string]int{"a": 2, "b": 1} {
			if _, err := admin.New(c).Queues().Put(t.Context(), queue, admin.QueueSettings{}); err != nil {
				t.Fatal(err)
			}
			if _, err := admin.New(c).Queues().Spread(t.Context(), queue, admin.SpreadOptions{Shards: []int{shard}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Enqueue(t.Context(), pawl.RawTask{Type: "parent", Payload: []byte(`1`)}, pawl.Queue("a"),
			pawl.Then(pawl.RawTask{Type: "child", Payload: []byte(`2`)}, pawl.Queue("b"))); err != nil {
			t.Fatal(err)
		}
		moved, _ := enqueue(t, c, "a")
		run := func(queue string) {
			t.Helper()
			got, err := claims.New(c).Claim(t.Context(), claims.Request{Queues: pawl.Strict{queue}, Lease: time.Minute})
			if err != nil || len(got) != 1 {
				t.Fatalf("claim from %q: %d, %v", queue, len(got), err)
			}
			if err := claims.New(c).Ack(t.Context(), got[0]); err != nil {
				t.Fatal(err)
			}
		}
		ready := func() (a, b int64) {
			t.Helper()
			qa, errA := admin.New(c).Queues().Get(t.Context(), "a")
			qb, errB := admin.New(c).Queues().Get(t.Context(), "b")
			if err := errors.Join(errA, errB); err != nil {
				t.Fatal(err)
			}
			return qa.Depth.Ready, qb.Depth.Ready
		}
		file := s.backUpDuring(t, func() {
			run("a") // the child goes to shard 1, whose image is streamed already
			if _, err := admin.New(c).Operations().Start(t.Context(), admin.OperationSpec{Action: admin.ActionMove,
				Filter: &admin.Filter{Queue: "a"}, ToQueue: "b"}); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			if a, b := ready(); a != 0 || b != 2 {
				t.Fatalf("%d tasks are ready in a and %d in b, want 0 and 2", a, b)
			}
		})
		s.end()
		dir := t.TempDir()
		if _, err := Restore(t.Context(), RestoreConfig{File: file, Dir: dir}); err != nil {
			t.Fatal(err)
		}
		s = start(t, Config{Dir: dir})
		c = s.client()
		if a, b := ready(); a != 2 || b != 0 {
			t.Errorf("%d tasks are ready in a and %d in b, want what was there when the backup began: 2 and 0", a, b)
		}
		if info, err := c.Task(t.Context(), moved); err != nil || info.State != pawltype.StateReady {
			t.Errorf("the moved task is %+v, %v", info, err)
		}
		run("a")
		pass(time.Minute)
		if a, b := ready(); a != 1 || b != 1 {
			t.Errorf("%d tasks are ready in a and %d in b, want the child once", a, b)
		}
		sound(t, s)
	})
}

// A node restored long after its backup still knows the messages that its shards had taken.
func TestRestoredShardsRememberMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Dir: t.TempDir(), DataShards: 2})
		request := task.ID{6: 0x80, 8: 0x80, 15: 1}
		send := func() broker.Enqueued {
			m := &broker.OutboxMessage{Request: request, Spec: task.Spec{Type: "job", Queue: "mail", RequestID: request,
				RequestTTL: task.MessageWindow, MaxAttempts: 5, Priority: task.Normal}}
			return s.router.Outbox.Send(t.Context(), "default", []*broker.OutboxMessage{m})[0]
		}
		first := send()
		file := backUp(t, s)
		s.end()
		dir := t.TempDir()
		pass(100 * time.Hour)
		if _, err := Restore(t.Context(), RestoreConfig{File: file, Dir: dir}); err != nil {
			t.Fatal(err)
		}
		pass(100 * time.Hour)
		s = start(t, Config{Dir: dir})
		for range 2 {
			if again := send(); again.Err != nil || !again.Duplicate || again.ID != first.ID {
				t.Errorf("a message that was taken before the backup is answered with %+v", again)
			}
			pass(20 * time.Hour)
		}
	})
}

// The shards are held until all images are open. If they were not for all of this time, the backup begins again.
func TestBackupHoldsTheShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Dir: t.TempDir(), DataShards: 2})
		c := s.client()
		enqueue(t, c, "mail")
		a := newClusterAdmin(s.Node)
		tries, created := 0, make(chan error, 1)
		a.opened = func() {
			switch tries++; tries {
			case 1:
				pass(task.CutWindow)
			case 2:
				go func() {
					_, err := admin.New(c).Queues().Put(t.Context(), "new", admin.QueueSettings{MaxLength: 7})
					created <- err
				}()
				if pass(time.Second); len(created) > 0 {
					t.Errorf("a copy of a queue reached a held shard: %v", <-created)
				}
				enqueue(t, c, "mail") // clients are not held
			}
		}
		began := time.Now()
		if err := a.Backup(t.Context(), task.Author{}, io.Discard, func(int, int) error { return nil }); err != nil || tries != 2 {
			t.Fatalf("the backup began after %d tries: %v, want 2", tries, err)
		}
		if took := time.Since(began); took > task.CutWindow+cutPause+2*time.Second {
			t.Errorf("it took %v", took)
		}
		if err := <-created; err != nil || time.Since(began) > task.CutWindow+cutPause+3*time.Second {
			t.Errorf("after the release a queue was created after %v: %v", time.Since(began), err)
		}
	})
}

// A shard that hangs keeps a backup from its beginning, and holds nobody up: the others are held only once all answer.
func TestBackupBesideAShardThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Dir: t.TempDir(), DataShards: 2})
		a := newClusterAdmin(s.Node)
		defer (&faultyNode{server: s}).hang(2)()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		failed := make(chan error, 1)
		go func() { failed <- a.Backup(ctx, task.Author{}, io.Discard, func(int, int) error { return nil }) }()
		for len(failed) == 0 {
			began := time.Now()
			if err := (routerShards{s.Node}).CopyWatches(ctx, 1, nil); err != nil || time.Since(began) > 0 {
				t.Fatalf("a call of another shard on shard 1 takes %s, %v", time.Since(began), err)
			}
			pass(100 * time.Millisecond)
		}
		if err := <-failed; !errors.Is(err, task.ErrUnavailable) || !strings.Contains(err.Error(), "shard 2") {
			t.Errorf("the backup ends with %v", err)
		}
		c := &cut{a: a, id: task.ID{1}, data: []uint32{1, 2}, terms: make([]uint64, 2)}
		began := time.Now()
		if err := c.begin(t.Context()); err == nil || time.Since(began) > cutBegin {
			t.Errorf("a shard that hangs since it answered: after %s, %v", time.Since(began), err)
		}
		c.end(ctx)
		c.data = c.data[:1]
		if err := c.ready(ctx); err == nil {
			t.Error("with a shard more than expected, all are ready")
		}
		defer (&faultyNode{server: s}).hang(systemShard)()
		began = time.Now()
		if err := c.ready(ctx); err == nil || !strings.Contains(err.Error(), "system shard") || time.Since(began) > verb.PartTime {
			t.Errorf("beside a system shard that hangs, after %s: %v", time.Since(began), err)
		}
		began = time.Now()
		if err := a.Backup(t.Context(), task.Author{}, io.Discard, func(int, int) error { return nil }); !errors.Is(err,
			task.ErrUnavailable) ||
			!strings.Contains(err.Error(), "system shard") || time.Since(began) > verb.PartTime {
			t.Errorf("a backup beside a system shard that hangs ends after %s with %v", time.Since(began), err)
		}
	})
}

// While a shard has no leader or its leader changes, no backup begins; when that is over, one does.
func TestBackupNeedsItsLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Dir: t.TempDir(), DataShards: 2})
		enqueue(t, s.client(), "mail")
		a := newClusterAdmin(s.Node)
		c := &cut{a: a, id: task.ID{1}, data: []uint32{1, 2}, terms: make([]uint64, 2)}
		if err := errors.Join(c.begin(t.Context()), c.check(t.Context())); err != nil {
			t.Fatal(err)
		}
		for i := range c.terms { // as if each leader had changed
			c.terms[i]--
			if err := c.check(t.Context()); !errors.Is(err, task.ErrUnavailable) || !strings.Contains(err.Error(), "leader changed") {
				t.Errorf("after a change of the leader of shard %d: %v", i+1, err)
			}
			c.terms[i]++
		}
		pass(task.CutWindow)
		if err := c.check(t.Context()); !errors.Is(err, task.ErrUnavailable) || !strings.Contains(err.Error(), "took longer") {
			t.Errorf("after too long: %v", err)
		}
		if err := a.noNewShard(t.Context(), 2); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("with a shard more than expected: %v", err)
		}
		s.replicas.get(2).shard.Stop()
		began := time.Now()
		err := a.Backup(t.Context(), task.Author{}, io.Discard, func(int, int) error { return nil })
		if took := time.Since(began); !errors.Is(err, task.ErrUnavailable) || took > time.Minute {
			t.Errorf("a backup without a leader of shard 2 ended after %v: %v", took, err)
		}
		if n := s.images.open[1] + s.images.open[systemShard]; n != 0 {
			t.Errorf("%d images are still open", n)
		}
	})
}

// A directory with an unfinished restore is refused by everything but another restore.
func TestRestoreInterrupted(t *testing.T) {
	s := start(t, Config{Dir: t.TempDir()})
	id, _ := enqueue(t, s.client(), "mail")
	file := backUp(t, s)
	s.end()
	dir := t.TempDir()
	interrupted := func(what string) {
		t.Helper()
		refused(t, Config{Dir: dir}, "repeat `pawl restore`")
		if _, err := Recover(RecoverConfig{Dir: dir}); err == nil {
			t.Errorf("%s: it was recovered", what)
		}
	}
	for steps := range 5 { // the process dies after this many
		found, err := CheckBackup(t.Context(), file, "", func(int64, int64) {})
		if err != nil {
			t.Fatal(err)
		}
		r := newRestore(RestoreConfig{File: file, Dir: dir, fs: vfs.Default, Name: DefaultName, Progress: func(int64, int64) {}}, found)
		for i, step := range []func() error{r.begin, func() error { return r.stage(t.Context()) }, r.found, r.identify,
			func() error {
				return errors.Join(r.end(), os.WriteFile(filepath.Join(dir, datadir.RestoringFile), nil, 0o600))
			}} {
			if i <= steps {
				if err := step(); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
		}
		interrupted(fmt.Sprintf("after %d steps", steps+1))
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Restore(ctx, RestoreConfig{File: file, Dir: dir, Progress: func(read, of int64) {
		if read > of/2 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	interrupted("cancelled")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("it has left %v, %v", entries, err)
	}
	if _, err := Restore(t.Context(), RestoreConfig{File: file, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a restart is like any other
		s := start(t, Config{Dir: dir})
		if info, err := s.client().Task(t.Context(), id); err != nil || info.State != pawltype.StateReady {
			t.Errorf("the task is %+v, %v", info, err)
		}
		s.end()
	}
}

func TestRestoreRefuses(t *testing.T) {
	s := start(t, Config{Dir: t.TempDir()})
	enqueue(t, s.client(), "mail")
	file := backUp(t, s)
	used := s.cfg.Dir
	s.end()
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	spoilt := func(b []byte) string {
		path := filepath.Join(t.TempDir(), "spoilt")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	untouched := filepath.Join(t.TempDir(), "data")
	for what, c := range map[string]struct {
		file, dir, name, says string
	}{
		"cut":       {spoilt(whole[:len(whole)-20]), untouched, "", "it is truncated"},
		"no backup": {spoilt([]byte("#!/bin/sh")), untouched, "", "not a backup"},
		"newer":     {spoilt(slices.Concat(whole[:5], []byte{9}, whole[6:])), untouched, "", "has format 9"},
		"of another cluster": {spoilt(rewritten(t, whole, 0, func(h *backup.Head) { h.Cluster = strings.Repeat("ab", 16) })), untouched, "",
			"found the state of shard 1 of cluster"},
		"without the system": {spoilt(rewritten(t, whole, 0, func(h *backup.Head) { slices.Reverse(h.Shards) })), untouched, "",
			"it is of cluster"},
		"at another entry": {spoilt(rewritten(t, whole, 1, func(*backup.Head) {})), untouched, "", "shard 1 is after entry"},
		"of a later level": {spoilt(rewritten(t, whole, 0, func(h *backup.Head) { h.Level = maxLevel + 1 })), untouched,
			"", "feature level"},
		"of an earlier one": {spoilt(rewritten(t, whole, 0, func(h *backup.Head) { h.Level = minLevel - 1 })), untouched,
			"", "feature level"},
		"absent":   {filepath.Join(untouched, "nothing"), untouched, "", "no such file"},
		"a pipe":   {os.DevNull, untouched, "", "it is not a file"},
		"the name": {file, untouched, "N 1", "is not 1 to 63"},
		"used":     {file, used, "", "is not empty"},
		"no place": {file, filepath.Join(file, "data"), "", "not a directory"},
		"in use":   {file, lockedDir(t), "", "in use by another process"},
	} {
		if c.dir == used {
			if err := os.Remove(filepath.Join(used, datadir.IdentityFile)); err != nil { // not even then
				t.Fatal(err)
			}
		}
		_, err := Restore(t.Context(), RestoreConfig{File: c.file, Dir: c.dir, Name: c.name})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", what, err, c.says)
		}
	}
	for at := 0; at < len(whole); at += 23 {
		whole[at] ^= 4
		if _, err := Restore(t.Context(), RestoreConfig{File: spoilt(whole), Dir: untouched}); err == nil {
			t.Fatalf("a bit was flipped at %d of %d", at, len(whole))
		}
		whole[at] ^= 4
	}
	if _, err := os.Stat(untouched); err == nil {
		t.Error("something was written before the backup was checked")
	}
	small := vfs.NewMem()
	small.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: DefaultMinFree})
	if _, err := Restore(t.Context(), RestoreConfig{File: file, Dir: "dir", fs: small}); err == nil ||
		!strings.Contains(err.Error(), "256 MiB free, and 256 MiB are needed") {
		t.Errorf("on a small disk: %v", err)
	}
	if err := datadir.MustBeEmpty(small, "dir"); err != nil {
		t.Error(err)
	}
}

// rewritten returns a backup with another head, and with other entries, as a writer would write it.
func rewritten(t *testing.T, whole []byte, later uint64, change func(*backup.Head)) []byte {
	t.Helper()
	r, err := backup.NewReader(bytes.NewReader(whole), "")
	if err != nil {
		t.Fatal(err)
	}
	h := r.Head
	h.Shards = slices.Clone(h.Shards)
	change(&h)
	var out bytes.Buffer
	w, err := backup.NewWriter(&out, h)
	if err != nil {
		t.Fatal(err)
	}
	for range h.Shards {
		_, err := r.Next()
		if err == nil {
			_, err = io.Copy(w, r)
		}
		if err == nil {
			err = w.EndPart(r.Part().Index+later, r.Part().Term)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// lockedDir returns a directory that is in use.
func lockedDir(t *testing.T) string {
	dir := t.TempDir()
	lock, err := datadir.Lock(vfs.Default, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	return dir
}

// Two clusters restored from one backup share neither the id nor claim tokens.
func TestRestoreTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Dir: t.TempDir()})
		c := s.client()
		enqueue(t, c, "mail")
		request := claims.Request{Queues: pawl.Strict{"mail"}, Lease: time.Hour, Key: "the same"}
		if _, err := claims.New(c).Claim(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		file := backUp(t, s)
		s.end()
		var held [][]*pawl.Claim
		ids := map[string]bool{s.ClusterID(): true}
		for range 2 {
			dir := t.TempDir()
			res, err := Restore(t.Context(), RestoreConfig{File: file, Dir: dir})
			if err != nil || ids[res.Cluster] {
				t.Fatalf("restored %+v, %v", res, err)
			}
			ids[res.Cluster] = true
			s := start(t, Config{Dir: dir})
			c := s.client()
			for _, old := range held {
				if err := claims.New(c).Ack(t.Context(), old[0]); !errors.Is(err, pawltype.ErrStaleClaim) {
					t.Errorf("an ack with a token of another cluster of the same backup: %v", err)
				}
			}
			got, err := claims.New(c).Claim(t.Context(), request) // a retry, which returns the claim again
			if err != nil || len(got) != 1 {
				t.Fatalf("claim: %d, %v", len(got), err)
			}
			held = append(held, got)
			s.end()
			pass(time.Second)
		}
	})
}

// readHere opens and streams the state of a shard.
func (i *images) readHere(ctx context.Context, id uint32, take func(chunk []byte) error) (shard.Stamp, error) {
	img, err := i.openHere(ctx, id)
	if err != nil {
		return shard.Stamp{}, err
	}
	return img.at, img.stream(take)
}

// A reader that takes an image too slowly is cut off, and holds nothing up before that.
func TestImageStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Dir: t.TempDir()})
		for range 10 {
			payload := `"` + strings.Repeat("x", 1<<19) + `"`
			if _, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job", Payload: []byte(payload)}); err != nil {
				t.Fatal(err)
			}
		}
		began, taken := time.Now(), 0
		_, err := s.images.readHere(t.Context(), 1, func(chunk []byte) error {
			if taken += len(chunk); time.Since(began) < time.Minute {
				pass(2 * imageStall)
			}
			return nil
		})
		if !errors.Is(err, errStalled) || taken >= 5<<20 {
			t.Errorf("it took %d bytes, %v", taken, err)
		}
		ended := make(chan error, 1)
		stuck := make(chan struct{})
		go func() {
			_, err := s.images.readHere(t.Context(), 1, func([]byte) error { <-stuck; return nil })
			ended <- err
		}()
		synctest.Wait()
		began = time.Now()
		s.replicas.get(1).shard.Stop() // does not wait for the stuck reader
		if time.Since(began) >= imageStall {
			t.Error("the replica waited")
		}
		close(stuck)
		if err := <-ended; !errors.Is(err, shard.ErrStopped) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// A node makes one backup at a time, serves a limited number of images, and stops even while a backup is being made.
func TestBackupLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Dir: t.TempDir()})
		a := newClusterAdmin(s.Node)
		first := make(chan error, 1)
		hold := make(chan struct{})
		go func() {
			first <- a.Backup(t.Context(), task.Author{}, io.Discard, func(int, int) error { <-hold; return nil })
		}()
		synctest.Wait()
		if err := a.Backup(t.Context(), task.Author{}, io.Discard, func(int, int) error { return nil }); !errors.Is(err,
			task.ErrUnavailable) {
			t.Errorf("a second backup: %v", err)
		}
		s.health.leaving.Store(true)
		close(hold)
		if err := <-first; !errors.Is(err, task.ErrUnavailable) || !strings.Contains(err.Error(), "this node is stopping") {
			t.Errorf("a backup of a node that stops: %v", err)
		}
		s.health.leaving.Store(false)

		release := make(chan struct{})
		var readers sync.WaitGroup
		for range maxImages {
			readers.Go(func() {
				if _, err := s.images.readHere(t.Context(), 1, func([]byte) error { <-release; return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if err := a.Backup(t.Context(), task.Author{}, io.Discard, func(int, int) error { return nil }); !errors.Is(err,
			task.ErrUnavailable) {
			t.Errorf("one image more than allowed: %v", err)
		}
		close(release)
		readers.Wait()
		if err := a.Backup(t.Context(), task.Author{}, io.Discard, func(int, int) error { return nil }); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A node that does not lead a shard says so, locally and remotely, before it sends anything.
func TestImageOfAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		leader := w.leaderOf(1)
		for name, s := range w.nodes {
			for other, from := range w.nodes {
				img, err := s.images.openFrom(t.Context(), from.dir.Identity.Read().Node, 1)
				var moved *shard.NotLeader
				if other == leader && (err != nil || img.at.Index == 0) || other != leader && !errors.As(err, &moved) {
					t.Errorf("%s asks %s, while %s leads: %+v, %v", name, other, leader, img, err)
				}
				if err == nil {
					img.close()
				}
			}
		}
	})
}

// TestRestoreRaisesTheEpoch: the epoch grows with each restore, even of what was restored in the same second or under a wrong clock, since
// fences are based on it.
func TestRestoreRaisesTheEpoch(t *testing.T) {
	state, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem(), Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	for _, c := range []struct{ now, want int64 }{{1767225600, 1767225600}, {1767225600, 1767225601}, {5, 1767225602},
		{1767225700, 1767225700}} {
		r := &restore{now: func() time.Time { return time.Unix(c.now, 0) }}
		if err := r.raiseEpoch(state); err != nil {
			t.Fatal(err)
		}
		if got, err := state.Epoch(); err != nil || int64(got) != c.want { // #nosec G115 -- a time
			t.Errorf("at %d the epoch becomes %d, %v, want %d", c.now, got, err, c.want)
		}
	}
}

// A cut that fails when its images are open closes them: an image that stays open counts, and a shard has few.
func TestFailedCutClosesImages(t *testing.T) {
	s := start(t, Config{InMemory: true, DataShards: 2})
	for range maxImages + 1 {
		_, err := newClusterAdmin(s.Node).openOnce(t.Context(), []uint32{1, systemShard}) // as before the second shard was added
		if err == nil || !strings.Contains(err.Error(), "shards were added") {
			t.Fatalf("a cut without a shard: %v", err)
		}
	}
}
