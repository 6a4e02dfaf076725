package archive

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config configures an Archive.
type Config struct {
	Dir      string
	MaxBytes int64         // of all files; the oldest file is removed first; default 1 GiB
	MaxAge   time.Duration // of a file's last record; default 90 days
	FileSize int64         // at which a new file begins; default MaxBytes/16

	Logger *slog.Logger // nil: none
}

// Archive is a directory of files of JSON lines. Its methods are safe for concurrent use.
type Archive struct {
	cfg    Config
	disk   disk
	uptime func() time.Duration // since the archive was opened, whatever the clock says

	mu   sync.Mutex
	file file // the newest, open for appending; nil until the first record
	name string
	size int64
	line int

	seen    time.Time     // the clock at the last Append
	seenAt  time.Duration // the uptime then
	doubted bool          // the clock may be wrong: old files are not removed
	ends    time.Duration // of the doubt, by uptime
}

// clockDoubt is how far the clock may be ahead of the time that has passed since the last record. Beyond that it may be wrong, and a
// removed file can't be recovered, so files are not removed for their age for that long, nor in the first hour of a process.
const clockDoubt = time.Hour

// Defaults of Config.
const (
	DefaultMaxBytes = 1 << 30
	DefaultMaxAge   = 90 * 24 * time.Hour
)

const (
	prefix = "dead-"
	suffix = ".jsonl"
)

// ErrNoRecord: there is no record at the place.
var ErrNoRecord = errors.New("no such record in the archive")

// ErrPlace: the text is not one that Append returns, or that List returns as a cursor.
var ErrPlace = errors.New("not a place in the archive")

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
		cfg.FileSize = cfg.MaxBytes / 16
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	opened := time.Now()
	return &Archive{cfg: cfg, disk: d, uptime: func() time.Duration { return time.Since(opened) }}
}

// Close closes the files.
func (a *Archive) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var err error
	if a.file != nil {
		err = a.file.Close()
	}
	return errors.Join(err, a.disk.Close())
}

// Append adds records, each a JSON value without newlines, and returns their places. When it returns they are on stable storage.
// After an error some of them may be.
func (a *Archive) Append(records [][]byte, now time.Time) (places []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range records {
		if bytes.IndexByte(r, '\n') >= 0 {
			return nil, errors.New("archive: a record has a newline")
		}
	}
	if err := a.prepare(now); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	var buf bytes.Buffer
	for _, r := range records {
		buf.Write(r)
		buf.WriteByte('\n')
		a.line++
		places = append(places, a.name+":"+strconv.Itoa(a.line))
	}
	n, err := a.file.Write(buf.Bytes())
	a.size += int64(n)
	if err == nil {
		err = a.file.Sync()
	}
	if err != nil {
		// The contents of the file are unknown now: leave it, and begin a new one with the next record.
		err = errors.Join(err, a.file.Close())
		a.file = nil
		return nil, fmt.Errorf("archive: %w", err)
	}
	return places, nil
}

// prepare makes sure that a file with room is open, and removes files if that begins a new one, or if the clock is no longer in doubt.
func (a *Archive) prepare(now time.Time) error {
	full := a.file != nil && a.size >= a.cfg.FileSize
	certain := a.doubted && a.uptime() >= a.ends
	if a.file != nil && !full && !certain {
		a.checkClock(now)
		return nil
	}
	if full {
		file := a.file
		a.file = nil
		if err := file.Close(); err != nil {
			return err
		}
	}
	names, err := a.files()
	if err != nil {
		return err
	}
	if a.seen.IsZero() && len(names) > 0 { // what earlier processes have seen, and they may have doubted it
		if _, a.seen, err = a.disk.Stat(names[len(names)-1]); err != nil {
			return err
		}
		a.doubted, a.ends = true, clockDoubt
	}
	a.checkClock(now)
	if a.file != nil {
		return a.trim(slices.DeleteFunc(names, func(n string) bool { return n == a.name }), now)
	}
	if err := a.trim(names, now); err != nil {
		return err
	}
	return a.begin(names, now)
}

// checkClock decides whether the clock is in doubt.
func (a *Archive) checkClock(now time.Time) {
	now, uptime := now.Round(0), a.uptime()
	if a.doubted && uptime >= a.ends {
		a.doubted = false
	}
	if ahead := now.Sub(a.seen) - (uptime - a.seenAt); !a.seen.IsZero() && ahead > clockDoubt {
		a.doubted, a.ends = true, uptime+clockDoubt
		a.cfg.Logger.Info("the last record of the dead-letter archive is over an hour old, or the clock is wrong: no file is removed for its age for an hour",
			"last_record", a.seen, "clock", now)
	}
	a.seen, a.seenAt = now, uptime
}

// begin begins a file after those with the given names.
func (a *Archive) begin(names []string, now time.Time) error {
	name := prefix + now.UTC().Format("20060102T150405.000000000Z") + suffix
	if len(names) > 0 && name <= names[len(names)-1] { // a clock set back must not sort the new file before the old one
		name = nextName(names[len(names)-1])
	}
	f, err := a.disk.Create(name)
	if err != nil {
		return err
	}
	if err := a.disk.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	a.file, a.name, a.size, a.line = f, name, 0, 0
	return nil
}

// nextName returns the next name if the clock can't provide one: "dead-T.jsonl", "dead-T~000001.jsonl", "dead-T~000002.jsonl".
func nextName(name string) string {
	stem, number, _ := strings.Cut(strings.TrimSuffix(name, suffix), "~")
	n, _ := strconv.Atoi(number)
	return fmt.Sprintf("%s~%06d%s", stem, n+1, suffix)
}

// trim removes whole files, the oldest first, if they are too old or there is too much in all. None is too old while the clock is in doubt.
func (a *Archive) trim(names []string, now time.Time) error {
	var total int64
	for _, name := range slices.Backward(names) {
		size, written, err := a.disk.Stat(name)
		if err != nil {
			return err
		}
		total += size
		age, reason := now.Sub(written), ""
		switch {
		case total > a.cfg.MaxBytes-a.cfg.FileSize:
			reason = fmt.Sprintf("the archive has more than %d bytes", a.cfg.MaxBytes)
		case age > a.cfg.MaxAge && !a.doubted:
			reason = fmt.Sprintf("its last record is older than %s", a.cfg.MaxAge)
		default:
			continue
		}
		if err := a.disk.Remove(name); err != nil {
			return err
		}
		a.cfg.Logger.Warn("file of the dead-letter archive removed", "file", name, "bytes", size, "age", age.Round(time.Second), "reason", reason)
	}
	return nil
}

// files lists the files, the oldest first.
func (a *Archive) files() ([]string, error) {
	names, err := a.disk.List()
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !isOurs(n) })
	slices.Sort(names)
	return names, nil
}

// Read returns the record at a place that Append returned.
func (a *Archive) Read(place string) ([]byte, error) {
	name, line, ok := parsePlace(place)
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrPlace, place)
	}
	lines, err := a.lines(name)
	if errors.Is(err, os.ErrNotExist) || err == nil && line > len(lines) {
		return nil, fmt.Errorf("%w: %q", ErrNoRecord, place)
	}
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return lines[line-1], nil
}

// List calls fn for the records, newest first, until it returns false, and returns the cursor to continue from, "" at the end. cursor
// is what an earlier call returned, or "".
func (a *Archive) List(cursor string, fn func(place string, record []byte) bool) (next string, err error) {
	names, err := a.files()
	if err != nil {
		return "", fmt.Errorf("archive: %w", err)
	}
	last, below, ok := parsePlace(cursor)
	if cursor != "" && !ok {
		return "", fmt.Errorf("%w: %q", ErrPlace, cursor)
	}
	for _, name := range slices.Backward(names) {
		if cursor != "" && name > last {
			continue
		}
		lines, err := a.lines(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // trimmed meanwhile
		}
		if err != nil {
			return "", fmt.Errorf("archive: %w", err)
		}
		from := len(lines)
		if name == last {
			from = min(below-1, from)
		}
		for i := from; i >= 1; i-- {
			place := name + ":" + strconv.Itoa(i)
			if !fn(place, lines[i-1]) {
				return place, nil
			}
		}
	}
	return "", nil
}

// lines reads a file. A last line without a newline was truncated by a crash, and never acknowledged.
func (a *Archive) lines(name string) (lines [][]byte, err error) {
	f, err := a.disk.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		lines = append(lines, line[:len(line)-1])
	}
}

// placeForm matches FILE:LINE, with a file name as created by begin.
var placeForm = regexp.MustCompile(`^(dead-[0-9A-Za-z.~-]{1,64}\.jsonl):([1-9][0-9]{0,17})$`)

func parsePlace(place string) (name string, line int, ok bool) {
	parts := placeForm.FindStringSubmatch(place)
	if parts == nil {
		return "", 0, false
	}
	line, err := strconv.Atoi(parts[2])
	return parts[1], line, err == nil
}

// isOurs reports whether a file of this name belongs to the archive.
func isOurs(name string) bool {
	return strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix)
}
