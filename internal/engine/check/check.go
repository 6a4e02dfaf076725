package check

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/zonemap"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Namespace checks promise 9 for the rows of a namespace: it rebuilds every index, counter, lane and deadline, and the
// list of dead letters to archive, from the execution states and compares them with what is stored. It returns the
// differences, at most 100.
func Namespace(from store.Reader, ns string, policies []engine.Policy) []string {
	c := &checker{rows: from, ns: ns, tasks: map[task.ID]*schema.Exec{}, want: map[string][]byte{}, counts: map[string]*schema.Counts{},
		lanes: map[string]*laneCheck{}, stale: map[string]schema.LaneRow{}, swept: map[string]bool{},
		counted: map[string]map[task.ID]bool{}, uniques: map[string]schema.UniqueRow{}, orders: map[keyName][]task.ID{},
		zones: zonemap.Read(from, ns), shared: map[sharedDeadline]bool{}}
	c.readTasks()
	for i := range policies {
		if check := policies[i].Check; check != nil {
			check(c)
		}
	}
	c.findApart()
	c.expectUnique()
	c.expectOrder()
	c.checkFirsts()
	c.checkForgotten()
	c.checkKeys()
	c.compareLanes()
	c.compareTables()
	c.compareCounts()
	c.checkShare()
	c.checkParts()
	return c.findings
}

// checker checks the rows of a namespace.
type checker struct {
	ns    string
	rows  store.Reader
	tasks map[task.ID]*schema.Exec

	want     map[string][]byte       // index rows that must exist
	shared   map[sharedDeadline]bool // deadlines that a shared row must list
	counts   map[string]*schema.Counts
	lanes    map[string]*laneCheck
	stale    map[string]schema.LaneRow   // lanes with stale rows, by their keys without the table
	swept    map[string]bool             // queues with buckets or closed breakers
	counted  map[string]map[task.ID]bool // claimed tasks of each key, by the key of the row that may list them
	uniques  map[string]schema.UniqueRow
	orders   map[keyName][]task.ID // tasks with a place in the order of their key
	zones    *zonemap.Map
	findings []string
}

// sharedDeadline is a deadline of a task, or of a key, in a row that several share. Such a row may also list some whose
// deadline has changed.
type sharedDeadline struct {
	at   store.Time
	kind schema.DeadlineKind
	name string // the task's id, or the rest of the key's row key after the table
}

func (d sharedDeadline) compare(o sharedDeadline) int {
	return cmp.Or(cmp.Compare(d.at, o.at), cmp.Compare(d.kind, o.kind), cmp.Compare(d.name, o.name))
}

// expectShared records that a shared row must list a deadline.
func (c *checker) expectShared(at store.Time, kind schema.DeadlineKind, name []byte) {
	c.shared[sharedDeadline{at, kind, string(name)}] = true
}

// findShared reports deadlines that no row lists.
func (c *checker) findShared() {
	for _, d := range slices.SortedFunc(maps.Keys(c.shared), sharedDeadline.compare) {
		if d.kind.OfKeys() {
			c.Find("key %q: no row names its deadline at %d", d.name, d.at)
		} else {
			c.Find("task %s: no row names its deadline at %d", task.ID([]byte(d.name)), d.at)
		}
	}
}

func (c *checker) Namespace() string { return c.ns }

func (c *checker) Tasks() map[task.ID]*schema.Exec { return c.tasks }

func (c *checker) Find(format string, args ...any) {
	if len(c.findings) < 100 {
		c.findings = append(c.findings, fmt.Sprintf(format, args...))
	}
}

func (c *checker) Scan(tab byte, fn func(k, v []byte)) {
	lo, hi := schema.TableBounds(c.ns, tab)
	c.rows.Scan(lo, hi, func(k, v []byte) bool { fn(k, v); return true })
}

func (c *checker) ExpectRow(key, value []byte) { c.want[string(key)] = value }

func (c *checker) readTasks() {
	c.Scan(schema.TableExec, func(k, v []byte) {
		x, err := schema.DecodeExec(v)
		if err != nil {
			c.Find("state of %s: %v", schema.IDAt(k), err)
			return
		}
		c.tasks[schema.IDAt(k)] = x
		c.expect(schema.IDAt(k), x)
	})
	envelopes := 0
	c.Scan(schema.TableEnvelope, func(k, v []byte) {
		envelopes++
		x := c.tasks[schema.IDAt(k)]
		e, err := schema.DecodeEnvelope(c.ns, schema.IDAt(k), v)
		switch {
		case err != nil:
			c.Find("envelope of %s: %v", schema.IDAt(k), err)
		case x == nil:
			c.Find("task %s has an envelope but no state", schema.IDAt(k))
		case e.Queue != x.Queue || e.Type != x.Type || e.Key != x.Key:
			c.Find("task %s: envelope and state name different lanes", schema.IDAt(k))
		}
	})
	if envelopes != len(c.tasks) {
		c.Find("%d envelopes for %d states", envelopes, len(c.tasks))
	}
}

// compareTables reports index rows that are missing, superfluous or different.
func (c *checker) compareTables() {
	check := func(k, v []byte) {
		want, ok := c.want[string(k)]
		switch {
		case !ok && k[0] == schema.TableReady && c.isStale(k):
		case !ok:
			c.Find("row %q refers to nothing", k)
		case !bytes.Equal(want, v):
			c.Find("row %q is %x, expected %x", k, v, want)
		}
		delete(c.want, string(k))
	}
	c.checkUses()
	c.checkBreakers()
	c.Scan(schema.TableClaimKey, func(k, v []byte) {
		row, err := schema.DecodeClaimKey(v)
		if err != nil {
			c.Find("claim key %q: %v", k, err)
		} else if _, ok := c.rows.Get(schema.DeadlineKey(row.Until, schema.OnClaimKey, c.ns, k[len(c.ns)+2:])); !ok {
			c.Find("claim key %q is never forgotten", k)
		}
	})
	c.Scan(schema.TableCounts, func(k, v []byte) {
		n, err := schema.DecodeCounts(v)
		queue := string(k[len(c.ns)+2 : len(k)-1])
		if err == nil && n.Sweep != 0 {
			c.ExpectRow(schema.DeadlineKey(n.Sweep, schema.OnSweep, c.ns, []byte(queue)), nil)
		} else if c.swept[queue] {
			c.Find("the buckets and breakers of queue %q are never forgotten", queue)
		}
	})
	for _, tab := range []byte{schema.TableListed, schema.TableReady, schema.TableWaiting, schema.TableDead, schema.TableArchive,
		schema.TableUnique, schema.TableOrder} {
		c.Scan(tab, check)
	}
	for line, tab := range schema.Timelines {
		c.rows.Scan([]byte{tab}, []byte{tab + 1}, func(k, v []byte) bool {
			d, ok := schema.ParseDeadline(k, v)
			switch {
			case !ok:
				c.Find("deadline %x can't be read", k)
			case schema.TimelineOf(d.Kind) != line:
				c.Find("deadline %x is in the wrong table", k)
			case d.Namespace != c.ns:
			case d.Kind.Shared():
				for _, id := range d.Shared {
					delete(c.shared, sharedDeadline{d.At, d.Kind, string(id[:])})
				}
			case d.Kind.OfKeys():
				for _, key := range d.Keys {
					delete(c.shared, sharedDeadline{d.At, d.Kind, string(key)})
				}
			case d.Kind != schema.OnClaimKey:
				check(k, v)
			}
			return true
		})
	}
	for _, k := range slices.Sorted(maps.Keys(c.want)) {
		c.Find("row %q is missing", k)
	}
	c.findShared()
}

// findApart reports the rows that were set apart.
func (c *checker) findApart() {
	c.Scan(schema.TableApart, func(k, v []byte) {
		a, err := schema.DecodeApart(v)
		if err != nil {
			c.Find("row %q, which was set apart: %v", k, err)
			return
		}
		c.Find("row %q of table %q was set apart at %s: %s", a.Key, a.Key[:min(len(a.Key), 1)], a.At.Time().Format(time.RFC3339), a.Reason)
	})
}
