package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// lease makes one relay at a time the active one: the row of pawl_outbox_relay names the lease's holder and expiry, by the database's
// clock. A holder that is late does no harm: what it enqueues has been enqueued under the same request ids, and its deletions are fenced.
//
// Row locks with SKIP LOCKED would let relays work in parallel, but not in order, and would hold a transaction open during calls to Pawl.
type lease struct {
	box    *Outbox
	holder string // host/pid/run: unique to each run
	time   time.Duration
	until  atomic.Pointer[time.Time] // the earliest time at which it can expire, by the monotonic clock of this process
}

func newLease(box *Outbox, d time.Duration) *lease {
	host, _ := os.Hostname() // "" is fine too
	l := &lease{box: box, time: d, holder: fmt.Sprintf("%s/%d/%016x", plain(host), os.Getpid(), rand.Uint64())}
	l.until.Store(&time.Time{})
	return l
}

// plain makes host safe to embed in a statement: at most 32 letters, digits, points and hyphens.
func plain(host string) string {
	host = strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, host)
	return host[:min(len(host), 32)]
}

// acquire takes the lease unless another relay holds it, or extends it.
func (l *lease) acquire(ctx context.Context) (bool, error) {
	asked := time.Now()
	w := dialects[l.box.dialect]
	query := fmt.Sprintf("UPDATE pawl_outbox_relay SET holder = ?, expires_at = %s WHERE holder = ? OR expires_at <= %s", w.later, w.now)
	res, err := l.box.db.ExecContext(ctx, l.box.dialect.bind(query), l.holder, l.time.Seconds(), l.holder)
	if err != nil {
		return false, fmt.Errorf("relay lease: %w", err)
	}
	n, err := res.RowsAffected()
	if err != nil || n == 0 {
		return false, err
	}
	until := asked.Add(l.time)
	l.until.Store(&until)
	return true, nil
}

// renew renews the lease until ctx ends. It returns as soon as another relay may have the lease.
func (l *lease) renew(ctx context.Context) error {
	for {
		until := *l.until.Load()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(l.time/3, time.Until(until))):
		}
		limited, cancel := context.WithDeadline(ctx, until)
		held, err := l.acquire(limited)
		cancel()
		if err == nil && !held {
			return errors.New("relay lease: another relay holds it")
		}
		if err != nil && !time.Now().Before(until) {
			return err
		}
	}
}

// release lets another relay take over immediately.
func (l *lease) release(ctx context.Context) error {
	_, err := l.box.db.ExecContext(ctx, l.box.dialect.bind("UPDATE pawl_outbox_relay SET expires_at = "+dialects[l.box.dialect].now+
		" WHERE holder = ?"), l.holder)
	return err
}

// fence returns a condition that holds while no other relay has taken the lease.
func (l *lease) fence() string {
	return "EXISTS (SELECT 1 FROM pawl_outbox_relay WHERE holder = '" + l.holder + "')"
}
