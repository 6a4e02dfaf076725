package node

import (
	"errors"
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
		"missing":                    {func(dir string) { lose(t, dir, "") }, "shard-0001"},
		"empty":                      {func(dir string) { lose(t, dir, "*") }, "shard-0001"},
		"old":                        {func(dir string) { lose(t, dir, "MANIFEST-*"); lose(t, dir, "marker.manifest*"); lose(t, dir, "*.sst") }, "shard-0001"},
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
				if !errors.Is(err, ErrDamaged) || !errors.As(err, &damage) || damage.What != "state" || !strings.Contains(damage.File, "shard-0001") || !strings.HasSuffix(damage.File, c.file) {
					t.Fatalf("started on a damaged state: %v, want damage of the state in %s", err, c.file)
				}
			}
			lose(t, state, "")
			if err := os.CopyFS(state, os.DirFS(sound)); err != nil {
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
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), ".sst") || !strings.Contains(err.Error(), filepath.Join(dir, datadir.DamageFile)) {
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
