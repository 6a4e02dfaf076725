package audit

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Query selects entries. Fields that are set must all match.
type Query struct {
	Namespace string     // required
	Own       bool       // only entries of the namespace; otherwise also those of the cluster
	Since     store.Time // not before
	Until     store.Time // before; 0: to the newest
	Actor     string
	Action    string // a word, or all of a kind: "queue.*"
	Target    task.Target
	Queue     string
}

// Place is the position of an entry in the list of all shards, newest first: by time, then by shard, then by number.
type Place struct {
	At    store.Time
	Shard uint32
	Seq   uint64
}

// After reports whether a place comes later in the list than another.
func (p Place) After(o Place) bool {
	switch {
	case p.At != o.At:
		return p.At < o.At
	case p.Shard != o.Shard:
		return p.Shard > o.Shard
	}
	return p.Seq < o.Seq
}

const (
	// maxRead and maxPageBytes bound what is read of a chain, and returned, for one page of a shard.
	maxRead      = 10_000
	maxPageBytes = 1 << 20
)

// Page is a part of a shard's entries, newest first. It may be empty although more follow.
type Page struct {
	Entries []Entry
	// Read is the place of the last entry that was read, if more follow; otherwise zero.
	Read Place
}

// Read returns up to limit entries of a shard after a place; nil: from the newest.
func Read(from store.Reader, shard uint32, q Query, after *Place, limit int) (Page, error) {
	return readUpTo(maxRead, from, shard, q, after, limit)
}

// readUpTo is like Read, but reads at most maxEntries entries of each chain.
func readUpTo(maxEntries int, from store.Reader, shard uint32, q Query, after *Place, limit int) (Page, error) {
	own, err := readChainUpTo(maxEntries, from, shard, q.Namespace, q, after, limit)
	if err != nil || q.Own || q.Namespace == "" {
		return own, err
	}
	cluster, err := readChainUpTo(maxEntries, from, shard, "", q, after, limit)
	return joined(shard, own, cluster, limit), err
}

// joined joins the pages of two chains of a shard, which were read after the same place. It ends where the shorter one does.
func joined(shard uint32, a, b Page, limit int) (p Page) {
	p.Read = a.Read
	if b.Read != (Place{}) && (p.Read == (Place{}) || p.Read.After(b.Read)) {
		p.Read = b.Read
	}
	p.Entries = append(a.Entries, b.Entries...)
	slices.SortFunc(p.Entries, func(a, b Entry) int { return cmp.Compare(b.Seq, a.Seq) })
	n, bytes := 0, 0
	for n < len(p.Entries) && n < limit && bytes < maxPageBytes {
		e := &p.Entries[n]
		if p.Read != (Place{}) && (Place{e.At, shard, e.Seq}).After(p.Read) {
			break
		}
		n, bytes = n+1, bytes+e.bytes()
	}
	if n < len(p.Entries) && n > 0 {
		e := &p.Entries[n-1]
		if last := (Place{e.At, shard, e.Seq}); n == limit || bytes >= maxPageBytes || p.Read == (Place{}) {
			p.Read = last
		}
	}
	p.Entries = p.Entries[:n]
	return p
}

func readChainUpTo(maxEntries int, from store.Reader, shard uint32, ns string, q Query, after *Place, limit int) (p Page, err error) {
	c, err := readChain(from, ns)
	if err != nil || c.Oldest == 0 {
		return p, err
	}
	hi, err := c.end(from, shard, q.Until, after)
	if err != nil {
		return p, err
	}
	read, bytes := 0, 0
	from.ScanBack(entryKey(ns, c.Oldest), entryKey(ns, hi), func(k, v []byte) bool {
		if read == maxEntries || len(p.Entries) == limit || bytes >= maxPageBytes {
			return false
		}
		var e Entry
		if e, err = decodeEntry(seqOf(k), v); err != nil {
			return false
		}
		p.Read = Place{e.At, shard, e.Seq}
		if e.At < q.Since {
			p.Read = Place{}
			return false
		}
		read++
		if q.matches(&e) {
			p.Entries = append(p.Entries, e)
			bytes += e.bytes()
		}
		if e.Seq == c.Oldest {
			p.Read = Place{}
		}
		return true
	})
	return p, err
}

// end returns the number after the newest entry allowed by until and after. Entries are in the order of time, so it is found by binary
// search over their numbers, which have gaps.
func (c *chain) end(from store.Reader, shard uint32, until store.Time, after *Place) (end uint64, err error) {
	if until == 0 && after == nil {
		return c.Newest + 1, nil
	}
	n := sort.Search(int(c.Newest+1-c.Oldest), func(i int) bool { // #nosec G115 -- as many entries as were ever written
		e, bad := firstEntry(from, c.ns, c.Oldest+uint64(i), c.Newest+1) // #nosec G115 -- not negative
		if bad != nil {
			err = bad
			return true
		}
		return until != 0 && e.At >= until || after != nil && !(Place{e.At, shard, e.Seq}).After(*after)
	})
	return c.Oldest + uint64(n), err // #nosec G115 -- not negative
}

func (q *Query) matches(e *Entry) bool {
	if e.Namespace != q.Namespace && (e.Namespace != "" || q.Own) {
		return false
	}
	if q.Actor != "" && e.By.Name != q.Actor || q.Queue != "" && e.Queue != q.Queue {
		return false
	}
	if q.Target.Kind != "" && e.Target.Kind != q.Target.Kind || q.Target.Name != "" && e.Target.Name != q.Target.Name {
		return false
	}
	if kind, all := strings.CutSuffix(q.Action, "*"); all {
		return strings.HasPrefix(string(e.Action), kind)
	}
	return q.Action == "" || q.Action == string(e.Action)
}

// Record is an entry with its shard.
type Record struct {
	Entry
	Shard uint32
}

// Place returns the position of the record in the list of all shards.
func (r *Record) Place() Place { return Place{r.At, r.Shard, r.Seq} }

// List is a part of the entries of all shards, newest first. It may be empty although more follow.
type List struct {
	Records []Record
	More    *Place // the place to continue after; nil: there are no more
}

// Merge merges the pages that several shards have read after the same place. The list ends where the shortest page does. It has at
// most limit entries of about the given number of bytes, but at least one if there is any.
func Merge(pages map[uint32]Page, limit, bytes int) (l List) {
	for shard, p := range pages {
		for _, e := range p.Entries {
			l.Records = append(l.Records, Record{e, shard})
		}
		if stop := p.Read; stop != (Place{}) && (l.More == nil || l.More.After(stop)) {
			l.More = &stop
		}
	}
	slices.SortFunc(l.Records, func(a, b Record) int {
		if b.Place().After(a.Place()) {
			return -1
		}
		return 1
	})
	for i := range l.Records {
		r := &l.Records[i]
		if l.More != nil && r.Place().After(*l.More) {
			l.Records = l.Records[:i]
			break
		}
		if i > 0 && (i == limit || bytes <= 0) {
			last := l.Records[i-1].Place()
			l.Records, l.More = l.Records[:i], &last
			break
		}
		bytes -= r.bytes()
	}
	return l
}

// bytes returns roughly how much an entry takes up.
func (e *Entry) bytes() int { return len(e.Before) + len(e.After) + len(e.By.Reason) + recordBytes }

// recordBytes is the approximate size of an entry without its contents.
const recordBytes = 512
