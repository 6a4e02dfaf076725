package raftlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

// Identity says whose logs a directory holds.
type Identity struct {
	Cluster [16]byte
	Node    uint64
}

// Config says where the logs lie and how much memory they may take.
type Config struct {
	Dir      string
	FS       vfs.FS // nil: the operating system's
	Identity Identity

	// Cache is shared by the stores of a node; nil: a small one of its own.
	Cache *pebble.Cache
	// MemTableSize is how many bytes gather in memory before they are flushed to a table; 0: 32 MiB. Entries that are
	// compacted before that never reach one, so it should be a few times what the states of the shards gather.
	MemTableSize int
	// Compactions says when the store may compact; nil: Pebble's own scheduler.
	Compactions pebble.CompactionScheduler

	// AcceptDataLoss opens what is left of a damaged store. Each log that lost something, or may have, begins a new
	// epoch.
	AcceptDataLoss bool

	Logger *slog.Logger
	// Fatal is called, at most once, when the logs can't be written or read, or a write has hung for 5 s. They take no more
	// writes from then on, and the process should end: what it has in memory may be ahead of its disk. It may be called
	// before Open returns, which it may then never do.
	Fatal func(error)
}

func (c *Config) setDefaults() {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MemTableSize == 0 {
		c.MemTableSize = 32 << 20
	}
	if c.Fatal == nil {
		c.Fatal = func(error) {}
	}
}

// Log is the Raft logs of a node's shards. Its methods may be called from any goroutine.
type Log struct {
	cfg   Config
	db    *pebble.DB
	marks *marks
	lock  io.Closer
	// lossy: parts of the store were given up when it was opened, so that every log may have lost something.
	lossy bool
	// opened: from now on failures are reported, not returned by Open.
	opened   atomic.Bool
	failed   atomic.Pointer[error]
	reported atomic.Bool

	writes *pulse // of the Pebble store
	dog    *watchdog
	quit   chan struct{} // ends the watchdog
}

// ErrIdentity: the directory holds the logs of another cluster or node.
var ErrIdentity = errors.New("logs of another cluster or node")

// Open opens the logs in cfg.Dir, creating them if the directory is empty or absent. With ondisk.ErrDamaged nothing was
// changed, and AcceptDataLoss opens what is left.
func Open(cfg Config) (*Log, error) {
	cfg.setDefaults()
	l := &Log{cfg: cfg, quit: make(chan struct{}), dog: newWatchdog()}
	l.writes = l.dog.watch("log")
	if err := l.open(); err != nil {
		if l.db != nil {
			err = errors.Join(err, l.db.Close())
		}
		if l.lock != nil {
			err = errors.Join(err, l.lock.Close())
		}
		return nil, fmt.Errorf("logs in %q: %w", cfg.Dir, err)
	}
	l.opened.Store(true)
	if planted("raftlog-no-watchdog") {
		return l, nil
	}
	go l.dog.run(l.quit, l.fail)
	return l, nil
}

func (l *Log) open() (err error) {
	fs := l.cfg.FS
	if err := ondisk.MakeDir(fs, l.cfg.Dir); err != nil {
		return err
	}
	if l.lock, err = fs.Lock(fs.PathJoin(l.cfg.Dir, "LOCK")); err != nil {
		return err
	}
	if err := ondisk.Prepare(fs, l.path()); err != nil {
		return err
	}
	for _, step := range []func() error{l.openMarks, l.openStore, l.checkIdentity, l.startMarks} {
		if err := step(); err != nil {
			return asDamage(l.path(), err)
		}
	}
	return nil
}

// path is the directory of the Pebble store.
func (l *Log) path() string { return l.cfg.FS.PathJoin(l.cfg.Dir, "log") }

func (l *Log) openMarks() (err error) {
	l.marks, err = openMarks(l.cfg.FS, l.cfg.FS.PathJoin(l.cfg.Dir, "marks"), l.cfg.Identity, l.dog.watch("marks of the logs"))
	if err != nil && errors.Is(err, ondisk.ErrDamaged) && l.cfg.AcceptDataLoss {
		l.giveUp(err)
		return nil
	}
	return err
}

// giveUp notes that damage was accepted.
func (l *Log) giveUp(err error) {
	l.lossy = true
	l.cfg.Logger.Error("data loss accepted", "dir", l.cfg.Dir, "error", err)
}

// openStore opens the Pebble store. A new one is closed and opened again: Pebble writes the first write-ahead log of a
// new store in the oldest form, in which damage passes for the end.
func (l *Log) openStore() error {
	if old, err := isOldForm(l.cfg.FS, l.path()); err != nil {
		return err
	} else if old {
		if err := l.openPebble(); err != nil {
			return err
		}
		if err := l.db.Close(); err != nil {
			return err
		}
		l.db = nil
	}
	err := l.openPebble()
	if err == nil && l.cfg.AcceptDataLoss {
		err = l.readAll()
	}
	if errors.Is(err, ondisk.ErrDamaged) && l.cfg.AcceptDataLoss {
		return l.salvage(err)
	}
	return err
}

// DiskBytes is how much the logs take on disk.
func (l *Log) DiskBytes() uint64 { return l.db.Metrics().DiskSpaceUsage() }

func (l *Log) openPebble() error {
	db, err := pebble.Open(l.path(), l.options())
	if err == nil {
		l.db = db
		return nil
	}
	if pebble.IsCorruptionError(err) {
		if damage := findDamage(l.cfg.FS, l.path()); damage != nil {
			return damage
		}
	}
	return asDamage(l.path(), err)
}

// damaged says that what is lost lies in a file or directory of the logs.
func damaged(path, format string, args ...any) *ondisk.DamageError {
	return &ondisk.DamageError{What: "log", File: path, Reason: fmt.Sprintf(format, args...)}
}

// asDamage makes errors in opening or reading the store damage, unless they may go away, or are a refusal.
func asDamage(path string, err error) error {
	if errors.Is(err, ErrIdentity) {
		return err
	}
	return ondisk.AsDamage("log", path, err)
}

func isOldForm(fs vfs.FS, dir string) (bool, error) {
	desc, err := pebble.Peek(dir, fs)
	if err != nil {
		return false, err
	}
	return !desc.Exists || desc.FormatMajorVersion < ondisk.Format, nil
}

// checkIdentity compares whose logs these are, and writes it into a new store.
func (l *Log) checkIdentity() error {
	b, ok, err := l.get(identityKey)
	if err != nil {
		return err
	}
	if ok {
		return l.cfg.Identity.check(b)
	}
	lost := damaged(l.path(), "")
	if blank, err := l.isBlank(); err != nil {
		return err
	} else if !blank {
		lost.Reason = "it has rows, but does not say whose"
	} else if len(l.marks.of) > 0 {
		lost.Reason = fmt.Sprintf("it is empty, but %q has marks of %d shards", l.marks.path, len(l.marks.of))
	}
	if lost.Reason != "" && !l.lossy {
		if !l.cfg.AcceptDataLoss {
			return lost
		}
		l.giveUp(lost)
		if err := l.setAside(); err != nil {
			return err
		}
		if err := l.startOver(); err != nil {
			return err
		}
	}
	return l.db.Set(identityKey, l.cfg.Identity.encode(), pebble.Sync)
}

const identityLen = 1 + 16 + 8

func (id Identity) encode() []byte {
	return binary.BigEndian.AppendUint64(append([]byte{rowVersion}, id.Cluster[:]...), id.Node)
}

func (id Identity) check(b []byte) error {
	if len(b) != identityLen || b[0] != rowVersion {
		return fmt.Errorf("identity of %d bytes: unknown form", len(b))
	}
	if want := id.encode(); string(b) != string(want) {
		return fmt.Errorf("%w: they are of cluster %x, node %d; expected cluster %x, node %d", ErrIdentity,
			b[1:17], binary.BigEndian.Uint64(b[17:]), id.Cluster, id.Node)
	}
	return nil
}

func (l *Log) isBlank() (bool, error) {
	it, err := l.db.NewIter(nil)
	if err != nil {
		return false, err
	}
	blank := !it.First()
	return blank, errors.Join(it.Error(), it.Close())
}

// startMarks creates the marks file of a new store. A store that has logs had one.
func (l *Log) startMarks() error {
	if l.marks.of == nil {
		it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{0x01}})
		if err != nil {
			return err
		}
		logs := it.First()
		if err := errors.Join(it.Error(), it.Close()); err != nil {
			return err
		}
		if logs && !l.lossy {
			missing := damaged(l.marks.path, "it is missing")
			if !l.cfg.AcceptDataLoss {
				return missing
			}
			l.giveUp(missing)
		}
	}
	if l.marks.of == nil || l.lossy {
		if err := l.marks.create(l.cfg.FS); err != nil {
			return err
		}
	}
	return l.marks.start(l.cfg.FS, l.fail)
}

// Close syncs the marks, so that from now on any loss is noticed, and closes the store. No ShardLog may be used after
// it.
func (l *Log) Close() error {
	close(l.quit)
	return errors.Join(l.marks.close(), l.db.Close(), l.lock.Close())
}

// fail stops all writes and reports the first failure, unless Open still can return it.
func (l *Log) fail(err error) { l.stop(err, l.opened.Load()) }

func (l *Log) stop(err error, report bool) {
	if planted("raftlog-error-ignored") {
		return
	}
	err = fmt.Errorf("logs in %q: %w", l.cfg.Dir, err)
	l.failed.CompareAndSwap(nil, &err)
	if report && l.reported.CompareAndSwap(false, true) {
		l.cfg.Fatal(err)
	}
}

// commit writes a batch. When it fails, no write succeeds again: what the disk holds is not known any more.
func (l *Log) commit(b *pebble.Batch, sync bool) (err error) {
	if failed := l.failed.Load(); failed != nil {
		return *failed
	}
	defer func() {
		if p := recover(); p != nil { // Pebble panics, through its logger too, where it can't go on
			err = fmt.Errorf("write: %v", p)
		}
		if err == nil {
			err = b.Close()
		}
		if planted("raftlog-error-ignored") {
			err = nil
		}
		if err != nil {
			l.fail(err)
			err = *l.failed.Load()
		}
	}()
	l.writes.begin()
	defer l.writes.end()
	return l.db.Apply(b, &pebble.WriteOptions{Sync: sync && !planted("raftlog-no-fsync")})
}

// get returns a copy of a row.
func (l *Log) get(key []byte) ([]byte, bool, error) {
	v, closer, err := l.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return append([]byte(nil), v...), true, closer.Close()
}

// readAll reads every row, and so every block, of the store.
func (l *Log) readAll() error {
	it, err := l.db.NewIter(nil)
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		_, err = it.ValueAndErr()
	}
	return asDamage(l.path(), errors.Join(err, it.Error(), it.Close()))
}

func (l *Log) options() *pebble.Options {
	o := &pebble.Options{
		FS:                          l.cfg.FS,
		FormatMajorVersion:          ondisk.Format,
		Cache:                       l.cfg.Cache,
		MemTableSize:                uint64(l.cfg.MemTableSize),
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       20,
		Logger:                      pebbleLogger{l},
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				// Pebble tries again, for ever: an Open that meets this never returns. Damage it does return.
				l.stop(fmt.Errorf("background work: %w", err), l.opened.Load() || !pebble.IsCorruptionError(err))
			},
			WALCreated: func(i pebble.WALCreateInfo) {
				if i.Err != nil { // Pebble panics next, where nobody can recover it
					l.fail(fmt.Errorf("new file of the log: %w", i.Err))
				}
			},
			DataCorruption: func(i pebble.DataCorruptionInfo) {
				l.fail(damaged(i.Path, "%s", ondisk.FirstLine(i.Details)))
			},
		},
	}
	o.Experimental.CompactionScheduler = l.cfg.Compactions
	if l.cfg.Cache == nil {
		o.CacheSize = 4 << 20
	}
	for i := range o.Levels {
		// Entries live briefly: to compress them is not worth the time.
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	}
	return o
}

// pebbleLogger passes on what Pebble says. Fatalf must not return, or Pebble would go on after a failed write; commit
// recovers what it throws. Open can't: it may come from a goroutine of Pebble's, so it is reported even before Open returns.
type pebbleLogger struct{ l *Log }

func (p pebbleLogger) Infof(string, ...any) {}

func (p pebbleLogger) Eventf(context.Context, string, ...any) {}

func (p pebbleLogger) Errorf(format string, args ...any) {
	p.l.cfg.Logger.Error("log store", "dir", p.l.cfg.Dir, "error", fmt.Sprintf(format, args...))
}

func (p pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	p.l.stop(err, true)
	panic(err)
}
