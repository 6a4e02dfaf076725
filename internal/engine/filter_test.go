package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// rowCounter counts the rows read through it.
type rowCounter struct {
	store.Reader
	rows int
}

func (c *rowCounter) Get(key []byte) ([]byte, bool) {
	c.rows++
	return c.Reader.Get(key)
}

func (c *rowCounter) Scan(lo, hi []byte, fn func(key, value []byte) bool) {
	c.Reader.Scan(lo, hi, func(k, v []byte) bool { c.rows++; return fn(k, v) })
}

func (c *rowCounter) ScanBack(lo, hi []byte, fn func(key, value []byte) bool) {
	c.Reader.ScanBack(lo, hi, func(k, v []byte) bool { c.rows++; return fn(k, v) })
}

func (c *rowCounter) GetEach(keys [][]byte, fn func(i int, value []byte)) {
	c.rows += len(keys)
	c.Reader.GetEach(keys, fn)
}

// A list of a queue reads only that queue's tasks, in pages of any size.
func TestListOfQueueReadsNoOther(t *testing.T) {
	w := NewWorld(t)
	for _, q := range []string{"other", "rare"} {
		w.PutQueue(q, task.DefaultSettings(), false)
	}
	var mine []task.ID
	const each = 3 * query.IndexChunk
	for i := range each {
		w.Pass(time.Millisecond)
		for _, q := range []string{"default", "other"} {
			a, err := w.Enqueue(task.Spec{Type: fmt.Sprint("job.", i%3), Queue: q})
			if err != nil {
				t.Fatal(err)
			}
			if q == "default" {
				mine = append(mine, a.ID)
			}
		}
	}
	slices.Reverse(mine)
	for _, limit := range []int{1, 100, query.IndexChunk - 1, query.IndexChunk, query.IndexChunk + 1, each, each + 1} {
		if _, ids := w.pages(query.Filter{Queue: "default"}, limit); !slices.Equal(ids, mine) {
			t.Errorf("with pages of %d, the queue's %d tasks were listed as %d, or in another order", limit, len(mine), len(ids))
		}
	}
	var third []task.ID
	for i := 2; i < each; i += 3 {
		third = append(third, mine[i])
	}
	if _, ids := w.pages(query.Filter{Queue: "default", Type: "job.0"}, 10); !slices.Equal(ids, third) {
		t.Errorf("listed %d tasks of one type, want %d", len(ids), len(third))
	}
	last, err := w.Enqueue(task.Spec{Type: "job", Queue: "rare"})
	if err != nil {
		t.Fatal(err)
	}
	w.Pass(time.Millisecond)
	w.EnqueueMany(2000, nil)
	c := &rowCounter{Reader: w.Store}
	if p, err := query.List(c, "default", query.Filter{Queue: "rare"}, nil, 100); err != nil || len(p.Tasks) != 1 ||
		p.Tasks[0].ID != last.ID || c.rows > 20 {
		t.Errorf("listed %d tasks of the queue (%v), want 1, and read %d rows, want at most 20", len(p.Tasks), err, c.rows)
	}
}

// BenchmarkList reads a page of 100 tasks of a queue next to 100,000 of another.
func BenchmarkList(b *testing.B) {
	w := BenchWorld(b)
	many := Size(100_000)
	w.PutQueue("rare", task.DefaultSettings(), false)
	w.enqueueInto("rare", 100, nil)
	for n := 0; n < many; n += 1000 {
		w.Now += 1000
		w.EnqueueMany(1000, benchPayload())
	}
	for _, c := range []struct {
		name   string
		filter query.Filter
		want   int
	}{
		{"rare", query.Filter{Queue: "rare"}, 100},
		{"busy", query.Filter{Queue: "default"}, 100},
		{"all", query.Filter{}, 100},
		{"none_of_10k_match", query.Filter{Queue: "default", Type: "none"}, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if p, err := query.List(w.Store, "default", c.filter, nil, 100); err != nil || len(p.Tasks) != c.want {
					b.Fatalf("listed %d tasks (%v), want %d", len(p.Tasks), err, c.want)
				}
			}
		})
	}
}
