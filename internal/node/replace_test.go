package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/node/datadir"
)

// A node that ends while its damaged data is being set aside finishes that at the next start, wherever it ended, and nothing of its
// former number stays in place.
func TestSettingAsideResumes(t *testing.T) {
	former := []string{"raft", "shard-0000", "shard-0001-2", "shard-0001-2.staged", datadir.DamageFile}
	for moved := range len(former) + 1 {
		dir := t.TempDir()
		b := datadir.NewIdentityStore(vfs.Default, dir, datadir.NewIdentity("n3"))
		if err := b.Join("00112233445566778899aabbccddeeff", 4, "damaged-1"); err != nil {
			t.Fatal(err)
		}
		for i, name := range former {
			at := dir
			if i < moved {
				at = filepath.Join(dir, "damaged-1")
			}
			if err := os.MkdirAll(filepath.Join(at, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		put(t, filepath.Join(dir, datadir.MapFile), "{}")
		n := &Node{cfg: Config{Dir: dir, fs: vfs.Default, Name: "n3", Logger: slog.New(slog.DiscardHandler)}}
		if damage, err := n.openDir(); damage != nil || err != nil {
			t.Fatalf("after %d moves: %v, %v", moved, damage, err)
		}
		if err := n.close(0); err != nil {
			t.Fatal(err)
		}
		for dir, want := range map[string][]string{dir: {datadir.LockFile, datadir.MapFile, "damaged-1", datadir.IdentityFile,
			datadir.IdentityCopy}, filepath.Join(dir, "damaged-1"): former} {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			slices.Sort(want)
			if slices.Sort(names); !slices.Equal(names, want) {
				t.Errorf("after %d moves there are %q, want %q", moved, names, want)
			}
		}
		if id, err := datadir.LoadIdentity(vfs.Default, dir, n.cfg.Logger); err != nil || id.Node != 4 || id.Aside != "" {
			t.Errorf("after %d moves the identity is %+v, %v", moved, id, err)
		}
	}
}

// Nothing of a damaged member is moved before it is admitted, so that it can still be repaired by hand: here the others have no
// majority without it.
func TestDamagedDataStaysUntilAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dirs := w.grow()
		w.crash("n2")
		w.crash("n3")
		marks := filepath.Join(dirs["n3"], "raft", "marks")
		sound, err := os.ReadFile(marks)
		if err != nil {
			t.Fatal(err)
		}

		put(t, marks, "damaged")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := w.tryStart(ctx, "n3", dirs["n3"]); !errors.Is(err, ErrDamaged) {
			t.Errorf("it started: %v", err)
		}
		if asides, _ := filepath.Glob(filepath.Join(dirs["n3"], "damaged-"+"*")); len(asides) > 0 {
			t.Errorf("%q were made", asides)
		}
		put(t, marks, string(sound))
		w.start("n3", dirs["n3"])
		w.start("n2", dirs["n2"])
		w.until("three voters each", w.replicated(3))
	})
}
