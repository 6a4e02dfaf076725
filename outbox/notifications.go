package outbox

import (
	"context"
	"fmt"
	"time"
)

const (
	// Rows come often when passes have found some for busyTime, and none of the pauses between them was longer than busyPause.
	busyTime  = 200 * time.Millisecond
	busyPause = 50 * time.Millisecond
	// quietTime is for how long no rows must come until inserts send notifications again.
	quietTime = 100 * time.Millisecond
	// quietPoll is how often the relay looks while inserts send no notifications.
	quietPoll = 4 * time.Millisecond
)

// notifications switches on and off, in PostgreSQL, whether an insert into pawl_outbox sends a notification. PostgreSQL commits transactions
// that send one after the other, each with its sync. So they send none while rows come so often that the relay may look every quietPoll as well,
// nor when the active relay does not listen.
//
// A transaction that wrote its row while notifications were off may commit after they are on, and then nobody is told. So the relay goes on
// to look after it has switched them on, less and less often: the row waits for about as long as its transaction took, and at most for
// RelayConfig.Poll.
type notifications struct {
	relay *Relay
	lease *lease
	known bool // on is what the table says
	on    bool
	pace  pace
	late  backoff // the pauses since notifications are on
}

// after switches notifications on or off, as a pass that began then makes it right. On says that they were switched on: another pass is due.
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
		return false, fmt.Errorf("switch of the notifications of pawl_outbox: %w", err)
	}
	n.known, n.on = true, want
	n.late.reset()
	return want, nil
}

// pause is for how long a relay that listens waits for a notification before it looks by itself.
func (n *notifications) pause() time.Duration {
	switch {
	case n.relay.box.dialect != Postgres:
		return n.relay.cfg.Poll
	case n.on:
		return n.late.next()
	}
	return quietPoll
}

// pace is how often passes find rows.
type pace struct {
	since time.Time // the first of the passes that found rows, with short pauses between them, began
	last  time.Time // the last of them ended
}

// found notes a pass that found rows.
func (p *pace) found(began, ended time.Time) {
	if began.Sub(p.last) > busyPause {
		p.since = began
	}
	p.last = ended
}

// wantsNotifications says whether inserts should send notifications, which they do now or not.
func (p *pace) wantsNotifications(on bool, now time.Time) bool {
	if on {
		return p.last.Sub(p.since) < busyTime || now.Sub(p.last) > busyPause
	}
	return now.Sub(p.last) >= quietTime
}
