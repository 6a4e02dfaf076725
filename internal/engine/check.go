package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/zonemap"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Check proves promise 9 on the rows of a namespace: it rebuilds every index, counter, lane and deadline, and the list of
// dead letters to archive, from the execution states and compares them with what is stored. It returns what does not
// agree, at most 100 findings.
func Check(from store.Reader, ns string, policies []Policy) []string {
	c := &Checker{Rows: from, Namespace: ns, want: map[string][]byte{}, counts: map[string]*schema.Counts{}, lanes: map[string]*laneCheck{}, swept: map[string]bool{},
		counted: map[string]map[task.ID]bool{}, uniques: map[string]schema.UniqueRow{}, orders: map[keyName][]task.ID{}, zones: zonemap.Read(from, ns)}
	c.readTasks()
	for i := range policies {
		if check := policies[i].Check; check != nil {
			check(c)
		}
	}
	c.expectUnique()
	c.expectOrder()
	c.checkFirsts()
	c.compareLanes()
	c.compareTables()
	c.compareCounts()
	c.checkShare()
	c.checkKeys()
	return c.findings
}

// Checker goes over the rows of a namespace.
type Checker struct {
	Namespace string
	Rows      store.Reader
	Tasks     map[task.ID]*schema.Exec

	want     map[string][]byte // index rows that must be there
	counts   map[string]*schema.Counts
	lanes    map[string]*laneCheck
	swept    map[string]bool             // queues with buckets, or breakers that are closed
	counted  map[string]map[task.ID]bool // claimed tasks of each key, by the row that may name them
	uniques  map[string]schema.UniqueRow
	orders   map[keyName][]task.ID // tasks with a place in the order of their key
	zones    *zonemap.Map
	findings []string
}

type laneCheck struct {
	count int64
	first uint64
}

func (c *Checker) Find(format string, args ...any) {
	if len(c.findings) < 100 {
		c.findings = append(c.findings, fmt.Sprintf(format, args...))
	}
}

func (c *Checker) Scan(tab byte, fn func(k, v []byte)) {
	lo, hi := schema.TableBounds(c.Namespace, tab)
	c.Rows.Scan(lo, hi, func(k, v []byte) bool { fn(k, v); return true })
}

func (c *Checker) readTasks() {
	c.Tasks = map[task.ID]*schema.Exec{}
	c.Scan(schema.TableExec, func(k, v []byte) {
		x, err := schema.DecodeExec(v)
		if err != nil {
			c.Find("state of %s: %v", schema.IDAt(k), err)
			return
		}
		c.Tasks[schema.IDAt(k)] = x
		c.expect(schema.IDAt(k), x)
	})
	envelopes := 0
	c.Scan(schema.TableEnvelope, func(k, v []byte) {
		envelopes++
		x := c.Tasks[schema.IDAt(k)]
		e, err := schema.DecodeEnvelope(c.Namespace, schema.IDAt(k), v)
		switch {
		case err != nil:
			c.Find("envelope of %s: %v", schema.IDAt(k), err)
		case x == nil:
			c.Find("task %s has an envelope but no state", schema.IDAt(k))
		case e.Queue != x.Queue || e.Type != x.Type || e.Key != x.Key:
			c.Find("task %s: envelope and state name different lanes", schema.IDAt(k))
		}
	})
	if envelopes != len(c.Tasks) {
		c.Find("%d envelopes for %d states", envelopes, len(c.Tasks))
	}
}

// expect notes the rows that must be there because of a task.
func (c *Checker) expect(id task.ID, x *schema.Exec) {
	c.ExpectRow(schema.ListedKey(c.Namespace, x.Queue, id), nil)
	q := c.countsOf(x.Queue)
	if n := q.Of(x.State, x.Priority); n != nil {
		*n++
	}
	if !x.State.Ended() {
		q.Bytes += x.Size
	}
	switch {
	case x.Parked():
		q.Parked++
		if x.Role != schema.RoleNext {
			q.Behind++
		}
		c.ExpectRow(schema.WaitKey(c.Namespace, x.Queue, x.State, x.RunAt, id), nil)
	case x.State == task.Ready:
		c.ExpectRow(schema.ReadyKey(c.Namespace, x.Queue, x.Lane(), x.Seq), schema.EncodeReady(id, x.ReadyAt))
		l := c.laneOf(schema.LaneKey(c.Namespace, schema.TableLane, x.Queue, x.Lane()))
		l.count++
		l.first = min(l.first, x.Seq)
	case x.State == task.Scheduled || x.State == task.Retrying:
		c.ExpectRow(schema.WaitKey(c.Namespace, x.Queue, x.State, x.RunAt, id), nil)
	case x.State == task.Dead || x.State == task.Poisoned:
		c.ExpectRow(schema.DeadKey(c.Namespace, x.Queue, x.State, x.EndedAt, id), x.EncodeDead())
	}
	c.checkPrint(id, x)
	if at, kind := x.Deadline(); c.archives(id, x) {
		c.ExpectRow(schema.ArchiveKey(c.Namespace, x.EndedAt, id), nil)
	} else if kind != 0 {
		c.ExpectRow(schema.DeadlineKey(at, kind, c.Namespace, id[:]), nil)
	}
	if x.AwaitsStart() {
		c.ExpectRow(schema.DeadlineKey(x.ExpiresAt, schema.OnExpiry, c.Namespace, id[:]), nil)
	}
	if x.Claim.Counted {
		at := string(schema.UseKey(c.Namespace, x.Queue, x.Key))
		if c.counted[at] == nil {
			c.counted[at] = map[task.ID]bool{}
		}
		c.counted[at][id] = true
	}
	c.noteUnique(id, x)
	c.noteOrder(id, x)
	c.checkZone(id, x)
	if x.State == task.Claimed && (x.Claim.Nonce == 0 || x.Claim.Until > x.Claim.RunUntil) {
		c.Find("task %s: its claim is without nonce or beyond its bound", id)
	}
	if x.State.Ended() != (x.EndedAt != 0) {
		c.Find("task %s is %s but its end is %d", id, x.State, x.EndedAt)
	}
	if _, ok := c.Rows.Get(schema.IDKey(c.Namespace, schema.TableCheckpoint, id)); ok != x.Checkpointed {
		c.Find("task %s: checkpoint row %t, state says %t", id, ok, x.Checkpointed)
	}
}

// checkZone: the zone of a task tells of its type and of its end.
func (c *Checker) checkZone(id task.ID, x *schema.Exec) {
	if !c.zones.Tells(id, x) {
		c.Find("task %s: its zone does not tell of %s tasks of type %q in queue %q", id, x.State, x.Type, x.Queue)
	}
}

// checkPrint compares the fingerprint that a task was given when it died with that of what it says.
func (c *Checker) checkPrint(id task.ID, x *schema.Exec) {
	if x.Print == 0 {
		return // it lives, or died under a leader that wrote none
	}
	if want := fingerprint.Of(x.Type, fingerprint.Normalise(schema.LastFailure(schema.ReadAttempts(c.Rows, c.Namespace, id)).Message)); x.Print != want {
		c.Find("task %s has the fingerprint %s, that of its last failure is %s", id, fingerprint.Text(x.Print), fingerprint.Text(want))
	}
}

// archives says whether the task is a dead letter that waits for the archive: the row that says so took the place of the
// deadline that ended its retention.
func (c *Checker) archives(id task.ID, x *schema.Exec) bool {
	if x.State != task.Dead && x.State != task.Poisoned {
		return false
	}
	_, ok := c.Rows.Get(schema.ArchiveKey(c.Namespace, x.EndedAt, id))
	return ok
}

func (c *Checker) countsOf(queue string) *schema.Counts {
	if c.counts[queue] == nil {
		c.counts[queue] = &schema.Counts{}
	}
	return c.counts[queue]
}

func (c *Checker) laneOf(key []byte) *laneCheck {
	l := c.lanes[string(key)]
	if l == nil {
		l = &laneCheck{first: 1<<64 - 1}
		c.lanes[string(key)] = l
	}
	return l
}

func (c *Checker) ExpectRow(key, value []byte) { c.want[string(key)] = value }

// compareTables finds index rows that are missing, superfluous or different.
func (c *Checker) compareTables() {
	check := func(k, v []byte) {
		want, ok := c.want[string(k)]
		switch {
		case !ok:
			c.Find("row %q stands for nothing", k)
		case !bytes.Equal(want, v):
			c.Find("row %q is %x, expected %x", k, v, want)
		}
		delete(c.want, string(k))
	}
	c.checkUses()
	c.checkBreakers()
	c.Scan(schema.TableCounts, func(k, v []byte) {
		n, err := schema.DecodeCounts(v)
		queue := string(k[len(c.Namespace)+2 : len(k)-1])
		if err == nil && n.Sweep != 0 {
			c.ExpectRow(schema.DeadlineKey(n.Sweep, schema.OnSweep, c.Namespace, []byte(queue)), nil)
		} else if c.swept[queue] {
			c.Find("the buckets and breakers of queue %q are never forgotten", queue)
		}
	})
	for _, tab := range []byte{schema.TableListed, schema.TableReady, schema.TableWaiting, schema.TableDead, schema.TableArchive, schema.TableUnique, schema.TableOrder} {
		c.Scan(tab, check)
	}
	for line, tab := range schema.Timelines {
		c.Rows.Scan([]byte{tab}, []byte{tab + 1}, func(k, v []byte) bool {
			d, ok := schema.ParseDeadline(k)
			switch {
			case !ok:
				c.Find("deadline %x can't be read", k)
			case schema.TimelineOf(d.Kind) != line:
				c.Find("deadline %x lies in the table of others", k)
			case d.Namespace == c.Namespace && d.Kind != schema.OnKey && d.Kind != schema.OnRequest && d.Kind != schema.OnClaimKey:
				check(k, v)
			}
			return true
		})
	}
	for _, k := range slices.Sorted(maps.Keys(c.want)) {
		c.Find("row %q is missing", k)
	}
}

// checkUses: each claimed task of a key is named by the key's row, or has one of its own, and each such row stands for a claim
// or for a bucket that is not full.
func (c *Checker) checkUses() {
	c.Scan(schema.TableClaimed, func(k, _ []byte) {
		at := string(schema.Table(c.Namespace, schema.TableUse)) + string(k[len(c.Namespace)+2:len(k)-17])
		if !c.counted[at][schema.IDAt(k)] {
			c.Find("row %q stands for nothing", k)
		}
		delete(c.counted[at], schema.IDAt(k))
	})
	c.Scan(schema.TableUse, func(k, v []byte) {
		u, err := limit.DecodeUse(v)
		if err != nil || len(u.Named) > limit.MaxNamed {
			c.Find("use %q: %d tasks named (%v)", k, len(u.Named), err)
			return
		}
		live := 0
		for _, id := range u.Named {
			if c.counted[string(k)][id] {
				live++
				delete(c.counted[string(k)], id)
			}
		}
		if b := u.Bucket; b != nil {
			if b.Due != 0 {
				c.ExpectRow(schema.DeadlineKey(b.Due, schema.OnTokens, c.Namespace, k[len(c.Namespace)+2:]), nil)
			}
			queue, _, _ := strings.Cut(string(k[len(c.Namespace)+2:]), "\x00")
			c.swept[queue] = true
		} else if live == 0 {
			c.Find("row %q stands for nothing", k)
		}
	})
	for at, ids := range c.counted {
		for id := range ids {
			c.Find("task %s is claimed, and %q does not name it", id, at)
		}
	}
}

func (c *Checker) compareLanes() {
	c.Scan(schema.TableLane, func(k, v []byte) {
		row, err := schema.DecodeLane(v)
		l := c.laneOf(k)
		if err != nil || row.Count != l.count || row.First > l.first {
			c.Find("lane %q counts %d from %d, expected %d from %d (%v)", k, row.Count, row.First, l.count, l.first, err)
		}
		delete(c.lanes, string(k))
		if t := row.InRow; t.Seq != 0 {
			at := string(binary.BigEndian.AppendUint64(append([]byte{schema.TableReady}, k[1:]...), t.Seq))
			if want, ok := c.want[at]; !ok || !bytes.Equal(want, schema.EncodeReady(t.ID, t.ReadyAt)) {
				c.Find("lane %q holds task %s at %d, which is not there", k, t.ID, t.Seq)
			}
			delete(c.want, at)
		}
	})
	for k, l := range c.lanes {
		c.Find("lane %q of %d tasks has no row", k, l.count)
	}
}

func (c *Checker) compareCounts() {
	c.Scan(schema.TableCounts, func(k, v []byte) {
		name := string(k[len(c.Namespace)+2 : len(k)-1])
		got, err := schema.DecodeCounts(v)
		want := *c.countsOf(name)
		if want.Sweep = got.Sweep; err != nil || got != want {
			c.Find("queue %q counts %+v, expected %+v (%v)", name, got, want, err)
		}
		delete(c.counts, name)
	})
	for name, n := range c.counts {
		if *n != (schema.Counts{}) {
			c.Find("queue %q has tasks %+v but no counters", name, *n)
		}
	}
}

// eachForgotten goes over the rows that forgotten tasks have left.
func eachForgotten(from store.Reader, ns string, fn func(id task.ID, row []byte)) {
	prefix := schema.IDKey(ns, schema.TableRequest, task.ID{})
	from.Scan(prefix, schema.After(prefix), func(k, row []byte) bool {
		fn(schema.IDAt(k), row)
		return true
	})
}

// checkForgotten: what a forgotten task has left says how it ended, for as long as its request may be repeated. The task itself may be there
// again only behind that, made by the same request.
func (c *Checker) checkForgotten() {
	eachForgotten(c.Rows, c.Namespace, func(id task.ID, row []byte) {
		k, err := schema.DecodeKey(row)
		if err != nil || k.ID != id || !k.Ended.Ended() || k.Until != k.Created.Add(DedupWindow) {
			c.Find("forgotten task %s: %+v (%v)", id, k, err)
		}
		if x := c.Tasks[id]; x != nil && x.CreatedAt < k.Until {
			c.Find("task %s is %s, and forgotten", id, x.State)
		}
	})
}

// checkKeys: a key's row has a deadline that ends it, and attempts and results belong to tasks.
func (c *Checker) checkKeys() {
	c.checkForgotten()
	for tab, kind := range map[byte]schema.DeadlineKind{schema.TableKey: schema.OnKey, schema.TableRequest: schema.OnRequest} {
		c.Scan(tab, func(k, v []byte) {
			row, err := schema.DecodeKey(v)
			if _, ok := c.Rows.Get(schema.DeadlineKey(row.Until, kind, c.Namespace, k[len(c.Namespace)+2:])); err != nil || !ok {
				c.Find("key %q never ends (%v)", k, err)
			}
		})
	}
	c.Scan(schema.TableAttempt, func(k, v []byte) {
		id, fence := task.ID(k[len(k)-24:len(k)-8]), binary.BigEndian.Uint64(k[len(k)-8:])
		x := c.Tasks[id]
		if _, err := schema.DecodeAttempt(fence, v); err != nil || x == nil || fence > x.Fence || fence == x.Fence && x.State == task.Claimed {
			c.Find("attempt %d of task %s belongs to nothing (%v)", fence, id, err)
		}
	})
	c.Scan(schema.TableResult, func(k, _ []byte) {
		if x := c.Tasks[schema.IDAt(k)]; x == nil || x.State != task.Succeeded {
			c.Find("result of task %s belongs to nothing", schema.IDAt(k))
		}
	})
}
