package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pawlq/pawl"
)

// A damaged log is ErrDamaged, says where, and is opened only when the loss is accepted.
func TestDamagedLog(t *testing.T) {
	for _, c := range []struct {
		name, file string
		spoil      func(path string) error
	}{
		{"marks overwritten", "raft/marks", func(path string) error { return os.WriteFile(path, []byte("no marks at all"), 0o600) }},
		{"all logs gone", "raft", os.RemoveAll},
	} {
		t.Run(c.name, func(t *testing.T) {
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
			if info, err := start(t, Config{Dir: dir}).client().Task(t.Context(), ref.ID); err != nil || info.State != pawl.StateReady {
				t.Errorf("a task from after the loss is %+v, %v, want ready", info, err)
			}
		})
	}
}
