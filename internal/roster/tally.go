package roster

import (
	"encoding/binary"
	"encoding/hex"
	"time"
)

// Tally counts the workers of a node that take tasks of some queues, in their order: not those that are quiet, or drain.
type Tally struct {
	Workers []int // with a stream, which is to one node
	// Claimers are those who claim by single calls, by what stands for their ids: they may come to several nodes.
	Claimers [][]uint64
}

// maxTallied bounds the claimers that a tally tells apart. Those beyond it are counted among the workers.
const maxTallied = 20_000

// Tally counts the workers of a namespace that take tasks of some queues.
func (r *Roster) Tally(namespace string, queues []string) Tally {
	now := time.Now()
	at := make(map[string]int, len(queues))
	for i, q := range queues {
		at[q] = i
	}
	t := Tally{Workers: make([]int, len(queues)), Claimers: make([][]uint64, len(queues))}
	told := 0
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, w := range r.streams {
		if w.key.namespace == namespace {
			w.takesOf(at, func(i int) { t.Workers[i]++ })
		}
	}
	for _, w := range r.claimers.of[namespace] {
		if !w.present(now) {
			continue
		}
		short := w.key.short()
		w.takesOf(at, func(i int) {
			if told++; told > maxTallied {
				t.Workers[i]++
				return
			}
			t.Claimers[i] = append(t.Claimers[i], short)
		})
	}
	return t
}

// takesOf calls fn for each of some queues that the worker takes tasks of now.
func (w *Worker) takesOf(queues map[string]int, fn func(i int)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet != nil || w.drains {
		return
	}
	for _, s := range w.hello.Queues {
		if i, ok := queues[s.Queue]; ok {
			fn(i)
		}
	}
}

// short stands for the id of a claimer, which is a hash.
func (k key) short() uint64 {
	var b [8]byte
	_, _ = hex.Decode(b[:], []byte(k.id[:16]))
	return binary.BigEndian.Uint64(b[:])
}

// Sum adds up what several nodes have counted of the same queues.
func Sum(tallies []Tally, queues int) []int64 {
	out := make([]int64, queues)
	for i := range out {
		seen := map[uint64]bool{}
		for _, t := range tallies {
			if i < len(t.Workers) {
				out[i] += int64(t.Workers[i])
			}
			if i < len(t.Claimers) {
				for _, id := range t.Claimers[i] {
					seen[id] = true
				}
			}
		}
		out[i] += int64(len(seen))
	}
	return out
}
