package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
)

const (
	// maxLanes bounds the queues that wait apart. The rows of further ones are enqueued in vain.
	maxLanes = 1000
	// maxTries bounds the queues that are tried at the same time.
	maxTries = 64
	// tryTime bounds one try of a queue's first row.
	tryTime = 5 * time.Second
	// firstPutOff and longestPutOff bound for how long a queue waits after a temporary refusal; after no answer, at most maxPause.
	firstPutOff   = 250 * time.Millisecond
	longestPutOff = 30 * time.Second
)

// lanes are the queues whose rows wait: all of them, so that none overtakes another. Each is tried on its own, with its first row, until
// that is accepted: so a queue that is full, or whose shard has no leader, delays no row of another.
type lanes struct {
	session *session
	trying  chan struct{} // with a value for each queue that is being tried
	run     sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	queues map[string]bool
	delays map[string]*outage // of queues, those that ended lately too
	away   outage             // Pawl does not answer, for some queue at least; never ended, since it may for others
	warned bool               // of away, since a row was accepted
}

// waiting returns the queues that wait.
func (l *lanes) waiting() (queues []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for queue := range l.queues {
		queues = append(queues, queue)
	}
	return queues
}

// begin makes a queue wait, unless it waits already or too many do. It reports whether it did.
func (l *lanes) begin(ctx context.Context, queue string, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queues[queue] || len(l.queues) >= maxLanes {
		return false
	}
	l.queues[queue] = true
	l.run.Go(func() { l.wait(ctx, queue, err) })
	return true
}

// wait tries a queue again until its first row is accepted, or ctx ends. err is why the last row was not.
func (l *lanes) wait(ctx context.Context, queue string, err error) {
	pause := backoff{first: firstPutOff, max: longestPutOff}
	for err != nil {
		l.warn(queue, err)
		wait := max(pause.next(), min(convert.RetryAfter(err), longestPutOff))
		if isAway(err) {
			wait = min(wait, maxPause)
		}
		sleep(ctx, wait)
		select {
		case l.trying <- struct{}{}:
		case <-ctx.Done():
			return
		}
		err = l.session.try(ctx, queue)
		<-l.trying
		if ctx.Err() != nil {
			return
		}
	}
	l.mu.Lock()
	delete(l.queues, queue)
	l.mu.Unlock()
	l.session.relay.Wake()
}

// warn logs why a queue waits, once a minute. That Pawl does not answer is logged for all queues together.
func (l *lanes) warn(queue string, err error) {
	log := l.session.relay.cfg.Logger
	l.mu.Lock()
	defer l.mu.Unlock()
	if isAway(err) {
		l.warned = l.away.warn(log, "outbox: rows can't be enqueued; the relay keeps trying", err) || l.warned
		return
	}
	for queue, delay := range l.delays {
		if time.Since(delay.warned) >= warnEach && !l.queues[queue] {
			delete(l.delays, queue)
		}
	}
	if l.delays[queue] == nil {
		l.delays[queue] = &outage{}
	}
	l.delays[queue].warn(log.With("queue", queue), "outbox: the rows of a queue are delayed", err)
}

// accepted logs that Pawl accepts rows, if it was logged that it did not.
func (l *lanes) accepted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.warned {
		l.warned = false
		l.session.relay.cfg.Logger.Info("outbox: rows can be enqueued again")
	}
}
