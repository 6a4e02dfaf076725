package datadir

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

var quiet = slog.New(slog.DiscardHandler)

// What is recorded in an identity is there at the next start; a reset is not recorded.
func TestIdentityIsKept(t *testing.T) {
	dir := t.TempDir()
	b, err := OpenIdentity(vfs.Default, dir, "n1", quiet)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		what   string
		change func() error
	}{
		{"keep", b.Keep},
		{"found", func() error { return b.Found(2) }},
		{"join", func() error { return b.Join(NewNonce(), 7, "damaged-1") }},
		{"aside", b.asideCleared},
		{"others", func() error { return b.NoteOthers(false) }},
		{"hold", func() error { return b.Hold(9, &Holding{Replica: 1<<32 | 7}) }},
		{"let go", func() error { return b.Hold(9, nil) }},
		{"run", func() error { return b.NoteRun(2) }},
		{"update", func() error { return b.Update(func(i *Identity) { i.Recovering = true }) }},
		{"save", b.Save},
	} {
		if err := x.change(); err != nil {
			t.Fatalf("%s: %v", x.what, err)
		}
		if got, err := LoadIdentity(vfs.Default, dir, quiet); err != nil || !reflect.DeepEqual(got, b.Read()) {
			t.Errorf("%s: read %+v, %v, want %+v", x.what, got, err, b.Read())
		}
	}
	if want := (map[uint32]Holding{0: {Replica: 1, Founder: true}, 1: {Replica: 1, Founder: true}, 2: {Replica: 1, Founder: true,
		Ran: true}}); b.Read().Node != 7 ||
		b.Read().Aside != "" || b.Read().Others || !b.Read().Recovering || !reflect.DeepEqual(b.Read().Replicas, want) {
		t.Errorf("at last it is %+v", b.Read())
	}
	before := b.Read()
	b.Reset("n1")
	if got, err := LoadIdentity(vfs.Default, dir, quiet); err != nil || !reflect.DeepEqual(got, before) || b.Read().Member() {
		t.Errorf("after a reset the file has %+v, %v, want %+v; in memory it is %+v", got, err, before, b.Read())
	}
}

// What could not be saved is not in the memory either: a replica must not run unrecorded.
func TestIdentityIsSavedFirst(t *testing.T) {
	for _, blocked := range []string{IdentityCopy, IdentityFile} {
		dir := t.TempDir()
		b, err := OpenIdentity(vfs.Default, dir, "n1", quiet)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Found(1); err != nil {
			t.Fatal(err)
		}
		before := b.Read()
		if err := os.MkdirAll(filepath.Join(dir, blocked+".new", "full"), 0o700); err != nil { // in the way of the next save
			t.Fatal(err)
		}
		for what, change := range map[string]func() error{
			"found":  func() error { return b.Found(2) },
			"join":   func() error { return b.Join(NewNonce(), 7, "damaged-1") },
			"hold":   func() error { return b.Hold(9, &Holding{Replica: 7}) },
			"let go": func() error { return b.Hold(1, nil) },
			"update": func() error { return b.Update(func(i *Identity) { i.Recovering = true }) },
		} {
			if err := change(); err == nil {
				t.Errorf("%s, with %s blocked: no error", what, blocked)
			}
			if got := b.Read(); !reflect.DeepEqual(got, before) {
				t.Errorf("%s, with %s blocked: in memory it is %+v, want %+v", what, blocked, got, before)
			}
		}
		if got, err := LoadIdentity(vfs.Default, dir, quiet); err != nil || !reflect.DeepEqual(got, before) {
			t.Errorf("with %s blocked the file has %+v, %v, want %+v", blocked, got, err, before)
		}
	}
}

// A copy of the replicas that was read is not changed by later changes.
func TestReadIdentityStays(t *testing.T) {
	b := NewIdentityStore(nil, "", NewIdentity("n1"))
	if err := errors.Join(b.Found(1), b.Hold(1, nil)); err != nil {
		t.Fatal(err)
	}
	before := b.Read().Replicas
	if err := b.Hold(5, &Holding{Replica: 1}); err != nil {
		t.Fatal(err)
	}
	if want := map[uint32]Holding{0: {Replica: 1, Founder: true}}; !reflect.DeepEqual(before, want) {
		t.Errorf("what was read before is now %+v, want %+v", before, want)
	}
}

// Damage found while a node runs is found at its next start, the first one first. A node that accepts the loss of a log forgets it.
func TestDamageIsNoted(t *testing.T) {
	for _, x := range []struct {
		what   string
		accept bool
		others bool
		found  bool // at the next start
		says   string
	}{
		{"log", false, false, true, "start it again to see what can be done"},
		{"log", false, true, true, "the other nodes will fill it"},
		{"log", true, false, false, "start it again to see"},
		{"state", true, false, true, "start it again to see"},
	} {
		d := &Dir{FS: vfs.Default, Path: t.TempDir(), Logger: quiet}
		err := d.NoteDamage(fmt.Errorf("shard 1: %w", &ondisk.DamageError{What: x.what, File: "a", Reason: "b"}), x.others)
		if !errors.Is(err, ondisk.ErrDamaged) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%+v: it says %v", x, err)
		}
		_ = d.NoteDamage(&ondisk.DamageError{What: x.what, File: "later", Reason: "b"}, false)
		next := &Dir{FS: vfs.Default, Path: d.Path, AcceptDataLoss: x.accept, Logger: quiet}
		var damage *ondisk.DamageError
		switch found := next.FoundDamage(); {
		case !x.found && found != nil:
			t.Errorf("%+v: found %v", x, found)
		case x.found && (!errors.As(found, &damage) || damage.File != "a" || damage.What != x.what ||
			!strings.Contains(damage.Reason, DamageFile)):
			t.Errorf("%+v: found %v", x, found)
		}
		if !x.found {
			if err := next.ForgetDamage(); err != nil {
				t.Errorf("%+v: %v", x, err)
			}
		}
		if _, err := os.Stat(filepath.Join(d.Path, DamageFile)); (err == nil) != x.found {
			t.Errorf("%+v: the note: %v", x, err)
		}
	}
	other := errors.New("no damage")
	d := &Dir{FS: vfs.Default, Path: t.TempDir(), Logger: quiet}
	if err := d.NoteDamage(other, true); err != other || d.FoundDamage() != nil {
		t.Errorf("another error is returned as %v, and found is %v", err, d.FoundDamage())
	}
	memory := &Dir{FS: vfs.Default, Path: t.TempDir(), InMemory: true, Logger: quiet}
	if err := memory.NoteDamage(&ondisk.DamageError{What: "log"}, true); strings.Contains(err.Error(), "start it again") ||
		memory.FoundDamage() != nil {
		t.Errorf("in memory it says %v, and found is %v", err, memory.FoundDamage())
	}
}
