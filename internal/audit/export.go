package audit

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/store"
)

// A log remembers the last entry up to which all were exported, so that every leader of the shard goes on from there. An
// entry may be exported twice.

// holdFor is how long entries that wait to be exported are kept beyond their retention, once some of the log were.
const holdFor = 7 * 24 * time.Hour

// holdCheck is how often entries that are held are looked at again.
const holdCheck = time.Hour

// batchBytes bounds the stored size of a batch, unless its first entry is larger. A collector takes up to 4 MiB over gRPC.
const batchBytes = 1 << 20

// Batch is a part of a log, oldest first.
type Batch struct {
	Entries []Entry
	from    uint64 // up to this number, all entries had been exported
	upTo    uint64 // with these, all entries up to this number are exported
}

// IsEmpty reports whether there is nothing to export, nor to note.
func (b Batch) IsEmpty() bool { return b.upTo == 0 }

// Unexported returns the oldest entries that wait to be exported, up to limit and batchBytes. Damaged ones are left
// out, which Check reports.
func Unexported(from store.Reader, limit int) (b Batch, err error) {
	all, err := readSum(from)
	if err != nil || all.Exported >= all.Newest {
		return b, err
	}
	chains, err := readChains(from)
	if err != nil {
		return b, err
	}
	b.from, b.upTo = all.Exported, all.Newest
	sizes := map[uint64]int{} // by number
	for _, c := range chains {
		if c.Newest <= all.Exported {
			continue
		}
		n, bytes := 0, 0
		from.Scan(entryKey(c.ns, all.Exported+1), entryKey(c.ns, math.MaxUint64), func(k, v []byte) bool {
			seq := seqOf(k)
			if n > limit || n > 1 && bytes > batchBytes || seq > b.upTo { // one more than fits shows that there are more
				return false
			}
			if e, bad := decodeEntry(seq, v); bad == nil {
				b.Entries, sizes[seq] = append(b.Entries, e), len(v)
				n, bytes = n+1, bytes+len(v)
			}
			return true
		})
		slices.SortFunc(b.Entries, func(x, y Entry) int { return cmp.Compare(x.Seq, y.Seq) })
		bytes = 0
		for i := range b.Entries {
			if bytes += sizes[b.Entries[i].Seq]; i > 0 && (i == limit || bytes > batchBytes) {
				b.Entries, b.upTo = b.Entries[:i], b.Entries[i-1].Seq
				break
			}
		}
	}
	return b, nil
}

// Exported notes that a batch was exported, up to an entry that was amended meanwhile: that one is exported again. If an
// entry before the batch was amended, it notes nothing: the batch is exported again after that entry.
func (l *Log) Exported(b Batch) {
	if l.sum.Exported < b.from {
		return
	}
	upTo := b.upTo
	for i := range b.Entries {
		e := &b.Entries[i]
		if now, _, err := readEntry(l.tx, e.Namespace, e.Seq); err == nil && now.Hash != e.Hash {
			upTo = e.Seq - 1
			break
		}
	}
	if upTo > l.sum.Exported {
		l.sum.Exported = upTo
		l.writeSum()
	}
}

// held reports whether an entry must stay although it was kept for long enough.
func (l *Log) held(seq uint64, at, now store.Time) bool {
	return l.sum.Exported > 0 && seq > l.sum.Exported && at.Add(l.keep+holdFor) > now
}

// Counts are numbers of entries.
type Counts struct {
	Evicted    uint64 // that were ever removed early
	Unexported uint64 // that wait to be exported, if any ever were
}

// CountsOf returns the counts of a log.
func CountsOf(from store.Reader) (Counts, error) {
	all, err := readSum(from)
	n := Counts{Evicted: all.Evicted}
	if all.Exported > 0 {
		n.Unexported = all.Newest - min(all.Exported, all.Newest)
	}
	return n, err
}
