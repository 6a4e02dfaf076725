package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// imageOf returns the state of s as an image.
func imageOf(t testing.TB, s *Store) []byte {
	t.Helper()
	snap := s.Snapshot()
	defer snap.Close()
	var b bytes.Buffer
	if err := snap.WriteImage(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func hashOf(s *Store) string {
	snap := s.Snapshot()
	defer snap.Close()
	sum, _ := snap.Hash(context.Background(), nil, 0)
	return fmt.Sprintf("%x of %d rows", sum.Sum, sum.Rows)
}

var peer = Identity{Cluster: me.Cluster, Replica: 2, Shard: me.Shard}

// source returns a state with some blocks of rows, in epoch 3.
func source(t testing.TB) *Store {
	s := open(t, vfs.NewMem(), me)
	for i := range 40 {
		round(t, s, fmt.Sprintf("k%02d=%s", i, strings.Repeat("v", 100*i*i)), fmt.Sprintf("-k%02d", i-5))
	}
	if err := s.SetEpoch(3); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestImageRoundTrip(t *testing.T) {
	s := source(t)
	defer s.Close()
	if head, rows, err := CheckImage(bytes.NewReader(imageOf(t, s))); err != nil || head.Shard != me.Shard || head.Epoch != 3 || rows != 5 {
		t.Errorf("the image is %+v with %d rows, %v, want 5 rows in epoch 3", head, rows, err)
	}
	p := open(t, vfs.NewMem(), peer)
	defer p.Close()
	round(t, p, "old=1")
	pos, err := p.Stage(bytes.NewReader(imageOf(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := p.Get([]byte("old")); !ok || pos.Index != 40 {
		t.Errorf("Stage changed the state, or returned %+v", pos)
	}
	if err := p.Switch(); err != nil {
		t.Fatal(err)
	}
	got, want := p.Applied(), s.Applied()
	if fmt.Sprint(got) != fmt.Sprint(want) || hashOf(p) != hashOf(s) {
		t.Errorf("after the switch the state is at %+v with hash %s, want %+v with %s", got, hashOf(p), want, hashOf(s))
	}
	if durable, err := p.Durable(); err != nil || durable.Index != want.Index {
		t.Errorf("Durable = %+v, %v", durable, err)
	}
	if e, err := p.Epoch(); err != nil || e != 3 {
		t.Errorf("Epoch = %d, %v, want 3", e, err)
	}
	if !p.Installed() {
		t.Error("Installed is false after a switch to an image")
	}
	if err := p.ClearInstalled(); err != nil || p.Installed() {
		t.Errorf("ClearInstalled returned %v, or Installed is still true", err)
	}
	round(t, p, "k00=new")
	if hashOf(p) == hashOf(s) {
		t.Error("different states have the same hash")
	}
}

// An image of another shard or cluster, a damaged or a truncated one is refused, and leaves nothing behind.
func TestImageRefused(t *testing.T) {
	s := source(t)
	defer s.Close()
	image := imageOf(t, s)
	fs := vfs.NewMem()
	for _, id := range []Identity{{Cluster: [16]byte{9}, Replica: 2, Shard: me.Shard}, {Cluster: me.Cluster, Replica: 2, Shard: 99}} {
		p := open(t, vfs.NewMem(), id)
		if _, err := p.Stage(bytes.NewReader(image)); !errors.Is(err, ErrIdentity) {
			t.Errorf("Stage into %+v returned %v, want ErrIdentity", id, err)
		}
		p.Close()
	}
	p := open(t, fs, peer)
	defer p.Close()
	refused := func(what string, image []byte) {
		t.Helper()
		_, err := p.Stage(bytes.NewReader(image))
		_, _, checked := CheckImage(bytes.NewReader(image))
		for _, err := range []error{err, checked} {
			if !errors.Is(err, ErrImage) && !strings.Contains(fmt.Sprint(err), "version") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := fs.Stat(p.staging.dir()); err == nil {
			t.Errorf("%s: something is left", what)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		at := rng.IntN(len(image))
		refused(fmt.Sprintf("cut at %d", at), image[:at])
		bad := bytes.Clone(image)
		bad[at] ^= 1 << rng.IntN(8)
		refused(fmt.Sprintf("a bit flipped at %d", at), bad)
	}
	for _, at := range []int{0, 5, 6, 7, 30, len(image) - 1, len(image) - 24} {
		bad := bytes.Clone(image)
		bad[at] ^= 0x80
		refused(fmt.Sprintf("the top bit flipped at %d", at), bad)
	}
}

// Whenever the power goes while a state is staged and switched to, a start finds the old one or the new one, complete.
func TestSwitchIsAllOrNothing(t *testing.T) {
	s := source(t)
	defer s.Close()
	image := imageOf(t, s)
	seen := map[string]int{}
	step := 1
	if testing.Short() {
		step = 5
	}
	for n := 1; ; n += step {
		mem := vfs.NewCrashableMem()
		var mu sync.Mutex // for what follows: Pebble writes on other goroutines
		var after *vfs.MemFS
		ops := 0
		p := open(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && after == nil && strings.HasPrefix(op.Path, "state") {
				if ops++; ops == n {
					keepNames(t, mem)
					after = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: n % 3 * 50, RNG: rand.New(rand.NewPCG(uint64(n), 1))})
				}
			}
			return nil
		})), peer)
		round(t, p, "old=1")
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		_, err := p.Stage(bytes.NewReader(image))
		if err == nil {
			err = p.Switch()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if after == nil {
			break
		}
		again := open(t, after, peer)
		switch _, old := again.Get([]byte("old")); {
		case old && again.Applied().Index == 1 && !again.Installed():
			seen["old"]++
		case !old && again.Applied().Index == 40 && hashOf(again) == hashOf(s) && again.Installed():
			seen["new"]++
		case again.Applied().Index == 0 && again.isBlankButOwn():
			seen["none yet"]++ // the power went before the old one was flushed
		default:
			t.Errorf("power lost at write %d: the state is at %+v with hash %s", n, again.Applied(), hashOf(again))
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("found states %v", seen)
	if seen["old"] == 0 || seen["new"] == 0 {
		t.Error("no restart found the old state, or none the new one")
	}
}

func (s *Store) isBlankButOwn() bool { return strings.HasSuffix(hashOf(s), "of 0 rows") }

// keepNames makes the names of all files survive, as journaled file systems do.
func keepNames(t *testing.T, fs vfs.FS) {
	for _, dir := range []string{"", "state", "state.staged", "state.ready"} {
		if d, err := fs.OpenDir(dir); err == nil {
			if err := errors.Join(d.Sync(), d.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// smallDisk is a disk for a number of bytes.
type smallDisk struct {
	vfs.FS
	left *atomic.Int64
}

type smallDiskFile struct {
	vfs.File
	disk smallDisk
}

func (d smallDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	return smallDiskFile{f, d}, err
}

func (f smallDiskFile) Write(b []byte) (int, error) {
	if f.disk.left.Add(-int64(len(b))) < 0 {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(b)
}

// A state that does not fit on the disk is an error that says so, wherever the disk is full, and nothing else: the
// store goes on, and takes the state once there is room.
func TestStageOnFullDisk(t *testing.T) {
	big := open(t, vfs.NewMem(), me)
	defer big.Close()
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 2000 {
		b := make([]byte, 512)
		for j := range b {
			b[j] = byte(rng.Uint32())
		}
		round(t, big, fmt.Sprintf("key%04d=%x", i, b))
	}
	image := imageOf(t, big)
	for room := int64(0); ; room += int64(len(image)) / 20 {
		left := new(atomic.Int64)
		left.Store(1 << 40)
		mem := vfs.NewMem()
		s, err := Open(Config{Dir: "state", FS: smallDisk{mem, left}, Identity: peer, MemTableSize: 64 << 10, Fatal: func(err error) {
			t.Errorf("fatal: %v", err)
		}})
		if err != nil {
			t.Fatal(err)
		}
		left.Store(room)
		_, err = s.Stage(bytes.NewReader(image))
		left.Store(1 << 40)
		if err != nil && (!errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "state.staged")) {
			t.Errorf("with room for %d bytes: %v", room, err)
		}
		if _, missing := mem.Stat("state.staged"); err != nil && missing == nil {
			t.Errorf("with room for %d bytes it has left something", room)
		}
		if round(t, s, "a=1"); s.Flush() != nil {
			t.Errorf("with room for %d bytes, then: %v", room, s.Flush())
		}
		if _, again := s.Stage(bytes.NewReader(image)); again != nil {
			t.Errorf("with room again: %v", again)
		}
		if again := errors.Join(s.Switch(), s.Close()); again != nil {
			t.Errorf("with room again: %v", again)
		}
		if err == nil {
			if room == 0 {
				t.Error("it fits without room")
			}
			return
		}
	}
}

// A state that could not be synced is not staged, whichever sync failed.
func TestStageUnsynced(t *testing.T) {
	s := source(t)
	defer s.Close()
	hit := true
	for k := 1; hit; k++ {
		hit = false
		var syncs atomic.Int64
		p := open(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if strings.HasPrefix(op.Path, "state.staged") && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) &&
				syncs.Add(1) == int64(k) {
				hit = true
				return syscall.EIO
			}
			return nil
		})), peer)
		if _, err := p.Stage(bytes.NewReader(imageOf(t, s))); errors.Is(err, syscall.EIO) != hit || !hit && err != nil {
			t.Errorf("sync %d fails: %v; stage says %v", k, hit, err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A store whose switch has failed can be closed.
func TestFailedSwitchIsClosed(t *testing.T) {
	s := source(t)
	defer s.Close()
	for _, fails := range []errorfs.OpKind{errorfs.OpRename, errorfs.OpOpen} {
		var switching atomic.Bool
		p := open(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if switching.Load() && op.Kind == fails {
				return syscall.EIO
			}
			return nil
		})), peer)
		if _, err := p.Stage(bytes.NewReader(imageOf(t, s))); err != nil {
			t.Fatal(err)
		}
		switching.Store(true)
		if err := p.Switch(); !errors.Is(err, syscall.EIO) {
			t.Errorf("kind %d: switch: %v", fails, err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("kind %d: close: %v", fails, err)
		}
	}
}

func BenchmarkImage(b *testing.B) {
	s, err := Open(Config{Dir: b.TempDir() + "/a", Identity: me})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := range 200 {
		var writes []string
		for j := range 500 {
			writes = append(writes, fmt.Sprintf("k%03d%03d=%s", i, j, strings.Repeat("v", 1000)))
		}
		round(b, s, writes...)
	}
	p, err := Open(Config{Dir: b.TempDir() + "/b", Identity: peer})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	b.SetBytes(100 << 20)
	for b.Loop() {
		r, w := io.Pipe()
		go func() {
			snap := s.Snapshot()
			defer snap.Close()
			_ = w.CloseWithError(snap.WriteImage(w))
		}()
		if _, err := p.Stage(r); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzImage(f *testing.F) {
	s := source(f)
	defer s.Close()
	f.Add(imageOf(f, s))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &imageReader{r: bytes.NewReader(b)}
		if _, err := r.head(); err == nil {
			_ = r.each(func([][2][]byte) error { return nil }) // must not panic
		}
	})
}
