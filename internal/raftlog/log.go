package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

	// MustExist: there were logs before, so if they are missing now they are damaged.
	MustExist bool
	// AcceptDataLoss opens what remains of a damaged store. Every log that lost something, or may have, begins a new epoch.
	AcceptDataLoss bool

	Logger *slog.Logger
	// Fatal is called, at most once, when the logs can't be written or a write has hung for 5 s. They accept no more writes
	// from then on, and the process should exit: its memory may be ahead of its disk.
	Fatal func(error)
}

func (c *Config) setDefaults() {
	if c.FS == nil {
		c.FS = ondisk.OS
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
	// lossy: parts of the log were given up when it was opened, so every shard may have lost something. cut: damaged parts of the
	// write-ahead log are among them.
	lossy, cut bool
	begun      bool // Begin has succeeded

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
	l, err := Load(cfg)
	if err != nil {
		return nil, err
	}
	if err := l.Begin(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Load is the first half of Open: it reads the logs and changes nothing on disk. Until Begin, only Close and what reads may
// be called.
func Load(cfg Config) (*Log, error) {
	cfg.setDefaults()
	l := &Log{cfg: cfg, shards: map[uint32]*shardIndex{}, quit: make(chan struct{}), rotated: make(chan struct{}, 1),
		watchdog: newWatchdog()}
	l.writes = l.watchdog.watch("log")
	if err := l.load(); err != nil {
		return nil, errors.Join(l.wrap(err), l.Close())
	}
	return l, nil
}

func (l *Log) load() error {
	_, err := l.cfg.FS.Stat(l.cfg.Dir)
	if err == nil {
		err = l.takeLock()
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	for _, step := range []func() error{l.openMarks, l.checkEmpty, l.loadWAL, l.checkMarks} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Begin is the second half of Open. It sets a damaged log aside, cuts it where its damage was accepted, and makes the logs writable.
func (l *Log) Begin() error {
	if err := l.begin(); err != nil {
		return l.wrap(err)
	}
	l.begun = true
	l.work.Go(l.copyOldEntries)
	go l.watchdog.run(l.quit, l.fail)
	return nil
}

func (l *Log) begin() error {
	if err := ondisk.MakeDir(l.cfg.FS, l.path()); err != nil {
		return err
	}
	if l.lock == nil {
		if err := l.takeLock(); err != nil {
			return err
		}
	}
	if l.cut {
		if err := l.setAside(); err != nil {
			return err
		}
	}
	if err := l.wal.Begin(); err != nil {
		return err
	}
	return l.startMarks()
}

func (l *Log) takeLock() (err error) {
	l.lock, err = l.cfg.FS.Lock(l.cfg.FS.PathJoin(l.cfg.Dir, "LOCK"))
	return err
}

// wrap adds what was opened to an error.
func (l *Log) wrap(err error) error {
	return fmt.Errorf("logs in %q: %w", l.cfg.Dir, asDamage(l.path(), err))
}

// path returns the directory of the write-ahead log.
func (l *Log) path() string { return l.cfg.FS.PathJoin(l.cfg.Dir, "log") }

func (l *Log) openMarks() (err error) {
	l.marks, err = openMarks(l.cfg.FS, l.cfg.FS.PathJoin(l.cfg.Dir, "marks"), l.cfg.Identity, l.watchdog.watch("marks of the logs"))
	if errors.Is(err, ondisk.ErrDamaged) {
		return l.mustAccept(err)
	}
	return err
}

// mustAccept returns damage, unless it is accepted.
func (l *Log) mustAccept(damage error) error {
	if !l.cfg.AcceptDataLoss {
		return damage
	}
	l.giveUp(damage)
	return nil
}

// giveUp records that damage was accepted.
func (l *Log) giveUp(err error) {
	l.lossy = true
	l.cfg.Logger.Error("data loss accepted", "dir", l.cfg.Dir, "error", err)
}

// checkEmpty refuses a log without segments that once had some.
func (l *Log) checkEmpty() error {
	names, err := l.cfg.FS.List(l.path())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil || len(names) > 0 || l.lossy {
		return err
	}
	switch {
	case l.marks.byShard == nil && l.cfg.MustExist:
		return l.mustAccept(damaged(l.cfg.Dir, "it is missing"))
	case l.cfg.MustExist, len(l.marks.byShard) > 0:
		return l.mustAccept(damaged(l.path(), "it is empty, but %q has marks of %d shards", l.marks.path, len(l.marks.byShard)))
	}
	return nil
}

// loadWAL reads the write-ahead log, or what remains of it if its damage is accepted.
func (l *Log) loadWAL() error {
	err := l.openWAL(false)
	if errors.Is(err, ondisk.ErrDamaged) && l.cfg.AcceptDataLoss {
		l.giveUp(err)
		l.cut = true
		err = l.openWAL(true)
	}
	return err
}

func (l *Log) openWAL(acceptLoss bool) (err error) {
	clear(l.shards)
	l.wal, err = wal.Load(wal.Config{
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
		} else if !errors.Is(err, fs.ErrNotExist) { // it may be an older copy, which is not ours to replace or remove
			return err
		}
		if _, err := vfs.Clone(l.cfg.FS, l.cfg.FS, l.path(), to, vfs.CloneSync); err != nil {
			return errors.Join(err, l.cfg.FS.RemoveAll(to)) // a start with a full disk must not leave it fuller
		}
		l.cfg.Logger.Error("damaged log set aside", "dir", l.cfg.Dir, "to", to)
		return nil
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

// checkMarks refuses logs with shards that have lost their marks file.
func (l *Log) checkMarks() error {
	if l.marks.byShard == nil && (len(l.shards) > 0 || l.cfg.MustExist) && !l.lossy {
		return l.mustAccept(damaged(l.marks.path, "it is missing"))
	}
	return nil
}

// startMarks creates the marks file of logs that have none, or one that was given up.
func (l *Log) startMarks() error {
	if l.marks.byShard == nil {
		if err := l.marks.create(l.cfg.FS); err != nil {
			return err
		}
	}
	return l.marks.start(l.cfg.FS, l.fail)
}

// Close syncs the marks, so that from now on any loss is noticed, and closes the log. No ShardLog may be used afterwards.
func (l *Log) Close() (err error) {
	if l.begun {
		close(l.quit)
		l.work.Wait()
		err = l.marks.close()
	}
	if l.wal != nil {
		err = errors.Join(err, l.wal.Close())
	}
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close())
	}
	return err
}

// fail stops all writes and reports the first failure.
func (l *Log) fail(err error) {
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
	err := l.wal.Append(n, sync, fill)
	if err == nil {
		return nil
	}
	l.fail(err)
	return *l.failed.Load()
}
