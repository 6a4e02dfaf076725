package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

// rowVersion is the first byte of the store's own rows.
const rowVersion = 1

// The first byte of a key is its table. The store's own rows are in table zero.
var (
	identityKey  = []byte{0, 'i'}
	positionKey  = []byte{0, 'p'}
	epochKey     = []byte{0, 'e'}
	installedKey = []byte{0, 'n'}
)

// Identity identifies the owner of the state in a directory. A store can't be opened with another identity than it was created with.
type Identity struct {
	Cluster [16]byte
	Replica uint64
	Shard   uint32
}

// Config configures a Store.
type Config struct {
	Dir      string
	FS       vfs.FS // nil: the operating system's
	Identity Identity
	// MustExist: the state existed before, so if it is missing now it is damaged.
	MustExist bool

	// MemTableSize is how many bytes of writes are collected in memory before they are flushed, 8 MiB if 0. There may be
	// up to four such tables.
	MemTableSize int
	// NoCompactions leaves the files as they are, for a state that is opened only to look at it, or to write a little.
	NoCompactions bool
	// Cache is shared by the stores of a node; nil: a small cache for this store.
	Cache *pebble.Cache

	Logger *slog.Logger
	// Fatal is called, at most once, when the state can't be read or written, with ondisk.ErrDamaged if part of it is lost. The
	// store is unusable from then on. Damage found by Open is returned as its error instead; any other failure may be reported
	// before Open returns, and Open may then never return.
	Fatal func(error)
}

// Position is the place of an applied entry in the shard's log.
type Position struct {
	Index, Term uint64
	// Time is the shard's time when the entry was created.
	Time Time
	// Conf is the shard's membership after the entry, in a form that only the shard reads.
	Conf []byte
}

// Store is one shard's state. Its methods are safe for concurrent use, except that only the shard's loop may call Begin and
// Apply.
type Store struct {
	cfg      Config
	readOnly bool // opened by Peek
	staging  staging
	db       *pebble.DB
	reads    // of the latest applied state
	applied  atomic.Pointer[Position]
	buffers  buffers
	closed   bool // by a Switch that failed

	mu     sync.Mutex
	opened bool  // report damage to Fatal too
	failed error // the first failure
}

// ErrIdentity: the directory holds the state of another cluster, replica or shard.
var ErrIdentity = errors.New("state of another cluster, replica or shard")

// Open opens the state in cfg.Dir, creating it if the directory is empty or absent. If it returns ondisk.ErrDamaged, nothing
// of value was changed.
//
// The first byte of a key is its table, and every table has its own files. So a table whose keys only grow, for example with
// time, is hardly ever merged with older data, whatever the keys of other tables are.
func Open(cfg Config) (*Store, error) {
	s := newStore(cfg)
	err := s.staging.finish()
	if err == nil {
		err = s.open()
	}
	if err != nil {
		return nil, s.openError(err)
	}
	if err := s.begin(); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	return s, nil
}

func newStore(cfg Config) *Store {
	if cfg.FS == nil {
		cfg.FS = ondisk.OS
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MemTableSize == 0 {
		cfg.MemTableSize = 8 << 20
	}
	return &Store{cfg: cfg, staging: staging{cfg.FS, cfg.Dir}}
}

// openError adds to an error of Open which state it is about, unless it says so itself.
func (s *Store) openError(err error) error {
	if err == nil || errors.Is(err, ondisk.ErrDamaged) {
		return err
	}
	return fmt.Errorf("state in %q: %w", s.cfg.Dir, err)
}

// begin makes further damage go to Fatal. It returns an earlier failure.
func (s *Store) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = true
	return s.failed
}

func (s *Store) open() (err error) {
	defer Catch(&err) // Pebble exits the process if it can't write while it opens: here that is an error like any other
	prepare := ondisk.Prepare
	if s.readOnly {
		prepare = ondisk.CheckFormat
	}
	if err := prepare(s.cfg.FS, s.cfg.Dir); err != nil {
		return err
	}
	if _, err := s.checkFiles(); err != nil {
		return err
	}
	if s.db, err = s.openDB(); err != nil {
		return s.damage(err)
	}
	s.reads = reads{s, s.db}
	if err := s.load(); err != nil {
		return errors.Join(s.damage(err), s.db.Close())
	}
	return nil
}

func (s *Store) openDB() (*pebble.DB, error) {
	options, compactions := s.options(), newScheduler()
	options.Experimental.CompactionScheduler = compactions
	options.FS = markedFS{s.cfg.FS}
	db, err := pebble.Open(s.cfg.Dir, options)
	if err == nil && !s.readOnly {
		compactions.begin()
	}
	return db, err
}

// markedFS is a file system in which a marker is never durable without the file that it names: Pebble syncs the directory once for both,
// and a crash may keep either.
type markedFS struct{ vfs.FS }

// Create implements vfs.FS.
func (m markedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(m.PathBase(name), "marker.") {
		if err := ondisk.SyncDir(m.FS, m.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return m.FS.Create(name, c)
}

// checkFiles refuses a directory that has lost a state, and returns the name of the list of its tables; "": there is no state. If there are
// tables but no list, Pebble would create a new state and delete the tables.
func (s *Store) checkFiles() (listed string, err error) {
	names, err := s.cfg.FS.List(s.cfg.Dir)
	if err != nil {
		return "", err
	}
	listed, err = atomicfs.ReadMarker(s.cfg.FS, s.cfg.Dir, "manifest")
	if err != nil {
		return "", s.damage(err)
	}
	tables := slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".sst") })
	switch {
	case listed == "" && tables:
		return "", s.LostError("the list of its tables is missing")
	case listed == "" && s.cfg.MustExist:
		return "", s.LostError("it is missing")
	}
	return listed, nil
}

// damage classifies an error of Open.
func (s *Store) damage(err error) error {
	if errors.Is(err, ErrIdentity) {
		return err
	}
	return ondisk.AsDamage("state", s.cfg.Dir, err)
}

// LostError returns the error for a state that has lost some of its data.
func (s *Store) LostError(reason string) error {
	return &ondisk.DamageError{What: "state", File: s.cfg.Dir, Reason: reason}
}

// load reads the store's own rows.
func (s *Store) load() (err error) {
	defer Catch(&err)
	id, ok := s.Get(identityKey)
	if !ok {
		// It is new, or was never flushed before a crash: nothing else can be in it.
		if !s.isBlank() {
			return fmt.Errorf("%w: it has rows but no identity", ErrIdentity)
		}
		if s.readOnly {
			s.applied.Store(&Position{})
			return nil
		}
		if err := s.db.Set(identityKey, encodeIdentity(s.cfg.Identity), pebble.NoSync); err != nil {
			return err
		}
		if err := s.db.Flush(); err != nil {
			return err
		}
	} else if got, err := decodeIdentity(id); err != nil {
		return err
	} else if got != s.cfg.Identity {
		return fmt.Errorf("%w: it is of cluster %x, replica %d, shard %d; expected cluster %x, replica %d, shard %d", ErrIdentity,
			got.Cluster, got.Replica, got.Shard, s.cfg.Identity.Cluster, s.cfg.Identity.Replica, s.cfg.Identity.Shard)
	}
	pos, err := s.position(false)
	if err != nil {
		return err
	}
	s.applied.Store(&pos)
	return nil
}

func (s *Store) isBlank() bool {
	blank := true
	s.Scan([]byte{0x00}, []byte{0xff}, func(_, _ []byte) bool { blank = false; return false })
	return blank
}

// Close flushes nothing: the log has everything that is not flushed.
func (s *Store) Close() error {
	if s.closed {
		return nil
	}
	return s.db.Close()
}

// Applied returns the position of the last applied entry.
func (s *Store) Applied() Position { return *s.applied.Load() }

// DiskBytes returns the size of the store on disk.
func (s *Store) DiskBytes() uint64 { return s.db.Metrics().DiskSpaceUsage() }

// Durable returns the last position that would survive a power loss now.
func (s *Store) Durable() (Position, error) {
	return s.position(true)
}

func (s *Store) position(durable bool) (Position, error) {
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: positionKey, UpperBound: append(positionKey[:len(positionKey):len(positionKey)], 0),
		OnlyReadGuaranteedDurable: durable,
	})
	if err != nil {
		return Position{}, s.failure("read", err)
	}
	defer it.Close()
	if !it.First() {
		if err := it.Error(); err != nil {
			return Position{}, s.failure("read", err)
		}
		return Position{}, nil
	}
	return decodePosition(it.Value())
}

// Flush makes everything applied durable. It may take long.
func (s *Store) Flush() error { return s.db.Flush() }

// Epoch grows by one whenever a loss is accepted, be it of part of the log or of a majority of the replicas.
func (s *Store) Epoch() (uint64, error) { return epochIn(s) }

func epochIn(r Reader) (uint64, error) {
	b, ok := r.Get(epochKey)
	if !ok {
		return 0, nil
	}
	e, n := uint64(0), 0
	if len(b) > 0 && b[0] == rowVersion {
		e, n = binary.Uvarint(b[1:])
	}
	if n <= 0 {
		return 0, fmt.Errorf("epoch row of %d bytes: unknown format", len(b))
	}
	return e, nil
}

// SetEpoch sets the epoch durably.
func (s *Store) SetEpoch(e uint64) error {
	return errors.Join(s.db.Set(epochKey, encodeEpoch(e), pebble.NoSync), s.db.Flush())
}

// SetIdentity durably changes the owner of the state, from the next Open on.
func (s *Store) SetIdentity(id Identity) error {
	return errors.Join(s.db.Set(identityKey, encodeIdentity(id), pebble.NoSync), s.db.Flush())
}

func encodeEpoch(e uint64) []byte { return binary.AppendUvarint([]byte{rowVersion}, e) }

// Apply applies the writes of an entry, as returned by Tx.Seal, and its position. When it returns they can be read; they
// become durable later (see Durable). Entries must be applied in order.
func (s *Store) Apply(pos Position, entry []byte) error {
	if last := s.Applied(); pos.Index <= last.Index {
		return fmt.Errorf("apply at index %d: already at %d", pos.Index, last.Index)
	}
	if len(entry) > 0 {
		if err := checkEntry(entry); err != nil {
			return fmt.Errorf("apply at index %d: %w", pos.Index, err)
		}
	}
	// Pebble modifies it, and the log still owns entry.
	return s.commit(pos, append(s.buffers.takeEntry(len(entry)+positionRoom), entry...))
}

// ApplyTx applies the writes of a round that was computed on this store. It has the same effect as Apply with the
// result of Seal. The state must not have changed since Begin.
func (s *Store) ApplyTx(pos Position, t *Tx) error {
	if pos.Index != t.entry {
		return fmt.Errorf("apply at index %d: the round was made for %d", pos.Index, t.entry)
	}
	return s.commit(pos, t.Seal(s.buffers.takeEntry(t.Size()+positionRoom)))
}

// positionRoom is enough for a batch's header and the position, unless the membership is large: then Pebble allocates a larger buffer.
const positionRoom = 256

// commit applies an entry along with its position. It takes over a buffer of the store that has the entry.
func (s *Store) commit(pos Position, entry []byte) error {
	b := new(pebble.Batch) // not from Pebble's pool, which would take the buffer
	if len(entry) > 0 {
		if err := b.SetRepr(entry); err != nil {
			return fmt.Errorf("apply at index %d: %w", pos.Index, err)
		}
	}
	if err := s.setPosition(b, pos); err != nil {
		return err
	}
	entry = b.Repr()
	if err := s.db.Apply(b, pebble.NoSync); err != nil {
		return fmt.Errorf("apply at index %d: %w", pos.Index, err)
	}
	if b.Len() == len(entry) { // otherwise Pebble has kept it: a batch of over half a memtable is a memtable of its own
		s.buffers.keepEntry(entry)
	}
	s.applied.Store(&pos)
	return nil
}

// setPosition adds the position to the batch of the entry's writes, so that no flush can separate them.
func (s *Store) setPosition(b *pebble.Batch, pos Position) error {
	return b.Set(positionKey, encodePosition(pos), nil)
}

// checkEntry refuses bytes that Tx.Seal can't have written, so that a damaged entry stops the replica instead of doing
// whatever Pebble makes of it. Pebble's own batch reader panics on some, so the parsing is done here: a kind, the key and,
// for a set, the value, or for a range deletion, its end, each preceded by its length.
func checkEntry(entry []byte) error {
	if len(entry) < batchrepr.HeaderLen {
		return fmt.Errorf("entry of %d bytes is cut short", len(entry))
	}
	want, rows := binary.LittleEndian.Uint32(entry[8:]), uint32(0)
	for rest := entry[batchrepr.HeaderLen:]; len(rest) > 0; rows++ {
		kind := pebble.InternalKeyKind(rest[0])
		key, rest2, ok := cutField(rest[1:])
		var value []byte
		switch {
		case kind != pebble.InternalKeyKindSet && kind != pebble.InternalKeyKindDelete && kind != pebble.InternalKeyKindRangeDelete:
			return fmt.Errorf("entry has a row of unknown kind %d", kind)
		case ok && (len(key) == 0 || key[0] == 0):
			return fmt.Errorf("entry writes the store's own key %x", key)
		}
		if kind != pebble.InternalKeyKindDelete && ok {
			value, rest2, ok = cutField(rest2)
		}
		if !ok || kind == pebble.InternalKeyKindRangeDelete && bytes.Compare(key, value) >= 0 {
			return fmt.Errorf("entry is damaged at row %d", rows)
		}
		rest = rest2
	}
	if rows != want {
		return fmt.Errorf("entry has %d rows, its header says %d", rows, want)
	}
	return nil
}

// cutField cuts off a field that is preceded by its length.
func cutField(b []byte) (field, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, false
	}
	return b[n : n+int(size)], b[n+int(size):], true
}

func (s *Store) options() *pebble.Options {
	log := pebbleLogger{s}
	o := &pebble.Options{
		FS:                          s.cfg.FS,
		FormatMajorVersion:          ondisk.Format,
		ReadOnly:                    s.readOnly,
		DisableWAL:                  true,
		Cache:                       s.cfg.Cache,
		MemTableSize:                uint64(s.cfg.MemTableSize),
		MemTableStopWritesThreshold: 4,
		// Most new rows sort after all others in their table, so L0 can keep them as they are. So it is compacted only
		// after four flushes, not after two, and into a level of up to 256 MiB, not through one level after another.
		// docs/decisions/0058 has the figures.
		L0CompactionThreshold:       8,
		L0StopWritesThreshold:       40,
		LBaseMaxBytes:               256 << 20,
		DisableAutomaticCompactions: s.cfg.NoCompactions,
		Logger:                      log,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { s.fail(s.failure("background work", err)) },
			DataCorruption:  func(i pebble.DataCorruptionInfo) { s.fail(damagedFile(i)) },
		},
	}
	if s.cfg.NoCompactions {
		o.L0StopWritesThreshold = math.MaxInt // it would wait for a compaction
	}
	if s.cfg.Cache == nil {
		o.CacheSize = 8 << 20
	}
	o.Experimental.SpanPolicyFunc = func(start []byte) (pebble.SpanPolicy, []byte, error) {
		if start[0] == 0xff {
			return pebble.SpanPolicy{}, nil, nil
		}
		return pebble.SpanPolicy{}, []byte{start[0] + 1}, nil // a file ends where the next table begins
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].BlockSize = 32 << 10 // a claim of many tasks reads adjacent rows
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
	}
	return o
}

// fail reports the first failure, or leaves it to Open.
func (s *Store) fail(err error) {
	s.mu.Lock()
	if !errors.Is(err, ondisk.ErrDamaged) {
		err = fmt.Errorf("state in %q: %w", s.cfg.Dir, err)
	}
	first := s.failed == nil
	// During Open, Pebble retries failed writes forever, and returns an error if it finds damage.
	report := s.opened || !errors.Is(err, ondisk.ErrDamaged)
	if first {
		s.failed = err
	}
	s.mu.Unlock()
	if first && report && s.cfg.Fatal != nil {
		s.cfg.Fatal(err)
	}
}

// failure distinguishes damage from errors that may be transient.
func (s *Store) failure(doing string, err error) error {
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		return damagedFile(*info)
	}
	if pebble.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF) { // a truncated file
		return ondisk.AsDamage("state", s.cfg.Dir, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func damagedFile(i pebble.DataCorruptionInfo) error {
	return &ondisk.DamageError{What: "state", File: i.Path, Reason: ondisk.FirstLine(i.Details)}
}

// Failure is the panic value of reads when the state can't be read. The shard's loop recovers it and stops the replica: no
// caller could do better, so none has to handle the error.
type Failure struct{ Err error }

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Catch, if deferred, makes a Failure the error of a function.
func Catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case *Failure:
		*err = errors.Join(*err, p)
	default:
		panic(p)
	}
}

func (s *Store) failRead(err error) {
	err = s.failure("read", err)
	s.fail(err)
	panic(&Failure{err})
}

func encodeIdentity(id Identity) []byte {
	b := append([]byte{rowVersion}, id.Cluster[:]...)
	b = binary.BigEndian.AppendUint64(b, id.Replica)
	return binary.BigEndian.AppendUint32(b, id.Shard)
}

func decodeIdentity(b []byte) (Identity, error) {
	var id Identity
	if len(b) != 1+16+8+4 || b[0] != rowVersion {
		return id, fmt.Errorf("identity row of %d bytes: unknown format", len(b))
	}
	copy(id.Cluster[:], b[1:])
	id.Replica = binary.BigEndian.Uint64(b[17:])
	id.Shard = binary.BigEndian.Uint32(b[25:])
	return id, nil
}

func encodePosition(p Position) []byte {
	b := make([]byte, 0, 32+len(p.Conf))
	b = append(b, rowVersion)
	b = binary.AppendUvarint(b, p.Index)
	b = binary.AppendUvarint(b, p.Term)
	b = binary.AppendUvarint(b, uint64(p.Time))
	return append(b, p.Conf...)
}

func decodePosition(b []byte) (Position, error) {
	if len(b) == 0 || b[0] != rowVersion {
		return Position{}, fmt.Errorf("position row of %d bytes: unknown format", len(b))
	}
	b = b[1:]
	var f [3]uint64
	for i := range f {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return Position{}, errors.New("position row is cut short")
		}
		f[i], b = v, b[n:]
	}
	if f[2] > math.MaxInt64 {
		return Position{}, errors.New("position row: time out of range")
	}
	return Position{Index: f[0], Term: f[1], Time: Time(f[2]), Conf: append([]byte(nil), b...)}, nil
}

// pebbleLogger forwards Pebble's log. Fatalf must not return, or Pebble would continue after a failed write.
type pebbleLogger struct{ s *Store }

func (l pebbleLogger) Infof(format string, args ...any) {}
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.s.cfg.Logger.Error("state store", "dir", l.s.cfg.Dir, "error", fmt.Sprintf(format, args...))
}
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	l.s.fail(err)
	panic(&Failure{err})
}
