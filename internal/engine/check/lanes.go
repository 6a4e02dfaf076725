package check

import (
	"bytes"
	"encoding/binary"

	"github.com/pawlq/pawl/internal/engine/schema"
)

type laneCheck struct {
	count int64
	first uint64
}

func (c *checker) laneOf(key []byte) *laneCheck {
	l := c.lanes[string(key)]
	if l == nil {
		l = &laneCheck{first: 1<<64 - 1}
		c.lanes[string(key)] = l
	}
	return l
}

func (c *checker) compareLanes() {
	c.Scan(schema.TableLane, func(k, v []byte) {
		row, err := schema.DecodeLane(v)
		l := c.laneOf(k)
		if err != nil || row.Count != l.count || row.First > l.first {
			c.Find("lane %q counts %d from %d, expected %d from %d (%v)", k, row.Count, row.First, l.count, l.first, err)
		}
		delete(c.lanes, string(k))
		if row.Stale != 0 {
			if row.Stale >= row.First {
				c.Find("lane %q begins at %d, its stale rows at %d", k, row.First, row.Stale)
			}
			c.stale[string(k[1:])] = row
		}
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

// isStale reports whether the row of a ready task is a stale one, of a task that has left its lane.
func (c *checker) isStale(k []byte) bool {
	if len(k) < 9 {
		return false
	}
	seq := binary.BigEndian.Uint64(k[len(k)-8:])
	row, ok := c.stale[string(k[1:len(k)-8])]
	return ok && seq >= row.Stale && seq < row.First
}

func (c *checker) countsOf(queue string) *schema.Counts {
	if c.counts[queue] == nil {
		c.counts[queue] = &schema.Counts{}
	}
	return c.counts[queue]
}

func (c *checker) compareCounts() {
	c.Scan(schema.TableCounts, func(k, v []byte) {
		name := string(k[len(c.ns)+2 : len(k)-1])
		got, err := schema.DecodeCounts(v)
		want := *c.countsOf(name)
		if want.Sweep = got.Sweep; err != nil || got != want {
			c.Find("queue %q counts %+v, expected %+v (%v)", name, got, want, err)
		}
		if _, ok := c.rows.Get(schema.QueueKey(c.ns, schema.TableQueue, name)); !ok {
			c.Find("counters of queue %q are orphaned", name)
		}
		delete(c.counts, name)
	})
	for name, n := range c.counts {
		if *n != (schema.Counts{}) {
			c.Find("queue %q has tasks %+v but no counters", name, *n)
		}
	}
}
