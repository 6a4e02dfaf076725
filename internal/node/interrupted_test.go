package node

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/store"
	systemtables "github.com/pawlq/pawl/internal/system"
)

// walkedDisk is a disk in memory on which something happens at one operation, or before each.
type walkedDisk struct {
	*errorfs.FS
	mem *vfs.MemFS
}

// walked calls before with the number of each operation, from 1.
func walked(mem *vfs.MemFS, before func(n int, op errorfs.Op) error) walkedDisk {
	var mu sync.Mutex
	n := 0
	return walkedDisk{errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		n++
		if err := before(n, op); err != nil {
			return &fs.PathError{Op: "op", Path: op.Path, Err: err}
		}
		return nil
	})), mem}
}

// RemoveAll removes file by file, as a real disk does.
func (w walkedDisk) RemoveAll(name string) error {
	if info, err := w.mem.Stat(name); err == nil && info.IsDir() {
		names, err := w.List(name)
		if err != nil {
			return err
		}
		for _, child := range names {
			if err := w.RemoveAll(w.PathJoin(name, child)); err != nil {
				return err
			}
		}
	}
	return w.Remove(name)
}

// Unwrap implements vfs.FS.
func (w walkedDisk) Unwrap() vfs.FS { return nil }

// clone returns what a power loss leaves if a percentage of what was not synced is kept.
func clone(disk *vfs.MemFS, unsynced int, seed int) *vfs.MemFS {
	out := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(1, uint64(seed)))})
	out.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 40})
	return out
}

// walk is a command that is interrupted at each of its operations.
type walk struct {
	t      *testing.T
	before *vfs.MemFS              // the disk
	dir    string                  // the directory, on it
	run    func(disk vfs.FS) error // the command
	whole  string                  // what the directory holds in the end
	// fresh reports whether a node that is not refused starts in a directory in which the command has not begun.
	fresh func(id datadir.Identity) bool

	stride     int             // between the operations of a kind that fail; 4 times that without long
	sample     int             // of the operations that fail, and of what is kept at a crash
	operations []errorfs.Op    // of the command
	seen       map[uint64]bool // what interruptions have left that was checked

	refused, untouched, complete int // what a start does after an interruption
}

// contents describes the rows of all shards.
func (w *walk) contents(disk vfs.FS) (string, error) {
	view, err := ondisk.NewOverlay(disk, w.dir)
	if err != nil {
		return "", err
	}
	me, err := datadir.LoadIdentity(view, w.dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for id := range uint32(len(me.Replicas)) {
		h := me.Replicas[id]
		state, err := store.Open(store.Config{Dir: view.PathJoin(w.dir, datadir.StateDir(id, h.Replica)), FS: view, MustExist: true,
			NoCompactions: true, Identity: store.Identity{Cluster: datadir.DecodeID(me.Cluster), Replica: h.Replica, Shard: id}})
		if err != nil {
			return "", err
		}
		rows, sum := 0, fnv.New64a()
		state.Scan([]byte{1}, nil, func(key, value []byte) bool {
			// which is the last entry, and each attempt makes one
			if rows++; id != systemShard || !bytes.Equal(key, systemtables.NewestKey) {
				fmt.Fprintf(sum, "%q %q\n", key, value)
			}
			return true
		})
		if err := state.Close(); err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "shard %d: %d rows, %x\n", id, rows, sum.Sum64())
	}
	return out.String(), nil
}

// isWhole returns an error unless the directory holds everything.
func (w *walk) isWhole(disk vfs.FS) error {
	got, err := w.contents(disk)
	if err == nil && got != w.whole {
		err = fmt.Errorf("it holds\n%s, want\n%s", got, w.whole)
	}
	return err
}

// check returns an error unless a disk that an interruption has left is refused by a start or is good, and the command can be repeated.
func (w *walk) check(disk *vfs.MemFS) error {
	print := fingerprint(disk)
	if w.seen[print] {
		return nil
	}
	w.seen[print] = true
	b, err := datadir.OpenIdentity(clone(disk, 100, 0), w.dir, DefaultName, slog.New(slog.DiscardHandler))
	switch {
	case err != nil && strings.Contains(err.Error(), "did not finish: repeat `pawl re"):
		w.refused++
	case errors.Is(err, fs.ErrNotExist): // the directory itself was lost
		w.untouched++
	case err != nil:
		return fmt.Errorf("a start says %w", err)
	case w.fresh(b.Read()):
		w.untouched++
	default:
		w.complete++
		return w.isWhole(disk)
	}
	if err := w.run(disk); err != nil {
		return fmt.Errorf("repeated, it says %w", err)
	}
	if err := w.isWhole(clone(disk, 0, 0)); err != nil {
		return fmt.Errorf("repeated, %w", err)
	}
	return nil
}

// crashes loses power before each operation. What was not synced is kept to 0, 50 or 100 %, at random; with long, to each of the three.
// In short runs power is lost before every fortieth operation.
func (w *walk) crashes() {
	disk, random := clone(w.before, 100, 0), rand.New(rand.NewPCG(uint64(w.sample), 1))
	var first error // reported when the command has ended: nobody else could end it
	err := w.run(walked(disk, func(n int, op errorfs.Op) error {
		w.operations = append(w.operations, op)
		kept := random.IntN(3)
		for i, unsynced := range []int{0, 50, 100} {
			if first != nil {
				break
			}
			if !long() && i != kept || testing.Short() && n%40 != 1 {
				continue
			}
			if err := w.check(clone(disk, unsynced, n)); err != nil {
				first = fmt.Errorf("crash before operation %d (kind %d of %s), %d %% of what was not synced kept: %w", n, op.Kind,
					op.Path, unsynced, err)
			}
		}
		return nil
	}))
	if err == nil {
		err = w.check(clone(disk, 0, 0))
	}
	if err = errors.Join(first, err); err != nil {
		w.t.Fatal(err)
	}
}

// fingerprint returns a checksum of all files.
func fingerprint(disk *vfs.MemFS) uint64 {
	sum := fnv.New64a()
	var add func(path string)
	add = func(path string) {
		names, err := disk.List(path)
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintln(sum, path, name)
			add(disk.PathJoin(path, name))
		}
		if err != nil {
			b, _ := disk.UnsafeGetFileDataBuffer(path)
			binary.Write(sum, binary.LittleEndian, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
		}
	}
	add("/")
	return sum.Sum64()
}

// sampled returns the operations that are to fail: of each kind the first, the last, and a sample. In short runs the first of each kind
// fails: that shows races.
func (w *walk) sampled() []int {
	stride := w.stride
	if !long() {
		stride *= 4
	}
	byKind := map[errorfs.OpKind][]int{}
	for k, op := range w.operations {
		if k == 0 || op.Kind != w.operations[k-1].Kind || op.Path != w.operations[k-1].Path {
			byKind[op.Kind] = append(byKind[op.Kind], k)
		}
	}
	var all []int
	for _, of := range byKind {
		for i, k := range of {
			if i == 0 || !testing.Short() && (i == len(of)-1 || i%stride == w.sample%stride) {
				all = append(all, k)
			}
		}
	}
	slices.Sort(all)
	return all
}

// failures makes operations fail: with EIO that operation alone, with ENOSPC all that need room from there on.
func (w *walk) failures() {
	for _, cause := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
		for _, k := range w.sampled() {
			if cause == syscall.ENOSPC && !needsRoom(w.operations[k].Kind) {
				continue
			}
			disk, hit := clone(w.before, 100, 0), errorfs.Op{}
			err := w.run(walked(disk, func(n int, op errorfs.Op) error {
				fails := n == k+1
				if cause == syscall.ENOSPC {
					fails = n > k && needsRoom(op.Kind)
				}
				if !fails {
					return nil
				}
				if hit.Path == "" {
					hit = op
				}
				return cause
			}))
			switch {
			case err == nil && hit.Path != "" && hit.Kind.ReadOrWrite() == errorfs.OpIsWrite && hit.Kind != errorfs.OpFilePreallocate:
				err = errors.New("there was no error")
			case err != nil && strings.Contains(err.Error(), cause.Error()) && (strings.Contains(err.Error(), w.dir) ||
				strings.Contains(err.Error(), hit.Path)):
				err = nil
			}
			if err == nil {
				err = w.check(clone(disk, 100, 0))
			}
			if err != nil {
				w.t.Fatalf("%v at operation %d (kind %d of %s): %v", cause, k, hit.Kind, hit.Path, err)
			}
		}
	}
}

// needsRoom reports whether an operation fails on a full disk.
func needsRoom(k errorfs.OpKind) bool {
	switch k {
	case errorfs.OpCreate, errorfs.OpLink, errorfs.OpMkdirAll, errorfs.OpReuseForWrite, errorfs.OpFileWrite, errorfs.OpFileWriteAt,
		errorfs.OpFileSync, errorfs.OpFileSyncData:
		return true
	}
	return false
}

// all interrupts the command in all ways.
func (w *walk) all() {
	w.t.Helper()
	w.seen, w.sample = map[uint64]bool{}, sample(w.t, 1<<16)
	done := clone(w.before, 100, 0)
	err := w.run(done)
	if err == nil {
		w.whole, err = w.contents(done)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.crashes()
	w.failures()
	w.t.Logf("%d operations; after interruptions, a start was refused %d times, as before %d, with everything %d", len(w.operations),
		w.refused, w.untouched, w.complete)
	if w.refused == 0 || w.untouched == 0 || w.complete == 0 {
		w.t.Error("one of these never happened")
	}
}

// smallSegments makes the log's files small enough to be copied often.
func smallSegments(t *testing.T) {
	was := segmentSize
	segmentSize = 32 << 10
	t.Cleanup(func() { segmentSize = was })
}

// crashedNode returns the disk of a node that has lost power with tasks in its log, and its cluster.
func crashedNode(t *testing.T, dir string) (*vfs.MemFS, string) {
	mem := vfs.NewCrashableMem()
	s := start(t, Config{Dir: dir, fs: mem, DataShards: 1})
	for i := range 4 {
		enqueue(t, s.client(), fmt.Sprintf("q%d", i))
	}
	defer s.end()
	return clone(mem, 0, 0), s.ClusterID()
}

// A recovery that is interrupted anywhere, by a power loss, a full disk or a failing one, can be repeated and then
// keeps everything. Until then no node starts with a part.
func TestRecoverInterrupted(t *testing.T) {
	smallSegments(t)
	dir := t.TempDir()
	disk, was := crashedNode(t, dir)
	w := &walk{t: t, stride: 1, before: disk, dir: dir, run: func(disk vfs.FS) error {
		_, err := Recover(RecoverConfig{Dir: dir, fs: disk})
		return err
	}}
	w.fresh = func(id datadir.Identity) bool { return id.Cluster == was }
	w.all()
}

// The same for a restore.
func TestRestoreInterruptedAnywhere(t *testing.T) {
	smallSegments(t)
	s := start(t, Config{Dir: t.TempDir()})
	for i := range 4 {
		enqueue(t, s.client(), fmt.Sprintf("q%d", i))
	}
	file, dir := backUp(t, s), t.TempDir()
	s.end()
	w := &walk{t: t, stride: 4, before: vfs.NewCrashableMem(), dir: dir, fresh: func(id datadir.Identity) bool { return !id.Member() },
		run: func(disk vfs.FS) error {
			_, err := Restore(t.Context(), RestoreConfig{File: file, Dir: dir, fs: disk})
			return err
		}}
	w.all()
}

// A restore into the directory of a node changes nothing there, even if the disk fails.
func TestRestoreSparesNode(t *testing.T) {
	smallSegments(t)
	dir := t.TempDir()
	disk, _ := crashedNode(t, dir)
	s := start(t, Config{Dir: t.TempDir()})
	file := backUp(t, s)
	s.end()
	before, hit := fingerprint(disk), true
	for k := 1; hit; k++ {
		hit = false
		_, err := Restore(t.Context(), RestoreConfig{File: file, Dir: dir, fs: walked(disk, func(n int, _ errorfs.Op) error {
			if n == k {
				hit = true
				return syscall.EIO
			}
			return nil
		})})
		if err == nil || fingerprint(disk) != before {
			t.Fatalf("after EIO at operation %d it says %v, and the directory has changed: %v", k, err, fingerprint(disk) != before)
		}
	}
}

// A dry run of a recovery writes nothing, whatever state the directory is in.
func TestDryRunWritesNothing(t *testing.T) {
	smallSegments(t)
	dir := t.TempDir()
	sound, _ := crashedNode(t, dir)
	disks := map[string]*vfs.MemFS{"crashed": sound}
	for what, lost := range map[string]string{"without a lock": datadir.LockFile, "without a copy of the identity": datadir.IdentityCopy,
		"with its copy alone": datadir.IdentityFile, "without states": "shard-0001", "without logs": datadir.LogDir,
		"without marks": "raft/marks"} {
		disk := clone(sound, 100, 0)
		if err := disk.RemoveAll(disk.PathJoin(dir, lost)); err != nil {
			t.Fatal(err)
		}
		disks[what] = disk
	}
	n := 0
	live := clone(sound, 100, 0)
	if _, err := Recover(RecoverConfig{Dir: dir, fs: walked(live, func(int, errorfs.Op) error {
		if n++; n%50 == 0 {
			disks[fmt.Sprintf("after %d operations of a recovery", n)] = clone(live, 100, 0)
		}
		return nil
	})}); err != nil {
		t.Fatal(err)
	}
	for what, disk := range disks {
		before := fingerprint(disk)
		rec, err := Recover(RecoverConfig{Dir: dir, DryRun: true, fs: walked(disk, func(_ int, op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				t.Errorf("%s: operation of kind %d on %s", what, op.Kind, op.Path)
				return syscall.EROFS
			}
			return nil
		})})
		if (err != nil || len(rec.Shards) != 2) && (!strings.HasPrefix(what, "without ") || errors.Is(err, syscall.EROFS)) {
			t.Errorf("%s: %+v, %v", what, rec, err)
		}
		if fingerprint(disk) != before {
			t.Errorf("%s: something has changed", what)
		}
	}
}

// A recovery refuses a directory that has lost a part of what its replicas had, and changes nothing: it would go on without that.
func TestRecoverNeedsEverything(t *testing.T) {
	smallSegments(t)
	dir := t.TempDir()
	sound, _ := crashedNode(t, dir)
	const logsOfNone = "the log of each shard"
	for _, lost := range []string{"shard-0000", "shard-0001", datadir.LogDir, "raft/log", "raft/marks", logsOfNone} {
		disk := clone(sound, 100, 0)
		var err error
		if lost == logsOfNone { // as in a copy of the logs from before the shards existed
			err = emptyLogs(disk, dir)
		} else {
			err = disk.RemoveAll(disk.PathJoin(dir, lost))
		}
		if err != nil {
			t.Fatal(err)
		}
		before := fingerprint(disk)
		if rec, err := Recover(RecoverConfig{Dir: dir, fs: disk}); !errors.Is(err, ErrDamaged) {
			t.Errorf("without %s: %+v, %v", lost, rec, err)
		} else if fingerprint(disk) != before {
			t.Errorf("without %s: something has changed", lost)
		}
	}
}

// emptyLogs replaces the logs of a directory by those of a node that has not run yet.
func emptyLogs(disk vfs.FS, dir string) error {
	id, err := datadir.LoadIdentity(disk, dir, slog.New(slog.DiscardHandler))
	if err = errors.Join(err, disk.RemoveAll(disk.PathJoin(dir, datadir.LogDir))); err != nil {
		return err
	}
	log, err := raftlog.Open(raftlog.Config{Dir: disk.PathJoin(dir, datadir.LogDir), FS: disk, SegmentSize: segmentSize,
		Identity: raftlog.Identity{Cluster: datadir.DecodeID(id.Cluster), Node: uint64(id.Node)}})
	if err != nil {
		return err
	}
	return log.Close()
}

// A replica that never received the state of its shard, or that is being deleted, is as good as none: a recovery that
// would lose the shard changes nothing unless it is told to. Then the shard starts over.
func TestRecoverWithBlankReplica(t *testing.T) {
	smallSegments(t)
	dir := t.TempDir()
	mem := vfs.NewCrashableMem()
	start(t, Config{Dir: dir, fs: mem, DataShards: 2}).end()
	was, err := datadir.LoadIdentity(mem, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for what, h := range map[string]datadir.Holding{"recorded": {Replica: 1<<32 | 1}, "run": {Replica: 1<<32 | 1, Ran: true},
		"leaving": {Replica: 1, Ran: true, Leaving: true}} {
		disk := clone(mem, 100, 0)
		id := datadir.NewIdentityStore(disk, dir, was)
		if err := id.Hold(2, &h); err != nil {
			t.Fatal(err)
		}
		if !h.Leaving {
			log, err := raftlog.Open(raftlog.Config{Dir: disk.PathJoin(dir, datadir.LogDir), FS: disk, SegmentSize: segmentSize,
				Identity: raftlog.Identity{Cluster: datadir.DecodeID(was.Cluster), Node: 1}})
			if err == nil {
				err = log.Remove(2)
			}
			if err == nil && h.Ran {
				err = log.Create(2)
			}
			if err = errors.Join(err, log.Close(), disk.RemoveAll(disk.PathJoin(dir, "shard-0002"))); err != nil {
				t.Fatal(err)
			}
		}
		if h.Ran && !h.Leaving {
			state, err := store.Open(store.Config{Dir: disk.PathJoin(dir, datadir.StateDir(2, h.Replica)), FS: disk,
				Identity: store.Identity{Cluster: datadir.DecodeID(was.Cluster), Replica: h.Replica, Shard: 2}})
			if err = errors.Join(err, state.Close()); err != nil {
				t.Fatal(err)
			}
		}
		before := fingerprint(disk)
		if rec, err := Recover(RecoverConfig{Dir: dir, fs: disk}); err == nil || fingerprint(disk) != before {
			t.Errorf("%s: %+v, %v; something has changed: %v", what, rec, err, fingerprint(disk) != before)
			continue
		}
		if rec, err := Recover(RecoverConfig{Dir: dir, fs: disk, AbandonShards: true}); err != nil ||
			!slices.Equal(rec.Lost, []uint32{2}) || len(rec.Shards) != 2 {
			t.Errorf("%s: the shard was given up: %+v, %v", what, rec, err)
			continue
		}
		start(t, Config{Dir: dir, fs: disk, DataShards: 2}).end()
		now, err := datadir.LoadIdentity(disk, dir, slog.New(slog.DiscardHandler))
		if two := now.Replicas[2]; err != nil || !two.Founder || !two.Ran || two.Leaving {
			t.Errorf("%s: afterwards the replica is %+v, %v", what, two, err)
		}
		system := was.Replicas[systemShard]
		system.Leaving = true
		if err := datadir.NewIdentityStore(disk, dir, now).Hold(systemShard, &system); err != nil {
			t.Fatal(err)
		}
		if rec, err := Recover(RecoverConfig{Dir: dir, fs: disk}); err == nil {
			t.Errorf("%s: recovered %+v without the system shard", what, rec)
		}
	}
}
