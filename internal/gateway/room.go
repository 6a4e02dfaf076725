package gateway

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/pawlq/pawl/internal/task"
)

// maxRoom bounds the large messages that a node holds at once: those on their way and those whose calls run. It is 32 of the largest.
// Those of one namespace have half of it.
const maxRoom = 512 << 20

// room is given to large messages by the length that they announce, before they are taken: what there is none for waits at its sender.
type room struct {
	all  *semaphore.Weighted
	each int64 // for one namespace

	mu sync.Mutex
	of map[string]*roomOf // those that hold or want some
}

type roomOf struct {
	*semaphore.Weighted
	users int
}

func newRoom(size int64) *room {
	return &room{all: semaphore.NewWeighted(size), each: size / 2, of: map[string]*roomOf{}}
}

// take waits for room. Give must be called if err is nil, and is nil if not.
func (r *room) take(ctx context.Context, ns string, n int64) (give func(), err error) {
	own := r.enter(ns)
	if err := own.Acquire(ctx, n); err != nil { // first, so that who waits for its own holds nothing of all
		r.leave(ns)
		return nil, err
	}
	if err := r.all.Acquire(ctx, n); err != nil {
		own.Release(n)
		r.leave(ns)
		return nil, err
	}
	return func() {
		r.all.Release(n)
		own.Release(n)
		r.leave(ns)
	}, nil
}

func (r *room) enter(ns string) *roomOf {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.of[ns]
	if own == nil {
		own = &roomOf{Weighted: semaphore.NewWeighted(r.each)}
		r.of[ns] = own
	}
	own.users++
	return own
}

func (r *room) leave(ns string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[ns].users--; r.of[ns].users == 0 {
		delete(r.of, ns)
	}
}

// noRoomRest is when a message for which there was no room may be sent again.
const noRoomRest = 5 * time.Second

func noRoom() error {
	return task.Unavailable(noRoomRest, "too many large messages are on their way to this server, in all or of this namespace")
}
