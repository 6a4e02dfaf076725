package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/wal"
)

// Identity identifies the owner of the logs in a directory.
type Identity struct {
	Cluster [16]byte
	Node    uint64
}

// Config configures a Log.
type Config struct {
	Dir      string
	FS       vfs.FS // nil: the operating system's
	Identity Identity

	// SegmentSize is the size of a log file in bytes; 0: 16 MiB.
	SegmentSize int

	// AcceptDataLoss opens what remains of a damaged store. Every log that lost something, or may have, begins a new epoch.
	AcceptDataLoss bool

	Logger *slog.Logger
	// Fatal is called, at most once, when the logs can't be written or a write has hung for 5 s. They accept no more writes
	// from then on, and the process should exit: its memory may be ahead of its disk.
	Fatal func(error)
}

func (c *Config) setDefaults() {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.SegmentSize == 0 {
		c.SegmentSize = 16 << 20
	}
	if c.Fatal == nil {
		c.Fatal = func(error) {}
	}
}

// Log holds the Raft logs of a node's shards. Its methods are safe for concurrent use.
type Log struct {
	cfg   Config
	wal   *wal.Log
	marks *marks
	lock  io.Closer
	// lossy: parts of the log were given up when it was opened, so every shard may have lost something.
	lossy bool

	mu     sync.Mutex // taken after the lock of the write-ahead log
	shards map[uint32]*shardIndex

	failed   atomic.Pointer[error]
	reported atomic.Bool
	writes   *writeTracker // of the write-ahead log
	watchdog *watchdog

	rotated chan struct{}  // holds a token when the write-ahead log has begun a segment
	quit    chan struct{}  // closed to end the goroutines
	work    sync.WaitGroup // of the goroutine that copies entries
}

// ErrIdentity: the directory holds the logs of another cluster or node.
var ErrIdentity = errors.New("logs of another cluster or node")

// Open opens the logs in cfg.Dir, creating them if the directory is empty or absent. If it returns ondisk.ErrDamaged, nothing
// was changed, and AcceptDataLoss opens what remains.
func Open(cfg Config) (*Log, error) {
	cfg.setDefaults()
	l := &Log{cfg: cfg, shards: map[uint32]*shardIndex{}, quit: make(chan struct{}), rotated: make(chan struct{}, 1), watchdog: newWatchdog()}
	l.writes = l.watchdog.watch("log")
	if err := l.open(); err != nil {
		if l.wal != nil {
			err = errors.Join(err, l.wal.Close())
		}
		if l.lock != nil {
			err = errors.Join(err, l.lock.Close())
		}
		return nil, fmt.Errorf("logs in %q: %w", cfg.Dir, err)
	}
	l.work.Go(l.copyOldEntries)
	if !planted("raftlog-no-watchdog") {
		go l.watchdog.run(l.quit, l.fail)
	}
	return l, nil
}

func (l *Log) open() (err error) {
	fs := l.cfg.FS
	if err := ondisk.MakeDir(fs, l.path()); err != nil {
		return err
	}
	if l.lock, err = fs.Lock(fs.PathJoin(l.cfg.Dir, "LOCK")); err != nil {
		return err
	}
	for _, step := range []func() error{l.openMarks, l.checkEmpty, l.openLog, l.startMarks} {
		if err := step(); err != nil {
			return asDamage(l.path(), err)
		}
	}
	return nil
}

// path returns the directory of the write-ahead log.
func (l *Log) path() string { return l.cfg.FS.PathJoin(l.cfg.Dir, "log") }

func (l *Log) openMarks() (err error) {
	l.marks, err = openMarks(l.cfg.FS, l.cfg.FS.PathJoin(l.cfg.Dir, "marks"), l.cfg.Identity, l.watchdog.watch("marks of the logs"))
	if err != nil && errors.Is(err, ondisk.ErrDamaged) && l.cfg.AcceptDataLoss {
		l.giveUp(err)
		return nil
	}
	return err
}

// giveUp records that damage was accepted.
func (l *Log) giveUp(err error) {
	l.lossy = true
	l.cfg.Logger.Error("data loss accepted", "dir", l.cfg.Dir, "error", err)
}

// checkEmpty refuses an empty log if the marks name shards.
func (l *Log) checkEmpty() error {
	names, err := l.cfg.FS.List(l.path())
	if err != nil || len(names) > 0 || len(l.marks.byShard) == 0 {
		return err
	}
	lost := damaged(l.path(), "it is empty, but %q has marks of %d shards", l.marks.path, len(l.marks.byShard))
	if !l.cfg.AcceptDataLoss {
		return lost
	}
	l.giveUp(lost)
	return nil
}

// openLog opens the write-ahead log. A damaged one is copied before the remains are opened.
func (l *Log) openLog() error {
	err := l.openWAL(false)
	if errors.Is(err, ondisk.ErrDamaged) && l.cfg.AcceptDataLoss {
		l.giveUp(err)
		if err := l.setAside(); err != nil {
			return err
		}
		err = l.openWAL(true)
	}
	return err
}

func (l *Log) openWAL(acceptLoss bool) (err error) {
	clear(l.shards)
	l.wal, err = wal.Open(wal.Config{
		Dir: l.path(), FS: l.cfg.FS, Owner: l.cfg.Identity.encode(), SegmentSize: l.cfg.SegmentSize, AcceptLoss: acceptLoss,
		Checkpoint: l.checkpoint, Logger: l.cfg.Logger, Failed: l.fail,
	}, l.replay)
	var other *wal.OwnerError
	switch {
	case errors.As(err, &other):
		return l.cfg.Identity.check(other.Owner)
	case err != nil:
		return err
	}
	return l.checkShards(acceptLoss)
}

func (l *Log) replay(at wal.LSN, content []byte, checkpoint bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if checkpoint {
		return l.applyCheckpoint(content)
	}
	return l.apply(at, content)
}

// checkShards refuses logs with gaps, or truncates them at the gap if loss is accepted.
func (l *Log) checkShards(acceptLoss bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, x := range l.shards {
		whole, err := x.check()
		if err != nil && !acceptLoss {
			return errors.Join(damaged(l.path(), "shard %d: %v", id, err), l.closeWAL())
		}
		x.places = x.places[:whole]
	}
	return nil
}

func (l *Log) closeWAL() error {
	log := l.wal
	l.wal = nil
	return log.Close()
}

// setAside copies the log to a new directory, for anyone who wants to recover more than we could read.
func (l *Log) setAside() error {
	for n := 1; ; n++ {
		to := fmt.Sprintf("%s.damaged-%d", l.path(), n)
		if _, err := l.cfg.FS.Stat(to); err == nil {
			continue
		}
		_, err := vfs.Clone(l.cfg.FS, l.cfg.FS, l.path(), to, vfs.CloneSync)
		l.cfg.Logger.Error("damaged log set aside", "dir", l.cfg.Dir, "to", to)
		return err
	}
}

// DiskBytes returns the size of the logs on disk.
func (l *Log) DiskBytes() uint64 { return l.wal.DiskBytes() }

// damaged returns the error for a loss in a file or directory of the logs.
func damaged(path, format string, args ...any) *ondisk.DamageError {
	return &ondisk.DamageError{What: "log", File: path, Reason: fmt.Sprintf(format, args...)}
}

// asDamage turns errors in opening or reading the store into damage, unless they are transient or a refusal.
func asDamage(path string, err error) error {
	if errors.Is(err, ErrIdentity) {
		return err
	}
	return ondisk.AsDamage("log", path, err)
}

const identityLen = 1 + 16 + 8

func (id Identity) encode() []byte {
	return binary.BigEndian.AppendUint64(append([]byte{recordVersion}, id.Cluster[:]...), id.Node)
}

func (id Identity) check(b []byte) error {
	if len(b) != identityLen || b[0] != recordVersion {
		return fmt.Errorf("identity of %d bytes: unknown format", len(b))
	}
	if want := id.encode(); string(b) != string(want) {
		return fmt.Errorf("%w: they are of cluster %x, node %d; expected cluster %x, node %d", ErrIdentity,
			b[1:17], binary.BigEndian.Uint64(b[17:]), id.Cluster, id.Node)
	}
	return nil
}

// startMarks creates the marks file of a new log. A log with shards must have had one.
func (l *Log) startMarks() error {
	if l.marks.byShard == nil && len(l.shards) > 0 && !l.lossy {
		missing := damaged(l.marks.path, "it is missing")
		if !l.cfg.AcceptDataLoss {
			return missing
		}
		l.giveUp(missing)
	}
	if l.marks.byShard == nil || l.lossy {
		if err := l.marks.create(l.cfg.FS); err != nil {
			return err
		}
	}
	return l.marks.start(l.cfg.FS, l.fail)
}

// Close syncs the marks, so that from now on any loss is noticed, and closes the log. No ShardLog may be used afterwards.
func (l *Log) Close() error {
	close(l.quit)
	l.work.Wait()
	return errors.Join(l.marks.close(), l.wal.Close(), l.lock.Close())
}

// fail stops all writes and reports the first failure.
func (l *Log) fail(err error) {
	if planted("raftlog-error-ignored") {
		return
	}
	err = fmt.Errorf("logs in %q: %w", l.cfg.Dir, err)
	l.failed.CompareAndSwap(nil, &err)
	if l.reported.CompareAndSwap(false, true) {
		l.cfg.Fatal(err)
	}
}

// append appends a record to the write-ahead log. It syncs the record if sync is set; otherwise a crash may lose it. After an
// error no write succeeds again: the contents of the disk are unknown.
func (l *Log) append(n int, sync bool, fill func(at wal.LSN, b []byte)) error {
	if failed := l.failed.Load(); failed != nil {
		return *failed
	}
	l.writes.begin()
	defer l.writes.end()
	err := l.wal.Append(n, sync && !planted("raftlog-no-fsync"), fill)
	if err == nil || planted("raftlog-error-ignored") {
		return nil
	}
	l.fail(err)
	return *l.failed.Load()
}
