package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/wal"
)

// spoiled returns a disk whose write-ahead log is damaged in its first segment, after the entry of shard 8 and before the last entries of
// shard 7.
func spoiled(t *testing.T) *disk {
	t.Helper()
	d, _, _ := wornDisk(t, true)
	at, err := d.open().Shard(8, Start{})
	if err != nil {
		t.Fatal(err)
	}
	save(t, at, aHardState(1, 1, 0), entries(1, 1, 1))
	d.close()
	for _, file := range d.files() {
		b := d.read(file)
		if at := bytes.Index(b, payload(45)); at >= 0 {
			b[at] ^= 1
			d.write(file, b)
			return d
		}
	}
	t.Fatal("no file has entry 45")
	return nil
}

// in returns the contents of the files in a directory, by name.
func (d *disk) in(dir string) map[string]string {
	d.t.Helper()
	names, err := d.mem.List(dir)
	if err != nil {
		return nil
	}
	all := map[string]string{}
	for _, name := range names {
		all[name] = string(d.read(path.Join(dir, name)))
	}
	return all
}

// TestLossIsRefusedWhenOpened: Open returns damage that the logs themselves show, and names what is damaged, before any shard is opened.
// Damage that is accepted is logged once.
func TestLossIsRefusedWhenOpened(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(d *disk) error
		must  bool
		says  string
	}{
		"damaged": {func(*disk) error { return nil }, false, `log "/data/raft/log/`},
		"no log": {func(d *disk) error { return d.mem.RemoveAll("/data/raft/log") }, false,
			`log "/data/raft/log" is damaged: it is empty, but "/data/raft/marks" has marks of 2 shards`},
		"empty log": {func(d *disk) error {
			return errors.Join(d.mem.RemoveAll("/data/raft/log"), d.mem.MkdirAll("/data/raft/log", 0o755))
		}, false, "it is empty"},
		"nothing": {func(d *disk) error { return d.mem.RemoveAll("/data/raft") }, true, `log "/data/raft" is damaged: it is missing`},
		"no shards": {func(d *disk) error {
			if err := d.mem.RemoveAll("/data/raft"); err != nil {
				return err
			}
			d.open()
			d.close()
			return d.mem.RemoveAll("/data/raft/log")
		}, true, "has marks of 0 shards"},
		"marks": {func(d *disk) error {
			d.write("/data/raft/marks", make([]byte, 100))
			return d.mem.RemoveAll("/data/raft/log")
		}, true, `log "/data/raft/marks" is damaged in bytes 0 to 100: slot 0: slot of 100 bytes: unknown format`},
		"no marks": {func(d *disk) error {
			return errors.Join(d.mem.RemoveAll("/data/raft/log"), d.mem.Remove("/data/raft/marks"))
		}, true, `log "/data/raft" is damaged: it is missing`},
		"no marks of no shards": {func(d *disk) error {
			if err := d.mem.RemoveAll("/data/raft"); err != nil {
				return err
			}
			d.open()
			d.close()
			return d.mem.Remove("/data/raft/marks")
		}, true, `log "/data/raft/marks" is damaged: it is missing`},
		"a gap": {func(d *disk) error { *d = *withGap(d.t); return nil }, false,
			`log "/data/raft/log" is damaged: shard 8: entry 2 is missing`},
		"a gap at the start": {func(d *disk) error {
			if err := d.mem.RemoveAll("/data/raft"); err != nil {
				return err
			}
			log := d.open()
			defer d.close()
			return log.appendRaw(appendEntry(append(appendHead(nil, recordSave, 8), 0), entries(1, 3, 3)[0]))
		}, false, `shard 8: entry 1 is missing`},
	} {
		d := spoiled(t)
		if err := c.spoil(d); err != nil {
			t.Fatal(err)
		}
		cfg := d.config()
		cfg.MustExist = c.must
		if log, err := Open(cfg); !errors.Is(err, ondisk.ErrDamaged) || !strings.Contains(err.Error(), c.says) ||
			strings.Contains(err.Error(), "slot 2") {
			t.Fatalf("%s: Open returned %v, %v, want damage with %q", name, log, err, c.says)
		}
		var out bytes.Buffer
		fs := newCountedFS(d.mem, 0)
		cfg.FS, cfg.Logger, cfg.AcceptDataLoss = fs, slog.New(slog.NewTextHandler(&out, nil)), true
		log, err := Open(cfg)
		if err != nil {
			t.Fatalf("%s: Open refuses the loss that is accepted: %v", name, err)
		}
		if n := strings.Count(out.String(), "data loss accepted"); n != 1 {
			t.Errorf("%s: the accepted loss is logged %d times: %s", name, n, out.String())
		}
		if name == "damaged" && !strings.Contains(out.String(), "what follows it is lost") {
			t.Errorf("the write-ahead log has logged nothing: %s", out.String())
		}
		for id, kept := range map[uint32]uint64{9: 0, 8: 1} {
			s, err := log.Shard(id, Start{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !strings.Contains(out.String(), fmt.Sprintf("shard=%d ", id)) {
				t.Errorf("%s: the loss in shard %d is not logged: %s", name, id, out.String())
			}
			if last, _ := s.LastIndex(); s.Epoch() != 1 || last > kept {
				t.Errorf("%s: shard %d ends at entry %d in epoch %d, want at most entry %d and epoch 1", name, id, last, s.Epoch(), kept)
			}
		}
		if err := log.Close(); err != nil || fs.open != 0 {
			t.Fatalf("%s: %v; %d files are still open", name, err, fs.open)
		}
		d.open() // it is whole now
		d.close()
	}
}

// sized returns an entry of so many bytes.
func sized(index uint64, bytes int) []*pb.Entry {
	e := &pb.Entry{Index: &index, Term: new(uint64(1)), Data: make([]byte, bytes)}
	e.Data = e.Data[:bytes-(entrySize(e)-bytes)]
	return []*pb.Entry{e}
}

// appendRaw appends a record to the write-ahead log that no index knows of.
func (l *Log) appendRaw(content []byte) error {
	return l.append(len(content), true, func(_ wal.LSN, b []byte) { copy(b, content) })
}

// withGap returns a disk on which shard 8 has entries 1 and 3.
func withGap(t *testing.T) *disk {
	t.Helper()
	d := newDisk(t)
	s, err := d.open().Shard(8, Start{})
	if err != nil {
		t.Fatal(err)
	}
	save(t, s, aHardState(1, 1, 0), entries(1, 1, 1))
	if err := d.log.appendRaw(appendEntry(appendHead(nil, recordCopied, 8), entries(1, 3, 3)[0])); err != nil {
		t.Fatal(err)
	}
	d.close()
	return d
}

// TestDamagedLogIsSetAside: what is cut off a damaged log stays in a copy, next to older ones, and nothing is cut without one. A copy that
// was not completed is removed.
func TestDamagedLogIsSetAside(t *testing.T) {
	d := spoiled(t)
	whole := d.in("/data/raft/log")
	cfg := d.config()
	cfg.AcceptDataLoss = true
	fails := cfg
	var out bytes.Buffer
	files := 0
	fails.Logger = slog.New(slog.NewTextHandler(&out, nil))
	fails.FS = errorfs.Wrap(d.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "damaged-") {
			if files++; files == 2 {
				return errDisk
			}
		}
		return nil
	}))
	if _, err := Open(fails); !errors.Is(err, errDisk) || !maps.Equal(d.in("/data/raft/log"), whole) {
		t.Fatalf("Open returned %v when the log can't be set aside; the log has the files %q", err,
			slices.Sorted(maps.Keys(d.in("/data/raft/log"))))
	}
	if names, err := d.mem.List("/data/raft"); err != nil || slices.Contains(names, "log.damaged-1") ||
		strings.Contains(out.String(), "set aside") {
		t.Errorf("after a copy that failed, the directory has the files %q (%v), and the log says: %s", names, err, out.String())
	}
	before := d.copy()
	log, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil || !maps.Equal(d.in("/data/raft/log.damaged-1"), whole) || maps.Equal(d.in("/data/raft/log"), whole) {
		t.Errorf("%v; the copy has the files %q", err, slices.Sorted(maps.Keys(d.in("/data/raft/log.damaged-1"))))
	}
	d = before
	for _, dir := range []string{"/data/raft/log.damaged-1", "/data/raft/log.damaged-2"} {
		if err := d.mem.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cfg.FS = d.mem
	if log, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	older := len(d.in("/data/raft/log.damaged-1")) + len(d.in("/data/raft/log.damaged-2"))
	if err := log.Close(); err != nil || older > 0 || !maps.Equal(d.in("/data/raft/log.damaged-3"), whole) {
		t.Errorf("%v; next to older copies, the third has the files %q", err, slices.Sorted(maps.Keys(d.in("/data/raft/log.damaged-3"))))
	}
	// Without damage, nothing is set aside.
	d.open()
	d.close()
	if names, err := d.mem.List("/data/raft"); err != nil || slices.Contains(names, "log.damaged-4") {
		t.Errorf("the directory has the files %q, %v", names, err)
	}
}

// TestOlderCopyThatCannotBeSeen: a copy that can't be looked at may be there, so it is neither replaced nor removed.
func TestOlderCopyThatCannotBeSeen(t *testing.T) {
	d := spoiled(t)
	if err := d.mem.MkdirAll("/data/raft/log.damaged-1", 0o755); err != nil {
		t.Fatal(err)
	}
	d.write("/data/raft/log.damaged-1/older", []byte("evidence"))
	before := d.in("/data/raft/log.damaged-1")
	cfg := d.config()
	cfg.AcceptDataLoss = true
	cfg.FS = errorfs.Wrap(d.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if (op.Kind == errorfs.OpStat || op.Kind == errorfs.OpCreate) && strings.Contains(op.Path, "damaged-1") {
			return errDisk
		}
		return nil
	}))
	if _, err := Open(cfg); !errors.Is(err, errDisk) {
		t.Errorf("Open returned %v", err)
	}
	if now := d.in("/data/raft/log.damaged-1"); !maps.Equal(now, before) {
		t.Errorf("the older copy has the files %q, want %q", now, before)
	}
}

// TestLogsAreLocked: two processes never have the same logs, not even while one of them only reads.
func TestLogsAreLocked(t *testing.T) {
	d := newDisk(t)
	d.open() // a new directory
	if log, err := Load(d.config()); err == nil {
		t.Error("logs that are open were loaded again", log)
	}
	d.close()
	log, err := Load(d.config())
	if err != nil {
		t.Fatal(err)
	}
	if other, err := Load(d.config()); err == nil {
		t.Error("logs that are loaded were loaded again", other)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	d.open()
	d.close()
}

// TestOwnerOfTheLog: the owner of a write-ahead log is known even without the marks.
func TestOwnerOfTheLog(t *testing.T) {
	d := newDisk(t)
	d.open()
	d.close()
	if err := d.mem.Remove("/data/raft/marks"); err != nil {
		t.Fatal(err)
	}
	cfg := d.config()
	cfg.Identity.Node, cfg.AcceptDataLoss = 2, true
	if _, err := Open(cfg); !errors.Is(err, ErrIdentity) || errors.Is(err, ondisk.ErrDamaged) {
		t.Errorf("Open of the log of another node returned %v, want ErrIdentity", err)
	}
	if err := errors.Join(d.mem.RemoveAll("/data/raft/log"), d.mem.MkdirAll("/data/raft/log", 0o755)); err != nil {
		t.Fatal(err)
	}
	below := wal.Config{Dir: "/data/raft/log", FS: d.mem, Owner: []byte{9}, SegmentSize: 16 << 10,
		Checkpoint: func(n uint32) ([]byte, uint32) { return nil, n }}
	log, err := wal.Load(below, func(wal.LSN, []byte, bool) error { return nil })
	if err == nil {
		err = errors.Join(log.Begin(), log.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(d.config()); !errors.Is(err, ondisk.ErrDamaged) || !strings.Contains(err.Error(),
		"identity of 1 bytes: unknown format") {
		t.Errorf("Open of a log whose owner can't be read returned %v, want ErrDamaged", err)
	}
}

// TestDefaults: by default, logs are the operating system's files in segments of 16 MiB, and nothing is logged or reported.
func TestDefaults(t *testing.T) {
	var c Config
	c.setDefaults()
	if c.FS != ondisk.OS || c.SegmentSize != 16<<20 {
		t.Errorf("the defaults are %+v", c)
	}
	c.Logger.Error("nobody reads this")
	c.Fatal(errDisk)
}

// TestFailureBelowIsFatal: the write-ahead log's own failure, between two Saves, is reported at once.
func TestFailureBelowIsFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Value
		cfg := newDisk(t).config()
		cfg.Fatal = func(err error) { told.Store(err) }
		cfg.FS = errorfs.Wrap(cfg.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "3.log") {
				time.Sleep(time.Second) // the Saves end first
				return errDisk
			}
			return nil
		}))
		log, s := opened(t, cfg)
		save(t, s, nil, entries(1, 1, 1))
		save(t, s, nil, sized(2, 16<<10)) // begins the second segment, so that a third is made
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err, _ := told.Load().(error); !errors.Is(err, errDisk) || !strings.HasPrefix(err.Error(), `logs in "/data/raft": `) {
			t.Errorf("the log below can't make a segment, and %v was reported", err)
		}
		_ = log.Close()
	})
}

// TestNewLogsAtEveryCrash: logs can be opened after a power loss at any moment of their creation.
func TestNewLogsAtEveryCrash(t *testing.T) {
	for op := 1; ; op++ {
		d := newDisk(t)
		var crashed *vfs.MemFS
		var seen atomic.Int32
		cfg := d.config()
		cfg.FS = errorfs.Wrap(d.mem, errorfs.InjectorFunc(func(o errorfs.Op) error {
			if o.Kind.ReadOrWrite() == errorfs.OpIsWrite && int(seen.Add(1)) == op {
				crashed = d.mem.CrashClone(vfs.CrashCloneCfg{})
			}
			return nil
		}))
		log, err := Open(cfg)
		if err == nil {
			err = log.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if crashed == nil {
			if op < 10 {
				t.Errorf("only %d writes were seen", op)
			}
			return
		}
		d.mem = crashed
		if log, err = Open(d.config()); err != nil {
			t.Fatalf("power loss before write %d: %v", op, err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFailedLogOpensNoShard: a shard's log is opened or compacted only if what that needs could be written.
func TestFailedLogOpensNoShard(t *testing.T) {
	d := newDisk(t)
	save(t, d.openShard(Start{}), aHardState(3, 1, 4), entries(3, 1, 5))
	d.log.fail(errDisk)
	if _, err := d.log.Shard(9, Start{Index: 2, Term: 3}); !errors.Is(err, errDisk) {
		t.Errorf("a new log that can't start at its state: %v", err)
	}
	d.close()
	if err := d.mem.Remove("/data/raft/marks"); err != nil {
		t.Fatal(err)
	}
	cfg := d.config()
	cfg.AcceptDataLoss = true
	log, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	whole := d.copy()
	log.fail(errDisk)
	for id, at := range map[uint32]Start{7: {Index: 2, Term: 3}, 9: {Index: 2, Term: 3}} {
		if _, err := log.Shard(id, at); !errors.Is(err, errDisk) {
			t.Errorf("Shard %d of a failed log returned %v", id, err)
		}
	}
	_ = log.Close()
	cfg.FS = whole.mem
	if err := whole.mem.Remove("/data/raft/marks"); err != nil {
		t.Fatal(err)
	}
	if log, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	s, err := log.Shard(7, Start{Index: 2, Term: 3})
	if err != nil {
		t.Fatal(err)
	}
	wantHard(t, s, 4, 0, 4)
	log.fail(errDisk)
	if err := s.Compact(2); !errors.Is(err, errDisk) {
		t.Errorf("Compact of a failed log returned %v", err)
	}
	wantLog(t, s, "1:3 2:3 3:3 4:3 5:3")
	_ = log.Close()
}

// TestStateOfAnotherLog: a log is refused if its state has applied another entry, or is of an epoch in which the log lost nothing.
func TestStateOfAnotherLog(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	save(t, s, aHardState(3, 1, 0), entries(3, 1, 5))
	says := "entry 2 is of term 3, the state applied one of term 2"
	if err := d.log.Check(7, Start{Index: 2, Term: 2}); !errors.Is(err, ondisk.ErrDamaged) || !strings.Contains(err.Error(), says) {
		t.Errorf("Check with a state of another entry 2: %v", err)
	}
	if err := d.log.marks.set(mark{7, 3, position{5, 3}, 0}); err != nil {
		t.Fatal(err)
	}
	for epoch, lost := range map[uint64]bool{2: true, 3: true, 4: false} {
		if err := d.log.Check(7, Start{Index: 6, Term: 3, Epoch: epoch}); errors.Is(err, ondisk.ErrDamaged) != lost || err != nil && !lost {
			t.Errorf("Check with a state of epoch %d after the log's end: %v", epoch, err)
		}
	}
	if err := d.log.Create(7); err != nil {
		t.Fatal(err)
	}
	if k, _ := d.log.marks.get(7); k.index != 5 {
		t.Errorf("Create has changed the mark to %+v", k)
	}
	d.close()
}
