package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pawlq/pawl"
)

// A damaged log is ErrDamaged whoever asks, says where, and is opened only when the loss is accepted.
func TestDamagedLog(t *testing.T) {
	dir := t.TempDir()
	s := start(t, Config{Dir: dir})
	ref, err := s.client().Enqueue(t.Context(), pawl.RawTask{Type: "job"})
	if err != nil {
		t.Fatal(err)
	}
	s.end()
	marks := filepath.Join(dir, "raft", "marks")
	if err := os.WriteFile(marks, []byte("no marks at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = tryStart(t, Config{Dir: dir})
	var damage *DamageError
	if !errors.Is(err, ErrDamaged) || !errors.As(err, &damage) || damage.File != marks {
		t.Fatalf("started on a damaged log: %v, want ErrDamaged in %s", err, marks)
	}
	s = start(t, Config{Dir: dir, AcceptDataLoss: true})
	if info, err := s.client().Task(t.Context(), ref.ID); err != nil || info.State != pawl.StateReady {
		t.Errorf("after the loss was accepted the task is %+v, %v", info, err)
	}
	s.end()
	start(t, Config{Dir: dir})
}

// A lost identity is no damage of the log, which could be accepted.
func TestLostIdentityIsNoDamagedLog(t *testing.T) {
	dir := t.TempDir()
	start(t, Config{Dir: dir}).end()
	if err := os.Rename(filepath.Join(dir, identityFile), filepath.Join(t.TempDir(), identityFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := tryStart(t, Config{Dir: dir}); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("without node.json: %v, want an error that is not ErrDamaged", err)
	}
}
