package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Hash is the hash of an entry.
type Hash [sha256.Size]byte

// Entry records one action.
type Entry struct {
	Seq       uint64 // its number in its shard, from 1; assigned by Append
	At        store.Time
	By        task.Author
	Action    task.Action
	Namespace string // "": of the cluster
	Target    task.Target
	Queue     string // the target's, if it has one
	Before    []byte // the values that changed, as they were: a JSON object by dotted names; nil: there was nothing
	After     []byte // the same, after the change
	Tasks     int64  // changed by a call on many
	// Call identifies a call on many tasks, which takes several rounds: later rounds add to the same entry.
	Call uint64
	Prev Hash // of the entry before
	Hash Hash // of this one
}

const (
	// DefaultKeep is how long entries are kept unless the cluster configures a time between MinKeep and MaxKeep.
	DefaultKeep = 90 * 24 * time.Hour
	MinKeep     = 24 * time.Hour
	MaxKeep     = 10 * 365 * 24 * time.Hour
	// recheckAfter bounds the time until the next check of a log with entries, whatever their age: the time to keep them may change.
	recheckAfter = 24 * time.Hour
	// maxEntries and maxBytes bound what a shard keeps: beyond them, the oldest entries are removed early.
	maxEntries = 1_000_000
	maxBytes   = 256 << 20
	// appendTrim and expireTrim bound the entries that one round removes.
	appendTrim = 16
	expireTrim = 1000
)

// bounds limit what is kept.
type bounds struct {
	keep    time.Duration
	entries uint64
	bytes   uint64
}

// Log is the audit log of one shard, as a round sees it.
type Log struct {
	tx *store.Tx
	bounds
	head head
}

// Open opens the log in the state of tx's shard. Entries are kept for the time keep; 0: DefaultKeep.
func Open(tx *store.Tx, keep time.Duration) (*Log, error) {
	if keep == 0 {
		keep = DefaultKeep
	}
	h, err := readHead(tx)
	return &Log{tx: tx, bounds: bounds{keep, maxEntries, maxBytes}, head: h}, err
}

// CheckKeep refuses a time to keep entries that is out of bounds.
func CheckKeep(field string, keep time.Duration) error {
	if keep < MinKeep || keep > MaxKeep {
		return task.Invalid(field, "%v is not between %v (1 day) and %v (10 years)", keep, MinKeep, MaxKeep)
	}
	return nil
}

// Append adds an entry, and removes some of the oldest if there are too many. If due is not 0, Expire must be called at that
// time, and no call was planned before.
func (l *Log) Append(e Entry) (due store.Time) {
	if e.Call != 0 && l.amend(&e) {
		return 0
	}
	e.Seq, e.At, e.Prev = l.head.Newest+1, l.tx.Now(), l.head.Hash
	if l.head.Newest == 0 {
		l.head.Oldest = 1
	}
	l.head.Newest = e.Seq
	l.write(&e, 0)
	l.trim(appendTrim, 0)
	if l.head.Due == 0 {
		due = e.At.Add(min(l.keep, recheckAfter))
		l.head.Due = due
	}
	l.writeHead()
	return due
}

// amend adds another round of a call on many tasks to the call's entry, if that is the newest. No entry includes the hash of the
// newest one yet, so the chain stays intact.
func (l *Log) amend(e *Entry) bool {
	last, size, err := readEntry(l.tx, l.head.Newest)
	if err != nil || last.Call != e.Call || last.By != e.By || last.Action != e.Action || last.Target != e.Target {
		return false
	}
	last.Tasks += e.Tasks
	l.write(&last, size)
	l.writeHead()
	return true
}

// write writes an entry, replacing one of size bytes.
func (l *Log) write(e *Entry, size int) {
	row := e.encode()
	l.head.Bytes += uint64(len(row)) - uint64(size)
	l.head.Hash = hashOf(e.Seq, row)
	l.tx.Set(entryKey(e.Seq), row)
}

func (l *Log) writeHead() { l.tx.Set(headKey, l.head.encode()) }

// trim removes up to most of the oldest entries if there are too many, or if they are not from after the time before. The first
// remaining entry holds the hash of the last one removed, which the head keeps too. A damaged entry is removed as well: Check
// reported it while it existed, and a shard must not fail because of it.
func (l *Log) trim(most int, before store.Time) {
	for range most {
		if l.head.count() == 0 {
			return
		}
		e, size, err := readEntry(l.tx, l.head.Oldest)
		if err == nil && e.At > before && l.head.count() <= l.entries && l.head.Bytes <= l.bytes {
			return
		}
		l.tx.Delete(entryKey(l.head.Oldest))
		l.head.Oldest, l.head.Before = l.head.Oldest+1, e.Hash
		l.head.Bytes -= min(uint64(size), l.head.Bytes) // #nosec G115 -- not negative
	}
}

// Expire removes entries that were kept long enough, up to a bound, and returns when it must be called again, in a day at the latest; 0: there
// are no entries left. It must be called at the time that it or Append last returned.
func (l *Log) Expire() (due store.Time) {
	before := l.head
	l.trim(expireTrim, l.tx.Now().Add(-l.keep))
	l.head.Due = 0
	if l.head.count() > 0 {
		oldest, _, _ := readEntry(l.tx, l.head.Oldest) // an unreadable one is due immediately
		l.head.Due = min(max(oldest.At.Add(l.keep), l.tx.Now()+1), l.tx.Now().Add(recheckAfter))
	}
	if l.head != before {
		l.writeHead()
	}
	return l.head.Due
}

// Later postpones Expire to a later time.
func (l *Log) Later(due store.Time) {
	l.head.Due = due
	l.writeHead()
}

// Due returns when Expire must be called; 0: never.
func Due(from store.Reader) (store.Time, error) {
	h, err := readHead(from)
	return h.Due, err
}

func hashOf(seq uint64, row []byte) Hash {
	d := sha256.New()
	_ = binary.Write(d, binary.BigEndian, seq)
	_, _ = d.Write(row)
	return Hash(d.Sum(nil))
}

// Check verifies the chain and reports at most ten problems.
func Check(from store.Reader) (problems []string) {
	find := func(format string, args ...any) {
		if len(problems) < 10 {
			problems = append(problems, "audit: "+fmt.Sprintf(format, args...))
		}
	}
	h, err := readHead(from)
	if err != nil {
		return []string{err.Error()}
	}
	next, prev, bytes, last := h.Oldest, h.Before, uint64(0), store.Time(0)
	from.Scan(entryKey(0), headKey, func(k, v []byte) bool {
		seq := seqOf(k)
		e, err := decodeEntry(seq, v)
		switch {
		case err != nil:
			find("%v", err)
		case seq != next:
			find("entries %d to %d are missing", next, seq-1)
		case e.Prev != prev:
			find("entry %d does not follow the one before it: that one, or this, was changed", seq)
		case e.At < last:
			find("entry %d is older than the one before it", seq)
		}
		next, prev, last = seq+1, hashOf(seq, v), e.At
		bytes += uint64(len(v))
		return true
	})
	switch {
	case h.Newest+1 != next && h.count() > 0:
		find("the newest entry is %d, should be %d", next-1, h.Newest)
	case h.Newest > 0 && prev != h.Hash:
		find("entry %d is not the one that was written last", h.Newest)
	case bytes != h.Bytes:
		find("entries of %d bytes are counted as %d", bytes, h.Bytes)
	case h.count() > 0 && h.Due == 0:
		find("entries are never removed")
	}
	return problems
}
