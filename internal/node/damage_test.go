package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"

	"github.com/pawlq/pawl/internal/node/datadir"
)

// A damaged log is ErrDamaged, the error says where, and it is opened only if the loss is accepted.
func TestDamagedLog(t *testing.T) {
	for _, c := range []struct {
		name, file string
		spoil      func(path string) error
	}{
		{"marks overwritten", "raft/marks", func(path string) error { return os.WriteFile(path, []byte("no marks at all"), 0o600) }},
		{"all logs gone", "raft", os.RemoveAll},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "all logs gone" {
				bySameGoroutines(t, "TestDamagedLog/all_logs_gone")
			}
			dir := t.TempDir()
			s := start(t, Config{Dir: dir})
			if _, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job"}); err != nil {
				t.Fatal(err)
			}
			s.end()
			path := filepath.Join(dir, c.file)
			if err := c.spoil(path); err != nil {
				t.Fatal(err)
			}
			_, err := tryStart(t, Config{Dir: dir})
			var damage *DamageError
			if !errors.Is(err, ErrDamaged) || !errors.As(err, &damage) || damage.File != path {
				t.Fatalf("started on a damaged log: %v, want ErrDamaged in %s", err, path)
			}
			s = start(t, Config{Dir: dir, AcceptDataLoss: true})
			ref, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job"})
			if err != nil {
				t.Fatalf("after the loss was accepted: %v", err)
			}
			s.end()
			if info, err := start(t, Config{Dir: dir}).client().Task(t.Context(), ref.ID); err != nil || info.State != pawltype.StateReady {
				t.Errorf("a task from after the loss is %+v, %v, want ready", info, err)
			}
		})
	}
}

// A standalone node does not start on a damaged state. It reports what is lost, changes nothing, and starts once that is restored.
func TestDamagedState(t *testing.T) {
	dir := t.TempDir()
	s := start(t, Config{Dir: dir})
	ref, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.replicas.get(1).state.Flush(); err != nil {
		t.Fatal(err)
	}
	s.end()
	state := filepath.Join(dir, "shard-0001")
	for name, c := range map[string]struct {
		damage func(dir string)
		file   string // named in the error
	}{
		"missing": {func(dir string) { lose(t, dir, "") }, "shard-0001"},
		"empty":   {func(dir string) { lose(t, dir, "*") }, "shard-0001"},
		"old": {func(dir string) { lose(t, dir, "MANIFEST-*"); lose(t, dir, "marker.manifest*"); lose(t, dir, "*.sst") },
			"shard-0001"},
		"tables":                     {func(dir string) { spoil(t, dir, "*.sst", 20) }, ".sst"},
		"tables are missing":         {func(dir string) { lose(t, dir, "*.sst") }, "shard-0001"},
		"list of tables":             {func(dir string) { spoil(t, dir, "MANIFEST-*", 20) }, "shard-0001"},
		"list of tables is missing":  {func(dir string) { lose(t, dir, "MANIFEST-*") }, "shard-0001"},
		"name of the list of tables": {func(dir string) { lose(t, dir, "marker.manifest*") }, "shard-0001"},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "tables" {
				bySameGoroutines(t, "TestDamagedState/tables")
			}
			sound := filepath.Join(t.TempDir(), "sound")
			if err := os.CopyFS(sound, os.DirFS(state)); err != nil {
				t.Fatal(err)
			}
			c.damage(state)
			for range 2 { // it changes nothing that a second start would miss
				_, err := tryStart(t, Config{Dir: dir})
				var damage *DamageError
				if !errors.Is(err, ErrDamaged) || !errors.As(err, &damage) || damage.What != "state" ||
					!strings.Contains(damage.File, "shard-0001") || !strings.HasSuffix(damage.File, c.file) {
					t.Fatalf("started on a damaged state: %v, want damage of the state in %s", err, c.file)
				}
			}
			if err := errors.Join(os.RemoveAll(state), os.CopyFS(state, os.DirFS(sound))); err != nil {
				t.Fatal(err)
			}
			s := start(t, Config{Dir: dir})
			if info, err := s.client().Task(t.Context(), ref.ID); err != nil || info.State != pawltype.StateReady {
				t.Errorf("with its state back the task is %+v, %v, want ready", info, err)
			}
			s.end()
		})
	}
}

// A state older than the point up to which its log was truncated is damaged, too.
func TestStateFromBeforeItsLog(t *testing.T) {
	bySameGoroutines(t, "TestDamagedState/tables")
	synctest.Test(t, func(t *testing.T) {
		dir, old := t.TempDir(), filepath.Join(t.TempDir(), "old")
		state := filepath.Join(dir, "shard-0001")
		s := start(t, Config{Dir: dir})
		if _, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job"}); err != nil {
			t.Fatal(err)
		}
		s.end()
		if err := os.CopyFS(old, os.DirFS(state)); err != nil {
			t.Fatal(err)
		}
		s = start(t, Config{Dir: dir})
		if _, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job"}); err != nil {
			t.Fatal(err)
		}
		rep := s.replicas.get(1)
		if err := rep.state.Flush(); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second) // it checks periodically how far the state is
		if st, err := rep.shard.Status(t.Context()); err != nil || st.First <= st.Applied {
			t.Fatalf("the log is not cut: %+v, %v", st, err)
		}
		s.end()
		lose(t, state, "")
		if err := os.CopyFS(state, os.DirFS(old)); err != nil {
			t.Fatal(err)
		}
		_, err := tryStart(t, Config{Dir: dir})
		var damage *DamageError
		if !errors.As(err, &damage) || damage.What != "state" || damage.File != state || !strings.Contains(damage.Reason, "lost or old") {
			t.Errorf("started on a state from before: %v", err)
		}
	})
}

// Damage found while a node runs is recorded: it does not start again until the record is removed.
func TestDamageIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		ended := make(chan error, 1)
		s := start(t, Config{Dir: dir, Fatal: func(err error) { ended <- err }})
		if _, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job"}); err != nil {
			t.Fatal(err)
		}
		if err := s.replicas.get(1).state.Flush(); err != nil {
			t.Fatal(err)
		}
		pass(time.Second) // tables are compacted, and then stay
		spoil(t, filepath.Join(dir, "shard-0001"), "*.sst", 20)
		_, _ = newClusterAdmin(s.Node).Verify(t.Context(), 1)
		if err := soon(t, ended); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "start it again to see") {
			t.Errorf("it ended with %v", err)
		}
		s.end()
		spoil(t, filepath.Join(dir, "shard-0001"), "*.sst", 20) // intact again
		for range 2 {
			_, err := tryStart(t, Config{Dir: dir})
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), ".sst") || !strings.Contains(err.Error(),
				filepath.Join(dir, datadir.DamageFile)) {
				t.Errorf("the next start: %v", err)
			}
		}
		lose(t, dir, datadir.DamageFile)
		start(t, Config{Dir: dir}).end()
		// The record of a damaged log is removed when its loss is accepted.
		put(t, filepath.Join(dir, datadir.DamageFile), `{"What":"log","File":"x","Reason":"y"}`)
		refused(t, Config{Dir: dir}, `log "x" is damaged: y`)
		start(t, Config{Dir: dir, AcceptDataLoss: true}).end()
		start(t, Config{Dir: dir}).end()
		put(t, filepath.Join(dir, datadir.DamageFile), "?")
		refused(t, Config{Dir: dir, AcceptDataLoss: true}, "was found to be damaged")
	})
}

// soon waits a while for the error that a node ends with.
func soon(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("it goes on for a minute")
		return nil
	}
}

// A refused start changes nothing, and putting back what was missing is enough: also for a start that would have repaired the log and
// led a shard before it came to the damage.
func TestRefusedStartChangesNothing(t *testing.T) {
	small(t)
	dir := t.TempDir()
	s := start(t, Config{Dir: dir})
	var ids []string
	for range 20 {
		ref, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job", Payload: fmt.Appendf(nil, "%q", strings.Repeat("x", 10<<10))})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, ref.ID)
	}
	s.end()
	segments, err := filepath.Glob(filepath.Join(dir, "raft", "log", "*.log"))
	if err != nil || len(segments) < 3 {
		t.Fatalf("there are %q, %v", segments, err)
	}
	last := ""
	for _, segment := range segments { // the last one that has begun
		if b, err := os.ReadFile(segment); err != nil {
			t.Fatal(err)
		} else if len(bytes.Trim(b[4096:], "\x00")) > 0 {
			last = segment
		}
	}
	for _, part := range []string{last, filepath.Join(dir, "raft", "marks"), filepath.Join(dir, "raft"), filepath.Join(dir, "shard-0001"),
		filepath.Join(dir, "shard-0000")} {
		aside := filepath.Join(t.TempDir(), "aside")
		if err := os.Rename(part, aside); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, datadir.IdentityCopy), "damaged") // it would be repaired
		before := readFiles(t, dir)
		for range 2 {
			if _, err := tryStart(t, Config{Dir: dir}); !errors.Is(err, ErrDamaged) {
				t.Fatalf("without %s: %v", part, err)
			}
		}
		if after := readFiles(t, dir); !maps.Equal(before, after) {
			t.Errorf("without %s: it has changed files", part)
		}
		if err := os.Rename(aside, part); err != nil {
			t.Fatal(err)
		}
	}
	s = start(t, Config{Dir: dir})
	for _, id := range ids {
		if _, err := s.client().Task(t.Context(), id); err != nil {
			t.Errorf("task %s: %v", id, err)
		}
	}
}

// wipe deletes the logs and the states of a node, but not its identity.
func wipe(t *testing.T, dir string) {
	t.Helper()
	lose(t, dir, datadir.LogDir)
	lose(t, dir, "shard-*")
}

// A standalone node that has lost its logs and states does not start as an empty one, not even if the loss of a log is accepted.
func TestWipedNodeIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := start(t, Config{Dir: dir})
	enqueue(t, s.client(), "mail")
	s.end()
	wipe(t, dir)
	for _, accept := range []bool{false, true} {
		if _, err := tryStart(t, Config{Dir: dir, AcceptDataLoss: accept}); !errors.Is(err, ErrDamaged) ||
			!strings.Contains(err.Error(), "it is missing") {
			t.Errorf("accept %t: %v", accept, err)
		}
	}
}

// writeWithoutN2 stops n2, has a write acknowledged by n1 and n3, and stops those. It returns the id of the task.
func (w *network) writeWithoutN2() (id string) {
	w.crash("n2")
	pass(15 * time.Second)
	w.until("an acknowledged write", func() error {
		ref, err := w.nodes["n1"].client().Enqueue(w.t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("mail"))
		if err == nil {
			id = ref.ID
		}
		return err
	})
	w.crash("n3")
	w.crash("n1")
	return id
}

// A member that has lost its logs and states does not vote: here it would help a node without an acknowledged write to a majority.
func TestWipedMemberDoesNotVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dirs := w.grow()
		enqueue(t, w.nodes["n1"].client(), "mail")
		pass(3 * time.Second)
		id := w.writeWithoutN2()
		wipe(t, dirs["n3"])
		w.start("n2", dirs["n2"])
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := w.tryStart(ctx, "n3", dirs["n3"]); !errors.Is(err, ErrDamaged) {
			t.Errorf("n3 runs: %v", err)
		}
		if w.nodes["n2"].replicas.get(1).shard.Leads() {
			t.Error("n2 leads")
		}
		w.start("n1", dirs["n1"])
		w.start("n3", dirs["n3"])
		w.until("three voters each", w.replicated(3))
		if _, err := w.nodes["n2"].client().Task(t.Context(), id); err != nil {
			t.Errorf("the acknowledged task: %v", err)
		}
	})
}

// A founder that has lost its logs and states does not found its shards again: it rejoins, and is filled by the others.
func TestWipedFounderRejoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dirs := w.grow()
		id, _ := enqueue(t, w.nodes["n2"].client(), "mail")
		pass(time.Second)
		old := w.nodes["n1"].dir.Identity.Read().Node
		w.crash("n1")
		wipe(t, dirs["n1"])
		w.start("n1", dirs["n1"])
		if now := w.nodes["n1"].dir.Identity.Read().Node; now == old {
			t.Errorf("it runs under its old number, %d", now)
		}
		w.until("three voters each", w.replicated(3))
		if _, err := w.nodes["n1"].client().Task(t.Context(), id); err != nil {
			t.Errorf("the task: %v", err)
		}
	})
}

// The loss of a log is not accepted on a member, even if it has lost its map of the cluster, or has an old one. Nothing is changed.
func TestAcceptDataLossNeedsANodeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dirs := w.grow()
		enqueue(t, w.nodes["n2"].client(), "mail")
		pass(time.Second)
		for _, name := range []string{"n1", "n3"} {
			w.crash(name)
			lose(t, dirs[name], datadir.MapFile)
			spoil(t, dirs[name], "raft/log/*.log", 5_000)
			before := readFiles(t, dirs[name])
			if _, err := tryStart(t, Config{Dir: dirs[name], Name: name, AcceptDataLoss: true}); err == nil ||
				!strings.Contains(err.Error(),
					"for a cluster of one node") {
				t.Errorf("%s started: %v", name, err)
			}
			if after := readFiles(t, dirs[name]); !maps.Equal(before, after) {
				t.Errorf("%s: files have changed", name)
			}
			if name == "n1" {
				w.start(name, dirs[name], "n2") // it heals
				w.until("three voters each", w.replicated(3))
			}
		}
	})
}
