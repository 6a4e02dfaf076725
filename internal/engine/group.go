package engine

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Group is the dead letters of one type whose last failures read alike.
type Group struct {
	Fingerprint uint64
	Type        string
	Message     string // normalised
	Count       int64
	First, Last store.Time       // ends
	Sample      task.ID          // the newest
	Queues      map[string]int64 // how many in each queue
}

// maxGroups bounds the answer.
const maxGroups = 1000

// GroupDead counts dead letters or poisoned tasks by type and normalised message, the largest group first: those of a queue, or of all
// that a scope has if queue is "". Partial says that there are more tasks than one call reads; those read are the newest of each queue,
// and a queue with few is not left out for one with many.
func GroupDead(from store.Reader, ns, queue string, within task.Scope, s task.State) (groups []Group, partial bool) {
	g := &grouping{from: from, ns: ns, state: s, byPrint: map[uint64]*Group{}}
	if queue != "" {
		g.read(queue, scanLimit)
	} else {
		left := scanLimit
		queues := deadQueues(from, ns, within, s)
		for i, q := range queues {
			left -= g.read(q.name, left/(len(queues)-i))
		}
	}
	return g.largest()
}

// deadQueue is a queue with so many tasks in a state.
type deadQueue struct {
	name string
	n    int64
}

// deadQueues are those that have some, the one with the fewest first: what it leaves of its share is for the others.
func deadQueues(from store.Reader, ns string, within task.Scope, s task.State) (queues []deadQueue) {
	lo, hi := tableBounds(ns, tabCounts)
	from.Scan(lo, hi, func(k, v []byte) bool {
		c, err := decodeCounts(v)
		corrupt(err)
		n := c.dead
		if s == task.Poisoned {
			n = c.poisoned
		}
		if name := strings.TrimSuffix(string(k[len(lo):]), "\x00"); n > 0 && within.Sees(name) {
			queues = append(queues, deadQueue{name, n})
		}
		return true
	})
	slices.SortFunc(queues, func(a, b deadQueue) int { return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.name, b.name)) })
	return queues
}

// grouping is a count of dead letters under way.
type grouping struct {
	from    store.Reader
	ns      string
	state   task.State
	byPrint map[uint64]*Group
	partial bool
}

// read counts the newest of a queue, at most so many, and says how many it has read.
func (c *grouping) read(queue string, most int) (read int) {
	prefix := statePrefix(c.ns, tabDead, queue, c.state)
	c.from.ScanBack(prefix, after(prefix), func(k, _ []byte) bool {
		if read == most {
			c.partial = true
			return false
		}
		read++
		v, err := Show(c.from, c.ns, idAt(k))
		corrupt(err)
		message := Normalise(v.LastFailure().Message)
		print := fingerprintOf(v.Type, message)
		g := c.byPrint[print]
		if g == nil {
			g = &Group{Fingerprint: print, Type: v.Type, Message: message, First: v.Exec.EndedAt}
			c.byPrint[print] = g
		}
		g.add(&Group{Count: 1, First: v.Exec.EndedAt, Last: v.Exec.EndedAt, Sample: v.ID, Queues: map[string]int64{queue: 1}})
		return true
	})
	return read
}

// add adds what another queue or shard has of the group.
func (g *Group) add(o *Group) {
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
}

func (c *grouping) largest() (groups []Group, partial bool) {
	for _, g := range c.byPrint {
		groups = append(groups, *g)
	}
	sortGroups(groups)
	if len(groups) > maxGroups {
		return groups[:maxGroups], true
	}
	return groups, c.partial
}

// MergeGroups makes one list of those of several shards, the largest group first.
func MergeGroups(lists ...[]Group) (groups []Group) {
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

// sortGroups puts the largest first.
func sortGroups(groups []Group) {
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
}

// Most is the queue with the most of the group.
func (g *Group) Most() (queue string) {
	var most int64
	for name, n := range g.Queues {
		if n > most || n == most && name < queue {
			queue, most = name, n
		}
	}
	return queue
}

// fingerprintOf names what failures of one type and normalised message have in common.
func fingerprintOf(typ, message string) uint64 { return xxhash.Sum64String(typ + "\x00" + message) }

// PrintText is a fingerprint as it is written: 16 digits, hexadecimal.
func PrintText(print uint64) string { return fmt.Sprintf("%016x", print) }

// variable matches what differs between failures of one kind: ids, addresses, numbers, quoted values.
var variable = regexp.MustCompile(`"[^"]*"|'[^']*'|\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,}\b|[0-9]+`)

// maxNormalised is the length that a message is cut to.
const maxNormalised = 300

// Normalise replaces what differs between failures of one kind by a star.
func Normalise(message string) string {
	return task.Cut(variable.ReplaceAllString(task.Cut(message, 2000), "*"), maxNormalised)
}
