package query

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// DeadGroup summarizes the dead letters of one type with the same normalized message.
type DeadGroup struct {
	Fingerprint uint64
	Type        string
	Message     string // normalized
	Count       int64
	First, Last store.Time        // end times
	Sample      task.ID           // the newest
	Queues      map[string]int64  // counts by queue
	Trend       [TrendHours]int64 // how many ended in each of the hours before now, oldest first: the last element is the last 60 minutes
}

// TrendHours is the number of hours in a group's trend.
const TrendHours = 24

// maxGroups bounds the answer.
const maxGroups = 1000

// GroupLimit bounds the dead letters counted for an answer, each an index row. Tests change it.
var GroupLimit = 50_000

// GroupDead groups dead letters or poisoned tasks by type and normalized message, the largest group first: those of a
// queue, or of all queues within a scope if queue is "". Partial is true if there are more tasks than one call reads;
// it then reads the newest of each queue, and a queue with few tasks is not crowded out by one with many. Trends cover
// the hours before now.
//
// It reads only the index of the dead, which holds their fingerprints, and the newest task of each group.
func GroupDead(from store.Reader, ns, queue string, within task.Scope, s task.State, now store.Time) (groups []DeadGroup, partial bool) {
	g := &grouping{from: from, ns: ns, state: s, now: now, byPrint: map[uint64]*DeadGroup{}}
	if queue != "" {
		g.read(queue, GroupLimit)
	} else {
		g.readQueues(within, GroupLimit)
	}
	return g.largest()
}

// deadQueue is a queue with n tasks in a state.
type deadQueue struct {
	name string
	n    int64
}

// deadQueues returns the queues that have tasks in the state, the one with the fewest first: what a queue leaves of its
// share goes to the others. Rows is how many rows the index has for all queues of the namespace, in both states.
func deadQueues(from store.Reader, ns string, within task.Scope, s task.State) (queues []deadQueue, rows int64) {
	lo, hi := schema.TableBounds(ns, schema.TableCounts)
	from.Scan(lo, hi, func(k, v []byte) bool {
		c := schema.Must(schema.DecodeCounts(v))
		rows += c.Dead + c.Poisoned
		n := c.Dead
		if s == task.Poisoned {
			n = c.Poisoned
		}
		if name := strings.TrimSuffix(string(k[len(lo):]), "\x00"); n > 0 && within.Sees(name) {
			queues = append(queues, deadQueue{name, n})
		}
		return true
	})
	slices.SortFunc(queues, func(a, b deadQueue) int { return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.name, b.name)) })
	return queues, rows
}

// grouping is a GroupDead in progress.
type grouping struct {
	from    store.Reader
	ns      string
	state   task.State
	now     store.Time
	byPrint map[uint64]*DeadGroup
	partial bool
}

// readQueues counts the tasks of all queues within a scope, at most limit.
func (c *grouping) readQueues(within task.Scope, limit int) {
	queues, rows := deadQueues(c.from, c.ns, within, c.state)
	if rows <= int64(limit) {
		c.readAll(queues)
		return
	}
	for i, q := range queues {
		limit -= c.read(q.name, limit/(len(queues)-i))
	}
}

// readAll counts all tasks of some queues in one pass over the namespace's index: a pass for each queue costs ten times as much as a row.
func (c *grouping) readAll(queues []deadQueue) {
	wanted := make(map[string]string, len(queues))
	for _, q := range queues {
		wanted[q.name] = q.name
	}
	lo, hi := schema.TableBounds(c.ns, schema.TableDead)
	c.from.Scan(lo, hi, func(k, v []byte) bool {
		at := len(k) - schema.DeadTail
		if queue, ok := wanted[string(k[len(lo):at-2])]; ok && task.State(k[at-1]) == c.state {
			c.take(queue, k[at:], v)
		}
		return true
	})
}

// read counts the newest tasks of a queue, at most that many, and returns how many it has read.
func (c *grouping) read(queue string, most int) (read int) {
	prefix := schema.StatePrefix(c.ns, schema.TableDead, queue, c.state)
	c.from.ScanBack(prefix, schema.After(prefix), func(k, v []byte) bool {
		if read == most {
			c.partial = true
			return false
		}
		read++
		c.take(queue, k[len(prefix):], v)
		return true
	})
	return read
}

// take counts the task of an index row. Tail is the part of its key after queue and state.
func (c *grouping) take(queue string, tail, row []byte) {
	ended, id := store.Time(binary.BigEndian.Uint64(tail)), schema.IDAt(tail) // #nosec G115 -- as written
	print := schema.Must(schema.DecodeDead(row)).Fingerprint
	if print == 0 { // it died under a leader that stored none
		v := schema.Must(Show(c.from, c.ns, id))
		print = printOf(v)
	}
	g := c.byPrint[print]
	if g == nil {
		g = &DeadGroup{Fingerprint: print, First: ended, Last: ended, Sample: id, Queues: map[string]int64{}}
		c.byPrint[print] = g
	}
	g.Count++
	g.Queues[queue]++
	g.First = min(g.First, ended)
	if ended > g.Last {
		g.Last, g.Sample = ended, id
	}
	if ago := max(c.now.Sub(ended), 0) / time.Hour; ago < TrendHours {
		g.Trend[TrendHours-1-ago]++
	}
}

// add adds the same group of another shard.
func (g *DeadGroup) add(o *DeadGroup) {
	g.Count += o.Count
	g.First = min(g.First, o.First)
	if o.Last > g.Last {
		g.Last, g.Sample = o.Last, o.Sample
	}
	if g.Queues == nil {
		g.Queues = map[string]int64{}
	}
	for queue, n := range o.Queues {
		g.Queues[queue] += n
	}
	for i, n := range o.Trend {
		g.Trend[i] += n
	}
}

// largest returns the largest groups, with type and message from their newest tasks.
func (c *grouping) largest() (groups []DeadGroup, partial bool) {
	for _, g := range c.byPrint {
		groups = append(groups, *g)
	}
	sortGroups(groups)
	if len(groups) > maxGroups {
		groups, c.partial = groups[:maxGroups], true
	}
	for i := range groups {
		v := schema.Must(Show(c.from, c.ns, groups[i].Sample))
		groups[i].Type, groups[i].Message = v.Exec.Type, fingerprint.Normalize(v.LastFailure().Message)
	}
	return groups, c.partial
}

// MergeGroups merges the lists of several shards, the largest group first.
func MergeGroups(lists ...[]DeadGroup) (groups []DeadGroup) {
	byPrint := map[uint64]int{}
	for _, list := range lists {
		for i := range list {
			at, known := byPrint[list[i].Fingerprint]
			if !known {
				byPrint[list[i].Fingerprint] = len(groups)
				groups = append(groups, list[i])
				continue
			}
			groups[at].add(&list[i])
		}
	}
	sortGroups(groups)
	return groups
}

// sortGroups sorts groups by size, the largest first.
func sortGroups(groups []DeadGroup) {
	slices.SortFunc(groups, func(a, b DeadGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
}

// Most returns the queue with the most tasks of the group.
func (g *DeadGroup) Most() (queue string) {
	var most int64
	for name, n := range g.Queues {
		if n > most || n == most && name < queue {
			queue, most = name, n
		}
	}
	return queue
}
