package schema

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Counts holds the numbers of a queue's tasks by state: of those that have not ended, and of dead letters and poisoned tasks.
type Counts struct {
	Scheduled, Claimed, Retrying, Dead, Poisoned int64
	Ready                                        [3]int64 // by priority, high first
	Parked                                       int64    // of the ready: in no lane, because they wait for the holder of their unique key or for a predecessor
	Behind                                       int64    // of the parked: wait for a predecessor only
	Bytes                                        int64    // Exec.Size of all that have not ended

	Sweep store.Time // when the queue's full buckets are forgotten; 0: there are none
}

// Of returns the counter of a state, and for ready tasks of a priority; nil: tasks of that state are not counted.
func (c *Counts) Of(s task.State, p task.Priority) *int64 {
	switch s {
	case task.Scheduled:
		return &c.Scheduled
	case task.Ready:
		return &c.Ready[p-task.High]
	case task.Claimed:
		return &c.Claimed
	case task.Retrying:
		return &c.Retrying
	case task.Dead:
		return &c.Dead
	case task.Poisoned:
		return &c.Poisoned
	}
	return nil
}

// Waiting returns how many tasks wait: scheduled, retrying or ready.
func (c *Counts) Waiting() int64 {
	return c.Scheduled + c.Retrying + c.Ready[0] + c.Ready[1] + c.Ready[2]
}

// Encode returns the row.
func (c *Counts) Encode() []byte {
	r := NewRow(48)
	for i, v := range []int64{c.Scheduled, c.Claimed, c.Retrying, c.Dead, c.Poisoned, c.Ready[0], c.Ready[1], c.Ready[2]} {
		r.Num(protowire.Number(i+1), uint64(v))
	}
	r.Num(9, uint64(c.Sweep))
	r.Num(10, uint64(c.Parked))
	r.Num(11, uint64(c.Bytes)) // #nosec G115 -- not negative
	r.Num(12, uint64(c.Behind))
	return r
}

// DecodeCounts decodes the row of a queue's counters.
func DecodeCounts(row []byte) (c Counts, err error) {
	fields := []*int64{&c.Scheduled, &c.Claimed, &c.Retrying, &c.Dead, &c.Poisoned, &c.Ready[0], &c.Ready[1], &c.Ready[2]}
	err = Decode(row, func(tag protowire.Number, v uint64) {
		if int(tag) <= len(fields) {
			*fields[tag-1] = int64(v)
		} else if tag == 9 {
			c.Sweep = store.Time(v)
		} else if tag == 10 {
			c.Parked = int64(v)
		} else if tag == 11 {
			c.Bytes = int64(v) // #nosec G115 -- as it was written
		} else if tag == 12 {
			c.Behind = int64(v)
		}
	}, NoBytes)
	return c, err
}
