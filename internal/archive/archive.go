package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures an Archive.
type Config struct {
	Dir      string
	MaxBytes int64         // of all files; default 1 GiB
	MaxAge   time.Duration // of a file's last record; default 90 days
	FileSize int64         // at which a new file begins; default MaxBytes/1024

	Logger *slog.Logger // nil: none
}

// Archive is a directory of files of JSON lines: each belongs to a namespace. Its methods are safe for concurrent use.
type Archive struct {
	cfg    Config
	disk   disk
	uptime func() time.Duration // since the archive was opened, whatever the clock says

	evicted atomic.Uint64 // bytes

	mu    sync.Mutex
	tails map[string]tail // the files that may have room, by namespace
	grown int64           // bytes appended since the last trim

	seen    time.Time     // the clock at the last Append
	seenAt  time.Duration // the uptime then
	doubted bool          // the clock may be wrong: old files are not removed
	ends    time.Duration // of the doubt, by uptime
}

// tail is a namespace's newest file. This process has written it, and knows that it ends with a complete record.
type tail struct {
	name string
	size int64
}

// clockDoubt is how far the clock may be ahead of the time that has passed since the last record. Beyond that it may be wrong, and a
// removed file can't be recovered, so files are not removed for their age for that long, nor in the first hour of a process.
const clockDoubt = time.Hour

// Defaults of Config.
const (
	DefaultMaxBytes = 1 << 30
	DefaultMaxAge   = 90 * 24 * time.Hour
)

// DirName is the name of an archive's directory in the data directory.
const DirName = "archive"

// The names of files are "NAMESPACE@dead-TIME.jsonl". No namespace has an "@".
const (
	prefix = "dead-"
	suffix = ".jsonl"
)

// Open opens the archive in cfg.Dir, creating the directory if need be.
func Open(cfg Config) (*Archive, error) {
	d, err := openDisk(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return openOn(d, cfg), nil
}

// openOn opens an archive on the given disk.
func openOn(d disk, cfg Config) *Archive {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.MaxAge == 0 {
		cfg.MaxAge = DefaultMaxAge
	}
	if cfg.FileSize == 0 {
		cfg.FileSize = cfg.MaxBytes / 1024
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	opened := time.Now()
	return &Archive{cfg: cfg, disk: d, tails: map[string]tail{}, uptime: func() time.Duration { return time.Since(opened) }}
}

// Close closes the directory.
func (a *Archive) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.disk.Close()
}

// Append adds records of a namespace, each a JSON value without newlines. When it returns they are on stable storage.
// After an error some of them may be.
func (a *Archive) Append(ns string, records [][]byte, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range records {
		if bytes.IndexByte(r, '\n') >= 0 {
			return errors.New("archive: a record has a newline")
		}
	}
	for len(records) > 0 {
		n, err := a.appendSome(ns, records, now)
		if err != nil {
			return fmt.Errorf("archive: %w", err)
		}
		records = records[n:]
	}
	return nil
}

// appendSome appends records until a file is full, and returns their number.
func (a *Archive) appendSome(ns string, records [][]byte, now time.Time) (n int, err error) {
	f, err := a.prepare(ns, now)
	if err != nil {
		return 0, err
	}
	t := a.tails[ns]
	before := t.size
	w := bufio.NewWriter(f)
	for n < len(records) && (n == 0 || t.size < a.cfg.FileSize) {
		_, _ = w.Write(records[n]) // Flush returns its error
		_ = w.WriteByte('\n')
		t.size += int64(len(records[n])) + 1
		n++
	}
	if err = w.Flush(); err == nil {
		err = f.Sync()
	}
	a.grown += t.size - before
	if err = errors.Join(err, f.Close()); err != nil {
		delete(a.tails, ns) // how the file ends is unknown: leave it, and begin a new one with the next record
		return 0, err
	}
	a.tails[ns] = t
	return n, nil
}

// prepare opens a file of the namespace that has room. Before, it removes files if much was added since the last time, if the file is new,
// or if the clock is no longer in doubt.
func (a *Archive) prepare(ns string, now time.Time) (file, error) {
	certain := a.doubted && a.uptime() >= a.ends
	if t, ok := a.room(ns); ok && a.grown < a.cfg.FileSize && !certain {
		a.checkClock(now)
		return a.disk.Append(t.name)
	}
	files, err := a.files()
	if err != nil {
		return nil, err
	}
	if a.seen.IsZero() { // what earlier processes have seen, and they may have doubted it
		for _, f := range files {
			if f.written.After(a.seen) {
				a.seen = f.written
			}
		}
		a.doubted, a.ends = !a.seen.IsZero(), clockDoubt
	}
	a.checkClock(now)
	if err := a.trim(files, now); err != nil {
		return nil, err
	}
	if t, ok := a.room(ns); ok {
		return a.disk.Append(t.name)
	}
	return a.begin(ns, files, now)
}

// room returns the file of a namespace that has room.
func (a *Archive) room(ns string) (t tail, ok bool) {
	t, ok = a.tails[ns]
	return t, ok && t.size < a.cfg.FileSize
}

// checkClock decides whether the clock is in doubt.
func (a *Archive) checkClock(now time.Time) {
	now, uptime := now.Round(0), a.uptime()
	if a.doubted && uptime >= a.ends {
		a.doubted = false
	}
	if ahead := now.Sub(a.seen) - (uptime - a.seenAt); !a.seen.IsZero() && ahead > clockDoubt {
		a.doubted, a.ends = true, uptime+clockDoubt
		a.cfg.Logger.Info("the last record of the dead-letter archive is over an hour old, or the clock is wrong: no file is "+
			"removed for its age for an hour",
			"last_record", a.seen, "clock", now)
	}
	a.seen, a.seenAt = now, uptime
}

// begin begins a file of a namespace after those that are there.
func (a *Archive) begin(ns string, files []stored, now time.Time) (file, error) {
	name := ns + "@" + prefix + now.UTC().Format("20060102T150405.000000000Z") + suffix
	for _, f := range files { // in the order of their names
		if f.ns == ns && name <= f.name { // a clock set back must not sort the new file before the old one
			name = nextName(f.name)
		}
	}
	f, err := a.disk.Create(name)
	if err != nil {
		return nil, err
	}
	if err := a.disk.Sync(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	a.tails[ns] = tail{name: name}
	return f, nil
}

// nextName returns the next name if the clock can't provide one: "dead-T.jsonl", "dead-T~000001.jsonl", "dead-T~000002.jsonl".
func nextName(name string) string {
	stem, number, _ := strings.Cut(strings.TrimSuffix(name, suffix), "~")
	n, _ := strconv.Atoi(number)
	return fmt.Sprintf("%s~%06d%s", stem, n+1, suffix)
}

// stored is a file of the archive.
type stored struct {
	ns, name string
	size     int64
	written  time.Time
}

// trim removes whole files that are too old, and then, while there is too much in all, the oldest file of the namespace that has most
// without it: so none loses what is within its equal share, but for a file, because of others. No file is too old while the clock is in
// doubt.
func (a *Archive) trim(files []stored, now time.Time) error {
	var total int64
	size, of := map[string]int64{}, map[string][]stored{}
	for _, f := range files {
		if now.Sub(f.written) > a.cfg.MaxAge && !a.doubted {
			if err := a.remove(f, now, fmt.Sprintf("its last record is older than %s", a.cfg.MaxAge)); err != nil {
				return err
			}
			continue
		}
		total, size[f.ns], of[f.ns] = total+f.size, size[f.ns]+f.size, append(of[f.ns], f)
	}
	without := func(ns string) int64 { return size[ns] - of[ns][0].size }
	for total > a.cfg.MaxBytes-a.cfg.FileSize {
		ns := ""
		for other := range of {
			if len(of[other]) > 0 && (ns == "" || cmp.Or(cmp.Compare(without(other), without(ns)), cmp.Compare(size[other], size[ns]),
				cmp.Compare(ns, other)) > 0) {
				ns = other
			}
		}
		oldest := of[ns][0]
		reason := fmt.Sprintf("the archive has more than %d bytes, and this namespace most of them", a.cfg.MaxBytes)
		if err := a.remove(oldest, now, reason); err != nil {
			return err
		}
		a.evicted.Add(uint64(oldest.size)) // #nosec G115 -- not negative
		total, size[ns], of[ns] = total-oldest.size, size[ns]-oldest.size, of[ns][1:]
	}
	a.grown = 0
	return nil
}

func (a *Archive) remove(f stored, now time.Time, reason string) error {
	if err := a.disk.Remove(f.name); err != nil {
		return err
	}
	if a.tails[f.ns].name == f.name {
		delete(a.tails, f.ns)
	}
	a.cfg.Logger.Warn("file of the dead-letter archive removed", "namespace", f.ns, "file", f.name, "bytes", f.size,
		"age", now.Sub(f.written).Round(time.Second), "reason", reason)
	return nil
}

// Evicted returns how many bytes were removed since the archive was opened because there was too much, before they were too old.
func (a *Archive) Evicted() uint64 { return a.evicted.Load() }

// files lists the files: those of a namespace together, the oldest first.
func (a *Archive) files() (files []stored, err error) {
	names, err := a.disk.List()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		if !isFile(name) {
			continue
		}
		f := stored{ns: namespaceOf(name), name: name}
		if f.size, f.written, err = a.disk.Stat(name); err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}
