package transport

import (
	"context"
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
)

// queue holds Raft messages until they are written. It is bounded, and messages that don't fit are dropped: Raft resends them.
type queue struct {
	most, mostBytes int
	wake            chan struct{} // has room for one

	mu      sync.Mutex
	waiting []queuedMessage
	count   int // of waiting, and of taken messages that aren't done
	bytes   int
}

// queuedMessage is an envelope with its approximate size.
type queuedMessage struct {
	Envelope
	bytes int
}

func newQueue(most, mostBytes int) *queue {
	return &queue{most: most, mostBytes: mostBytes, wake: make(chan struct{}, 1)}
}

// put adds a message, and reports whether there was room. A message larger than the bound fits if the queue is empty.
func (q *queue) put(l queuedMessage) bool {
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

// take waits for messages and returns all of them; they take up room until they are done. Nil: the context has ended.
func (q *queue) take(ctx context.Context, spare []queuedMessage) []queuedMessage {
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

// done releases the room of messages that were taken.
func (q *queue) done(messages []queuedMessage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range messages {
		q.count--
		q.bytes -= messages[i].bytes
		messages[i] = queuedMessage{}
	}
}

const (
	// roughMessage and roughEntry are the sizes of messages and entries without their data.
	roughMessage = 64
	roughEntry   = 24
)

// roughBytes returns the approximate size of a message, without reading all of it.
func roughBytes(m *pb.Message) int {
	n := roughMessage + len(m.GetContext())
	for _, e := range m.GetEntries() {
		n += roughEntry + len(e.GetData())
	}
	return n + len(m.GetSnapshot().GetData())
}
