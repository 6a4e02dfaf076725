package shard

import (
	"sync"
)

const (
	// maxWaiting is how many calls may wait for a round; maxWaitingOf is how many of one owner may, so that there is room for others. With
	// more, a call would wait longer than its caller does.
	maxWaiting   = 1 << 16
	maxWaitingOf = maxWaiting / 2
)

// queue holds the calls waiting for the loop. Updates of one owner run in order; owners take turns, one call each. So an owner that
// never stops calling delays another by no more than the round in flight and one call of its own.
type queue struct {
	wake chan struct{} // holds a token when there may be calls

	mu      sync.Mutex
	lines   map[string]*line // of owners that have calls waiting
	turns   []*line          // the same, in the order of their turns
	waiting int              // updates
	views   []*call
	closed  error // the error for later calls
}

// line is the updates of one owner, oldest first.
type line struct {
	owner string
	calls []*call
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1), lines: map[string]*line{}} }

func (q *queue) push(c *call) error {
	q.mu.Lock()
	err := q.closed
	switch {
	case err != nil:
	case q.waiting+len(q.views) >= maxWaiting:
		err = ErrBusy
	case c.update == nil:
		q.views = append(q.views, c)
	default:
		l := q.lineOf(c.owner)
		if len(l.calls) >= maxWaitingOf {
			err = ErrBusy
			break
		}
		l.calls = append(l.calls, c)
		q.waiting++
	}
	q.mu.Unlock()
	if err == nil {
		q.signal()
	}
	return err
}

// lineOf returns the line of an owner. A new line gets the last turn.
func (q *queue) lineOf(owner string) *line {
	l := q.lines[owner]
	if l == nil {
		l = &line{owner: owner}
		q.lines[owner] = l
		q.turns = append(q.turns, l)
	}
	return l
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// takeUpdates returns at most n of the waiting updates.
func (q *queue) takeUpdates(n int) []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns) == 1 { // usually
		return q.take(q.turns[0], n)
	}
	var out []*call
	for len(out) < n && len(q.turns) > 0 {
		l := q.turns[0]
		q.turns = append(q.turns[1:], l)
		out = append(out, q.take(l, 1)...)
	}
	return out
}

// take removes and returns the first n updates of a line. An empty line is removed.
func (q *queue) take(l *line, n int) []*call {
	n = min(n, len(l.calls))
	out := l.calls[:n:n]
	l.calls = l.calls[n:]
	q.waiting -= n
	if len(l.calls) == 0 {
		delete(q.lines, l.owner)
		for i := range q.turns {
			if q.turns[i] == l {
				q.turns = append(q.turns[:i:i], q.turns[i+1:]...)
				break
			}
		}
	}
	return out
}

// putBack puts calls back to the front of their owners' lines.
func (q *queue) putBack(calls []*call) {
	if len(calls) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting += len(calls)
	back := map[string][]*call{}
	for _, c := range calls {
		back[c.owner] = append(back[c.owner], c)
	}
	for _, c := range calls { // owners in the order in which they were taken
		if some := back[c.owner]; some != nil {
			delete(back, c.owner)
			l := q.lineOf(c.owner)
			l.calls = append(some, l.calls...)
		}
	}
}

func (q *queue) takeViews() []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.views
	q.views = nil
	return out
}

func (q *queue) hasUpdates() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting > 0
}

// refuse answers all waiting calls with err.
func (q *queue) refuse(err error) {
	q.mu.Lock()
	calls := q.views
	for _, l := range q.turns {
		calls = append(calls, l.calls...)
	}
	q.views, q.turns, q.waiting = nil, nil, 0
	clear(q.lines)
	q.mu.Unlock()
	for _, c := range calls {
		c.answer(Stamp{}, err)
	}
}

// close refuses all calls from now on.
func (q *queue) close(err error) {
	q.mu.Lock()
	q.closed = err
	q.mu.Unlock()
	q.refuse(err)
}
