package transport

import (
	"context"
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
)

// queue holds Raft messages until they are written. It is bounded, and what doesn't fit is dropped: Raft repeats.
type queue struct {
	most, mostBytes int
	wake            chan struct{} // has a place for one

	mu      sync.Mutex
	waiting []letter
	count   int // of waiting, and of what was taken and isn't done
	bytes   int
}

// letter is an envelope with roughly the bytes that it takes.
type letter struct {
	Envelope
	bytes int
}

func newQueue(most, mostBytes int) *queue {
	return &queue{most: most, mostBytes: mostBytes, wake: make(chan struct{}, 1)}
}

// put reports whether there was room. A message that alone is larger than the bound fits when nothing else is there.
func (q *queue) put(l letter) bool {
	q.mu.Lock()
	if q.count > 0 && (q.count >= q.most || q.bytes+l.bytes > q.mostBytes) {
		q.mu.Unlock()
		return false
	}
	q.waiting = append(q.waiting, l)
	q.count++
	q.bytes += l.bytes
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// take waits for messages and returns all of them; they take room until they are done. Nil: the context has ended.
func (q *queue) take(ctx context.Context, spare []letter) []letter {
	for ctx.Err() == nil {
		q.mu.Lock()
		taken := q.waiting
		if len(taken) > 0 {
			q.waiting = spare[:0]
			q.mu.Unlock()
			return taken
		}
		q.mu.Unlock()
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

// done gives back the room of letters that were taken.
func (q *queue) done(letters []letter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range letters {
		q.count--
		q.bytes -= letters[i].bytes
		letters[i] = letter{}
	}
}

const (
	// roughMessage and roughEntry are what messages and entries take beside their data.
	roughMessage = 64
	roughEntry   = 24
)

// roughBytes is the size of a message, without looking at all of it.
func roughBytes(m *pb.Message) int {
	n := roughMessage + len(m.GetContext())
	for _, e := range m.GetEntries() {
		n += roughEntry + len(e.GetData())
	}
	return n + len(m.GetSnapshot().GetData())
}
