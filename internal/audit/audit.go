package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Hash is the hash of an entry.
type Hash [sha256.Size]byte

// Entry records one action.
type Entry struct {
	Seq       uint64 // its number in its shard, from 1; assigned by Append. Those of a namespace have gaps
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
	Prev Hash // of the namespace's entry before
	Hash Hash // of this one
}

const (
	// DefaultKeep is how long entries are kept unless the cluster configures a time between MinKeep and MaxKeep.
	DefaultKeep = 90 * 24 * time.Hour
	MinKeep     = 24 * time.Hour
	MaxKeep     = 10 * 365 * 24 * time.Hour
	// recheckAfter bounds the time until the next check of a log with entries, whatever their age: the time to keep them may change.
	recheckAfter = 24 * time.Hour
	// maxBytes bounds what a shard keeps: beyond it, the oldest entries of the namespace that has most are removed early. The cluster's own
	// entries, of no namespace, have reserved bytes that count for nothing.
	maxBytes = 256 << 20
	reserved = maxBytes / 4
	// appendTrim and expireTrim bound the entries that one round removes.
	appendTrim = 16
	expireTrim = 1000
)

// bounds limit what is kept.
type bounds struct {
	keep            time.Duration
	bytes, reserved uint64
}

// Log is the audit log of one shard, as a round sees it. Each namespace has a chain of its own in it, and so has the cluster.
type Log struct {
	tx *store.Tx
	bounds
	sum sum
}

// Open opens the log in the state of tx's shard. Entries are kept for the time keep; 0: DefaultKeep.
func Open(tx *store.Tx, keep time.Duration) (*Log, error) {
	if keep == 0 {
		keep = DefaultKeep
	}
	all, err := readSum(tx)
	return &Log{tx: tx, bounds: bounds{keep, maxBytes, reserved}, sum: all}, err
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
func (l *Log) Append(e Entry) (due store.Time, err error) {
	c, err := readChain(l.tx, e.Namespace)
	if err != nil {
		return 0, err
	}
	if e.Call != 0 && l.amend(c, &e) {
		return 0, nil
	}
	e.Seq, e.At, e.Prev = l.sum.Newest+1, l.tx.Now(), c.Hash
	l.sum.Newest, c.Newest = e.Seq, e.Seq
	if c.Oldest == 0 {
		c.Oldest, c.Since = e.Seq, e.At
	}
	l.write(c, &e, 0)
	if l.sum.Bytes > l.bytes {
		l.evict()
	}
	if l.sum.Due == 0 {
		due = e.At.Add(min(l.keep, recheckAfter))
		l.sum.Due = due
	}
	l.writeSum()
	return due, nil
}

// amend adds another round of a call on many tasks to the call's entry, if that is the newest of its namespace. No entry includes the hash
// of that one yet, so the chain stays intact.
func (l *Log) amend(c *chain, e *Entry) bool {
	last, size, err := readEntry(l.tx, c.ns, c.Newest)
	if err != nil || last.Call != e.Call || last.By != e.By || last.Action != e.Action || last.Target != e.Target {
		return false
	}
	last.Tasks += e.Tasks
	if l.sum.Exported >= last.Seq {
		l.sum.Exported = last.Seq - 1
	}
	l.write(c, &last, size)
	l.writeSum()
	return true
}

// write writes the newest entry of a chain, replacing one of size bytes.
func (l *Log) write(c *chain, e *Entry, size int) {
	row := e.encode()
	more := uint64(len(row)) - uint64(size)
	c.Bytes, l.sum.Bytes = c.Bytes+more, l.sum.Bytes+more
	c.Hash = hashOf(e.Seq, row)
	l.tx.Set(entryKey(c.ns, e.Seq), row)
	l.tx.Set(chainKey(c.ns), encode(c))
}

func (l *Log) writeSum() { l.tx.Set(sumKey, encode(&l.sum)) }

// evict removes some of the oldest entries, each of the namespace that has most then. So none loses what is within its equal share because
// of others.
func (l *Log) evict() {
	chains, _ := readChains(l.tx)    // those that can't be read stay
	enough := l.bytes - l.bytes/1024 // a little less than allowed, so that the next entries do not look for them again
	for n := 0; n < appendTrim && l.sum.Bytes > enough && len(chains) > 0; n++ {
		most := slices.MaxFunc(chains, func(a, b *chain) int { return cmp.Compare(l.counted(a), l.counted(b)) })
		l.sum.Evicted += uint64(l.trim(most, 1, func(*Entry) bool { return false })) // #nosec G115 -- not negative
	}
}

// counted returns how many bytes of a chain count when it is decided whose entries are removed early.
func (l *Log) counted(c *chain) uint64 {
	if c.ns == "" {
		return c.Bytes - min(c.Bytes, l.reserved)
	}
	return c.Bytes
}

// trim removes up to limit of the oldest entries of a chain, until one may stay, and returns how many. The first remaining entry holds the
// hash of the last one removed, which the chain's row keeps too. A damaged entry is removed as well: Check reported it while it existed,
// and a shard must not fail because of it.
func (l *Log) trim(c *chain, limit int, stays func(*Entry) bool) (n int) {
	end := l.sum.Newest + 1
	for ; n < limit && c.Oldest != 0; n++ {
		e, size, err := readEntry(l.tx, c.ns, c.Oldest)
		if err == nil && stays(&e) {
			break
		}
		l.tx.Delete(entryKey(c.ns, c.Oldest))
		less := min(uint64(size), c.Bytes) // #nosec G115 -- not negative
		c.Before, c.Bytes, l.sum.Bytes = e.Hash, c.Bytes-less, l.sum.Bytes-min(less, l.sum.Bytes)
		next, _ := firstEntry(l.tx, c.ns, c.Oldest+1, end)
		if c.Oldest, c.Since = next.Seq, next.At; c.Oldest == 0 {
			l.sum.Bytes -= min(c.Bytes, l.sum.Bytes) // those of entries that were missing
			c.Bytes = 0
		}
	}
	if n > 0 {
		l.tx.Set(chainKey(c.ns), encode(c))
	}
	return n
}

// Expire removes entries that were kept long enough, up to a bound, and returns when it must be called again, in a day
// at the latest; 0: there are no entries left. It must be called at the time that it or Append last returned.
func (l *Log) Expire() (due store.Time) {
	before, left, now := l.sum, expireTrim, l.tx.Now()
	chains, _ := readChains(l.tx)
	for _, c := range chains {
		if c.Oldest != 0 && c.Since.Add(l.keep) <= now {
			left -= l.trim(c, left, func(e *Entry) bool { return e.At.Add(l.keep) > now || l.held(e.Seq, e.At, now) })
		}
		if c.Oldest == 0 { // perhaps its namespace is removed: nobody else would remove the row
			l.tx.Delete(chainKey(c.ns))
			continue
		}
		next := min(max(c.Since.Add(l.keep), now+1), now.Add(recheckAfter))
		if l.held(c.Oldest, c.Since, now) {
			next = max(next, now.Add(holdCheck))
		}
		if due == 0 || next < due {
			due = next
		}
	}
	if l.sum.Due = due; l.sum != before {
		l.writeSum()
	}
	return due
}

// Later postpones Expire to a later time.
func (l *Log) Later(due store.Time) {
	l.sum.Due = due
	l.writeSum()
}

// Due returns when Expire must be called; 0: never.
func Due(from store.Reader) (store.Time, error) {
	all, err := readSum(from)
	return all.Due, err
}

func hashOf(seq uint64, row []byte) Hash {
	d := sha256.New()
	_ = binary.Write(d, binary.BigEndian, seq)
	_, _ = d.Write(row)
	return Hash(d.Sum(nil))
}

// Check verifies the chains and reports at most ten problems.
func Check(from store.Reader) (problems []string) {
	find := func(format string, args ...any) {
		if len(problems) < 10 {
			problems = append(problems, "audit: "+fmt.Sprintf(format, args...))
		}
	}
	all, err := readSum(from)
	if err != nil {
		return []string{err.Error()}
	}
	chains, err := readChains(from)
	if err != nil {
		find("%v", err)
	}
	of, bytes := map[string]*chain{}, uint64(0)
	for _, c := range chains {
		of[c.ns] = c
		bytes += checkChain(from, c, find)
		if c.Newest > all.Newest {
			find("entry %d is newer than the newest, %d", c.Newest, all.Newest)
		}
	}
	from.Scan(entryKey("", 0), entriesEnd, func(k, _ []byte) bool {
		if ns := namespaceOf(k); of[ns] == nil {
			find("entry %d of namespace %q belongs to no chain", seqOf(k), ns)
		}
		return len(problems) < 10
	})
	switch {
	case bytes != all.Bytes:
		find("entries of %d bytes are counted as %d", bytes, all.Bytes)
	case bytes > 0 && all.Due == 0:
		find("entries are never removed")
	case all.Exported > all.Newest:
		find("entry %d was exported, the newest is %d", all.Exported, all.Newest)
	}
	return problems
}

// checkChain verifies a chain, and returns the size of its entries.
func checkChain(from store.Reader, c *chain, find func(format string, args ...any)) (bytes uint64) {
	prev, first, newest, last := c.Before, true, uint64(0), store.Time(0)
	from.Scan(entryKey(c.ns, 0), entryKey(c.ns, math.MaxUint64), func(k, v []byte) bool {
		seq := seqOf(k)
		e, err := decodeEntry(seq, v)
		switch {
		case err != nil:
			find("%v", err)
		case first && (seq != c.Oldest || e.At != c.Since):
			find("the oldest entry is %d, should be %d", seq, c.Oldest)
		case e.Prev != prev:
			find("entry %d does not follow the one before it: that one, or this, was changed, or one between them is missing", seq)
		case e.At < last:
			find("entry %d is older than the one before it", seq)
		}
		first, newest, prev, last = false, seq, hashOf(seq, v), e.At
		bytes += uint64(len(v))
		return true
	})
	switch {
	case c.Oldest != 0 && newest != c.Newest:
		find("the newest entry is %d, should be %d", newest, c.Newest)
	case c.Newest > 0 && prev != c.Hash:
		find("entry %d is not the one that was written last", c.Newest)
	case bytes != c.Bytes:
		find("entries of %d bytes are counted as %d", bytes, c.Bytes)
	}
	return bytes
}
