package schema

import (
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Counts holds the numbers of a queue's tasks by state: of those that have not ended, and of dead letters and poisoned tasks.
type Counts struct {
	Scheduled, Claimed, Retrying, Dead, Poisoned int64
	Ready                                        [3]int64 // by priority, high first
	// of the ready: in no lane, because they wait for the holder of their unique key or for a predecessor
	Parked int64
	Behind int64 // of the parked: wait for a predecessor only
	Bytes  int64 // Exec.Size of all that have not ended

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
func (c *Counts) Encode() []byte { return Encode(48, c, (*Counts).fields) }

// DecodeCounts decodes the row of a queue's counters.
func DecodeCounts(row []byte) (c Counts, err error) {
	f := Decoding(row)
	for f.Next() {
		c.fields(&f)
	}
	return c, f.Err()
}

func (c *Counts) fields(f *Fields) {
	Num(f, 1, &c.Scheduled)
	Num(f, 2, &c.Claimed)
	Num(f, 3, &c.Retrying)
	Num(f, 4, &c.Dead)
	Num(f, 5, &c.Poisoned)
	Num(f, 6, &c.Ready[0])
	Num(f, 7, &c.Ready[1])
	Num(f, 8, &c.Ready[2])
	Num(f, 9, &c.Sweep)
	Num(f, 10, &c.Parked)
	Num(f, 11, &c.Bytes)
	Num(f, 12, &c.Behind)
}
