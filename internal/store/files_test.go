package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

// inDir wraps a disk. Of the operations that put directories of states in place it records all, and makes one fail; 0: none.
func inDir(mem vfs.FS, failing int, done *[]string) vfs.FS {
	var mu sync.Mutex
	return errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		switch op.Kind {
		case errorfs.OpRemoveAll, errorfs.OpRename:
			if !slices.Contains([]string{"a/state", "a/state.staged", "a/state.ready"}, op.Path) {
				return nil
			}
		case errorfs.OpStat:
			if op.Path != "a/state.ready" {
				return nil
			}
		case errorfs.OpOpenDir, errorfs.OpFileSync:
			if op.Path != "a" {
				return nil
			}
		default:
			return nil
		}
		*done = append(*done, fmt.Sprint(op.Kind, " ", op.Path))
		if len(*done) == failing {
			return &os.PathError{Op: "use", Path: op.Path, Err: errDisk}
		}
		return nil
	}))
}

const errDisk = syscall.EIO

// Any failure while a state is staged, switched to and reopened is returned. Without failures, every new name of a directory is on disk
// before the next step.
func TestSwitchReturnsErrors(t *testing.T) {
	s := source(t)
	image := imageOf(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for failing := 0; ; failing++ {
		var done []string
		cfg := Config{Dir: "a/state", FS: inDir(vfs.NewMem(), failing, &done), Identity: peer}
		use := func() error {
			p, err := Open(cfg)
			if err != nil {
				return err
			}
			_, err = p.Stage(bytes.NewReader(image))
			if err == nil {
				err = p.Switch()
			}
			if err != nil {
				return err
			}
			if err := p.Close(); err != nil {
				return err
			}
			if p, err = Open(cfg); err != nil {
				return err
			}
			return p.Close()
		}
		err := use()
		switch {
		case failing == 0 && err != nil:
			t.Fatal(err)
		case failing > len(done):
			return
		case failing > 0 && !errors.Is(err, errDisk):
			t.Errorf("operation %d, %s, failed, but the result is %v", failing, done[failing-1], err)
		case failing > 0:
			continue
		}
		renamed := ""
		for _, op := range done {
			switch {
			case strings.Contains(op, fmt.Sprint(errorfs.OpRename)):
				if renamed != "" {
					t.Errorf("%s was not synced when %s followed", renamed, op)
				}
				renamed = op
			case op == fmt.Sprint(errorfs.OpFileSync, " a"):
				renamed = ""
			}
		}
		if renamed != "" {
			t.Errorf("%s was not synced at the end", renamed)
		}
	}
}

// An image is written in blocks, none larger than necessary, and an error of the writer ends it.
func TestImageIsWrittenInBlocks(t *testing.T) {
	s := open(t, vfs.NewMem(), me)
	defer s.Close()
	long := strings.Repeat("v", imageBlock/2)
	for i := range 7 {
		round(t, s, fmt.Sprintf("k%d=%s", i, long))
	}
	snap := s.Snapshot()
	defer snap.Close()
	w := &countedWriter{}
	if err := snap.WriteImage(w); err != nil || w.writes != 1+1+4+1 || w.largest > 3*imageBlock/2 {
		t.Errorf("the image has %d writes of up to %d bytes, %v", w.writes, w.largest, err)
	}
	for failing := 1; failing <= w.writes; failing++ {
		bad := &countedWriter{failing: failing}
		if err := snap.WriteImage(bad); !errors.Is(err, errDisk) || bad.writes != failing {
			t.Errorf("with write %d failing, WriteImage made %d writes: %v", failing, bad.writes, err)
		}
	}
	if sum, whole := snap.Hash(t.Context(), nil, 0); sum.Rows != 7 || sum.Next != nil || !whole {
		t.Errorf("hashed %d rows up to %q, complete: %v", sum.Rows, sum.Next, whole)
	}
	exact := &imageWriter{w: &countedWriter{}}
	exact.row([]byte("k"), make([]byte, imageBlock-1-1-3))
	if len(exact.buf) != 0 {
		t.Errorf("a full block of %d bytes was not written", len(exact.buf))
	}
	if err := exact.end(); err != nil || exact.w.(*countedWriter).writes != 2 {
		t.Errorf("the image ended with %d writes, %v", exact.w.(*countedWriter).writes, err)
	}
}

type countedWriter struct{ writes, largest, failing int }

func (w *countedWriter) Write(b []byte) (int, error) {
	w.largest = max(w.largest, len(b))
	if w.writes++; w.writes == w.failing {
		return 0, errDisk
	}
	return len(b), nil
}

// A stream with valid checksums may still not be an image.
func TestImagesByHand(t *testing.T) {
	row := func(key, value string) []byte { return appendRow(nil, []byte(key), []byte(value)) }
	good := encodeHead(ImageHead{Cluster: me.Cluster, Shard: me.Shard, Position: Position{Index: 1}})
	for what, c := range map[string]struct {
		kind byte // of the first block
		rows [][]byte
		ok   bool
	}{
		"no rows":                     {blockHead, nil, true},
		"two blocks":                  {blockHead, [][]byte{row("a", "1"), row("b", "2")}, true},
		"rows before the head":        {blockRows, nil, false},
		"the end before the head":     {blockEnd, nil, false},
		"a key twice":                 {blockHead, [][]byte{row("a", "1"), row("a", "2")}, false},
		"keys in another order":       {blockHead, [][]byte{row("b", "1"), row("a", "2")}, false},
		"an empty key":                {blockHead, [][]byte{row("", "1")}, false},
		"a key of the store's own":    {blockHead, [][]byte{row("\x00p", "1")}, false},
		"a key that is cut":           {blockHead, [][]byte{{9, 'a'}}, false},
		"a value that is cut":         {blockHead, [][]byte{{1, 'a', 9, '1'}}, false},
		"a row without a value":       {blockHead, [][]byte{{1, 'a'}}, false},
		"a good row behind a bad one": {blockHead, [][]byte{append([]byte{0, 0}, row("a", "1")...)}, false},
	} {
		var b bytes.Buffer
		b.Write(append([]byte(imageMagic), imageVersion))
		w := &imageWriter{w: &b}
		w.block(c.kind, good)
		w.sum.Reset()
		for _, rows := range c.rows {
			w.buf, w.rows = append(w.buf, rows...), w.rows+1
			w.flush()
		}
		if err := w.end(); err != nil {
			t.Fatal(err)
		}
		_, rows, err := CheckImage(&b)
		if c.ok && (err != nil || rows != uint64(len(c.rows))) || !c.ok && !errors.Is(err, ErrImage) {
			t.Errorf("%s: CheckImage = %d rows, %v", what, rows, err)
		}
	}
	for n, want := range map[uint32]string{maxBlock: "it is truncated", maxBlock + 1: "at most"} {
		frame := []byte{blockRows, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
		if _, _, err := (&imageReader{r: bytes.NewReader(frame)}).block(); !errors.Is(err, ErrImage) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("a block of %d bytes: %v", n, err)
		}
	}
}

// The store's own rows are read by other releases: their formats are fixed, and other formats are refused.
func TestFormsOfOwnRows(t *testing.T) {
	p := Position{Index: 1, Term: 300, Time: 5, Conf: []byte("c")}
	for what, c := range map[string]struct{ got, want []byte }{
		"position": {encodePosition(p), []byte("\x01\x01\xac\x02\x05c")},
		"epoch":    {encodeEpoch(300), []byte("\x01\xac\x02")},
		"identity": {encodeIdentity(Identity{Cluster: [16]byte{7}, Replica: 8, Shard: 9}),
			[]byte("\x01\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x09")},
	} {
		if !bytes.Equal(c.got, c.want) {
			t.Errorf("%s: %q, want %q", what, c.got, c.want)
		}
	}
	const latest = "\xff\xff\xff\xff\xff\xff\xff\xff\x7f" // math.MaxInt64
	for row, want := range map[string]string{"": "unknown format", "\x01": "cut short", "\x02\x01\x01\x01": "unknown format",
		"\x01\x01\x01": "cut short", "\x01\x01\x01\xff": "cut short", "\x01\x01\x01\x01": "", "\x01\x01\x01" + latest: "",
		"\x01\x01\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01": "out of range"} {
		if _, err := decodePosition([]byte(row)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("position %q: %v, want %q", row, err, want)
		}
	}
	s := open(t, vfs.NewMem(), me)
	defer s.Close()
	for row, want := range map[string]uint64{"\x01\xac\x02": 300, "\x01\x00": 0} {
		if err := s.db.Set(epochKey, []byte(row), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		if e, err := s.Epoch(); e != want || err != nil {
			t.Errorf("Epoch of row %q = %d, %v", row, e, err)
		}
	}
	for _, row := range []string{"", "\x01", "\x02\x01", "\x01\xff"} {
		if err := s.db.Set(epochKey, []byte(row), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		if e, err := s.Epoch(); err == nil {
			t.Errorf("Epoch accepted row %q as %d", row, e)
		}
		if err := (&Snapshot{reads: reads{s, s.db}}).WriteImage(&countedWriter{}); err == nil {
			t.Errorf("WriteImage accepted epoch row %q", row)
		}
	}
}

// A new state has an identity once it is open, even if its creator crashed before or after that; one with rows and no
// identity belongs to somebody else.
func TestStatesWithoutIdentity(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := open(t, mem, me)
	keepNames(t, mem)
	after := mem.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other := me
	other.Shard++
	if _, err := Open(Config{Dir: "state", FS: after, Identity: other}); !errors.Is(err, ErrIdentity) {
		t.Errorf("a new state that lost power was opened with another identity: %v", err)
	}
	for what, key := range map[string][]byte{"nothing": nil, "a row": []byte("a"), "a row of the store": positionKey,
		"the last row": {0xfe, 0xff}} {
		mem := vfs.NewCrashableMem()
		bare := &Store{cfg: Config{Dir: "state", FS: mem, MemTableSize: 1 << 20}}
		if err := ondisk.Prepare(mem, "state"); err != nil {
			t.Fatal(err)
		}
		db, err := bare.openDB()
		if err != nil {
			t.Fatal(err)
		}
		if key != nil {
			if err := errors.Join(db.Set(key, encodePosition(Position{}), pebble.NoSync), db.Flush()); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := Open(Config{Dir: "state", FS: mem, Identity: me})
		if key != nil {
			if !errors.Is(err, ErrIdentity) {
				t.Errorf("%s: Open returned %v, want ErrIdentity", what, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		keepNames(t, mem)
		after := mem.CrashClone(vfs.CrashCloneCfg{})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Config{Dir: "state", FS: after, Identity: other}); !errors.Is(err, ErrIdentity) {
			t.Errorf("%s: after a power loss another identity got %v, want ErrIdentity", what, err)
		}
	}
}

// What an earlier Stage or start left does not become part of what is staged next.
func TestStagedTwice(t *testing.T) {
	s, other := source(t), open(t, vfs.NewMem(), me)
	defer s.Close()
	defer other.Close()
	round(t, other, "z=1")
	mem := vfs.NewMem()
	p := open(t, mem, peer)
	for _, image := range [][]byte{imageOf(t, other), imageOf(t, s)} {
		if _, err := p.Stage(bytes.NewReader(image)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Switch(); err != nil {
		t.Fatal(err)
	}
	if hashOf(p) != hashOf(s) {
		t.Errorf("the state's hash is %s after the switch, want %s", hashOf(p), hashOf(s))
	}
	if _, err := p.Stage(bytes.NewReader(imageOf(t, other))); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = open(t, mem, peer)
	if _, err := mem.Stat(p.staging.dir()); err == nil || hashOf(p) != hashOf(s) {
		t.Errorf("what was staged is still there, %v, or taken for the state: %s", err, hashOf(p))
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// A new state is at position zero, on the operating system's disk and with the default amount of memory.
func TestNewState(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if s.cfg.MemTableSize != 8<<20 {
		t.Errorf("MemTableSize is %d bytes by default, want 8 MiB", s.cfg.MemTableSize)
	}
	snap := s.Snapshot()
	if pos, err := snap.Position(); pos.Index != 0 || err != nil {
		t.Errorf("a new state is at %+v, %v", pos, err)
	}
	snap.Close()
	if e, err := s.Epoch(); e != 0 || err != nil {
		t.Errorf("a new state is in epoch %d, %v", e, err)
	}
	if err := s.Apply(Position{Index: 1}, nil); err != nil || s.Applied().Index != 1 {
		t.Errorf("Apply without rows: %v, at %+v", err, s.Applied())
	}
	tx := s.Begin(1, 2)
	tx.Set([]byte("a"), nil)
	for _, entry := range [][]byte{{0}, tx.Seal(nil)[:5], append(tx.Seal(nil), 0)} {
		if err := s.Apply(Position{Index: 2}, entry); err == nil {
			t.Errorf("entry %x was applied", entry)
		}
	}
	if key, _, ok := tx.First([]byte("a"), []byte("b")); !ok || string(key) != "a" {
		t.Errorf("First = %q, %v, want a", key, ok)
	}
	tx.Close()
	if err := s.Close(); err != nil { // which would find an iterator that is still open
		t.Error(err)
	}
}

// An identity in the format of another release is not another identity, and a disk error is not a lost state.
func TestOpenErrors(t *testing.T) {
	mem := vfs.NewMem()
	s := open(t, mem, me)
	round(t, s, "a=1")
	if err := errors.Join(s.db.Set(identityKey, []byte("\x02..."), pebble.NoSync), s.db.Flush(), s.db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: "state", FS: mem, Identity: me}); err == nil || errors.Is(err, ErrIdentity) ||
		!strings.Contains(err.Error(),
			"unknown format") {
		t.Errorf("Open with an identity of an unknown format: %v", err)
	}
	mem = vfs.NewMem()
	s = open(t, mem, me)
	if err := errors.Join(s.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	for failing := int32(2); failing <= 3; failing++ { // the first is for the version of the files, which may be missing
		var lists atomic.Int32
		disk := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpList && op.Path == "state" && lists.Add(1) == failing {
				return &os.PathError{Op: "list", Path: op.Path, Err: errDisk}
			}
			return nil
		}))
		if _, err := Open(Config{Dir: "state", FS: disk, Identity: me}); !errors.Is(err, errDisk) || errors.Is(err, ondisk.ErrDamaged) {
			t.Errorf("list %d failed, and Open returned %v, want the disk's error", failing, err)
		}
	}
}

// A new epoch and a new identity are on disk when the call returns.
func TestOwnRowsAreDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := open(t, mem, me)
	other := me
	other.Replica++
	if err := errors.Join(s.SetEpoch(4), s.SetIdentity(other)); err != nil {
		t.Fatal(err)
	}
	keepNames(t, mem)
	after := mem.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, after, other)
	defer s.Close()
	if e, err := s.Epoch(); e != 4 || err != nil {
		t.Errorf("Epoch = %d, %v, want 4", e, err)
	}
	if err := s.SetEpoch(5); err != nil {
		t.Fatal(err)
	}
	keepNames(t, after)
	again := after.CrashClone(vfs.CrashCloneCfg{})
	last := open(t, again, other)
	defer last.Close()
	if e, err := last.Epoch(); e != 5 || err != nil {
		t.Errorf("Epoch = %d, %v, want 5", e, err)
	}
}
