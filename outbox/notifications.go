package outbox

import (
	"context"
	"fmt"
	"time"
)

const (
	// Rows are frequent when passes have found some for busyTime, with no pause longer than busyPause between them.
	busyTime  = 200 * time.Millisecond
	busyPause = 50 * time.Millisecond
	// quietTime is how long no rows must arrive before inserts send notifications again.
	quietTime = 100 * time.Millisecond
	// quietPoll is how often the relay polls while inserts send no notifications.
	quietPoll = 4 * time.Millisecond
)

// notifications switches on and off, in PostgreSQL, whether an insert into pawl_outbox sends a notification. PostgreSQL
// serializes the commits of transactions that notify, each with its own sync. So they don't notify while rows are so
// frequent that the relay can as well poll every quietPoll, nor while the active relay does not listen.
//
// A transaction that wrote its row while notifications were off may commit after they are on, and then sends none. So
// the relay keeps polling after it has switched them on, less and less often: the row waits for about as long as its
// transaction took, and at most for RelayConfig.Poll.
type notifications struct {
	relay *Relay
	lease *lease
	known bool // whether on is the value in the table
	on    bool
	pace  pace
	late  backoff // the pauses since notifications were switched on
}

// after switches notifications on or off, as a pass that began at began requires. on reports that they were switched
// on: another pass is due.
func (n *notifications) after(ctx context.Context, found bool, began time.Time) (on bool, err error) {
	box := n.relay.box
	if box.dialect != Postgres {
		return false, nil
	}
	now := time.Now()
	if found {
		n.pace.found(began, now)
	}
	want := n.relay.cfg.Listen != nil && n.pace.wantsNotifications(n.on, now)
	if n.known && want == n.on {
		return false, nil
	}
	if _, err := box.db.ExecContext(ctx, "UPDATE pawl_outbox_relay SET notify = $1 WHERE holder = $2", want, n.lease.holder); err != nil {
		return false, fmt.Errorf("switch the notifications of pawl_outbox: %w", err)
	}
	n.known, n.on = true, want
	n.late.reset()
	return want, nil
}

// pause returns how long a relay that listens waits for a notification before it polls.
func (n *notifications) pause() time.Duration {
	switch {
	case n.relay.box.dialect != Postgres:
		return n.relay.cfg.Poll
	case n.on:
		return n.late.next()
	}
	return quietPoll
}

// pace tracks how often passes find rows.
type pace struct {
	since time.Time // start of the first in a series of passes that found rows, with short pauses between them
	last  time.Time // end of the last of them
}

// found records a pass that found rows.
func (p *pace) found(began, ended time.Time) {
	if began.Sub(p.last) > busyPause {
		p.since = began
	}
	p.last = ended
}

// wantsNotifications reports whether inserts should send notifications; on is whether they do so now.
func (p *pace) wantsNotifications(on bool, now time.Time) bool {
	if on {
		return p.last.Sub(p.since) < busyTime || now.Sub(p.last) > busyPause
	}
	return now.Sub(p.last) >= quietTime
}
