package webhooks

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

// Each notice to be sent to a webhook is a row; the rows are ordered by due time. Before an attempt, the row records it and becomes due
// again a little later, so that the next leader continues. So every notice is sent at least once, always under the same id.
//
// A notice that was not yet tried absorbs later ones of the same kind and queue. Together with the pause of a webhook whose receiver is
// down, this bounds what is pending, however long it is down.

const (
	// maxPending bounds the pending notices of a webhook, maxPendingOf those of a namespace, and maxAllPending those of all: beyond it new
	// ones are dropped.
	maxPending    = 1000
	maxAllPending = 20_000
	maxPendingOf  = maxAllPending / 2
	// attemptLease is how long an attempt may take before another may begin.
	attemptLease = 30 * time.Second
	// maxAttempts and maxNoticeAge limit the attempts: the pauses between them add up to about a day. For a paused webhook only the age
	// counts.
	maxAttempts  = 30
	maxNoticeAge = 26 * time.Hour
	// minBackoff, maxBackoff and backoffFactor define the pause between two attempts to send a notice.
	minBackoff    = 5 * time.Second
	maxBackoff    = time.Hour
	backoffFactor = 3
	// maxHookBackoff bounds the pause of a webhook whose attempts fail, whatever the notice.
	maxHookBackoff = 5 * time.Minute
	// hookDown is how many failures in a row mean that the receiver is down, so that pending notices are tried once it is back.
	hookDown = 3
	// maxMadeDue bounds how many of them one entry makes due.
	maxMadeDue = 200
	// maxRecent is how many deliveries are remembered.
	maxRecent = 20
	// maxRecentError bounds the error remembered of a failed delivery, in bytes.
	maxRecentError = 256
)

// Status is the state of a webhook's deliveries.
type Status struct {
	Pending     int64      `json:"pending,omitempty"`     // notices to be sent
	Delivered   int64      `json:"delivered,omitempty"`   // notices
	Failed      int64      `json:"failed,omitempty"`      // attempts
	Dropped     int64      `json:"dropped,omitempty"`     // notices
	Failures    int        `json:"failures,omitempty"`    // failed attempts since the last success
	FailsSince  store.Time `json:"fails_since,omitempty"` // time of the first of these
	RestUntil   store.Time `json:"rest_until,omitempty"`  // no attempt is made before
	Reviving    bool       `json:"reviving,omitempty"`    // more pending notices may have to be made due: the next success does it
	DeliveredAt store.Time `json:"delivered_at,omitempty"`
	FailedAt    store.Time `json:"failed_at,omitempty"`
	DroppedAt   store.Time `json:"dropped_at,omitempty"`
	LastStatus  int        `json:"last_status,omitempty"` // HTTP status of the last failure
	LastError   string     `json:"last_error,omitempty"`
}

// Delivery is the outcome of a notice.
type Delivery struct {
	ID        string                `json:"id"`
	Kind      task.NotificationKind `json:"kind"`
	Queue     string                `json:"queue,omitempty"`
	Count     int64                 `json:"count,omitempty"`
	CreatedAt store.Time            `json:"created_at"`
	At        store.Time            `json:"at"` // time of the last attempt
	Attempts  int                   `json:"attempts"`
	Outcome   Outcome               `json:"outcome"`
	Status    int                   `json:"status,omitempty"`
	Error     string                `json:"error,omitempty"`
	Took      time.Duration         `json:"took,omitempty"`
}

// Outcome is the outcome of a delivery. The strings are part of the public contract.
type Outcome string

// The outcomes of a delivery.
const (
	Delivered Outcome = "delivered"
	Retrying  Outcome = "retrying"
	Held      Outcome = "held"   // until the webhook is resumed
	FailedFor Outcome = "failed" // of a test, which is not retried
	Dropped   Outcome = "dropped"
)

// notice is a notice to be sent.
type notice struct {
	Notification task.Notification `json:"notification"`
	Attempts     int               `json:"attempts,omitempty"`
}

// noticeID identifies a notice: its creation time and a hash.
type noticeID [16]byte

func (id noticeID) created() store.Time { return store.Time(binary.BigEndian.Uint64(id[:8])) } // #nosec G115 -- as it was written
func (id noticeID) String() string      { return "msg_" + hex.EncodeToString(id[:]) }

// jitter returns a number from 0 to 1 for a step of the notice, the same on every attempt.
func (id noticeID) jitter(step int) float64 {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(id[:], uint64(step))) // #nosec G115 -- a few
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}

func newNoticeID(at store.Time, hook *Webhook, n *task.Notification, seq uint64) (id noticeID) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s\x00%d", hook.Namespace, hook.Name, n.Kind, n.Queue, seq))
	copy(id[8:], sum[:])
	binary.BigEndian.PutUint64(id[:8], uint64(at)) // #nosec G115 -- not negative
	return id
}

func statusKey(ns, name string) []byte { return system.Key(system.WebhookStatusTable, ns, name) }
func recentKey(ns, name string) []byte { return system.Key(system.RecentTable, ns, name) }

func pendingKey(ns, name string, due store.Time, id noticeID) []byte {
	k := binary.BigEndian.AppendUint64(hookPrefix(system.PendingTable, ns, name), uint64(max(due, 0))) // #nosec G115 -- not negative
	return append(k, id[:]...)
}

// untriedKey is the key of the row that holds the key of the untried notice of a kind and queue, without the prefix common to all keys of
// its webhook.
func untriedKey(ns, name string, n *task.Notification) []byte {
	k := append(hookPrefix(system.UntriedTable, ns, name), n.Kind...)
	return append(append(k, 0), n.Queue...)
}

// dueOf returns a notice's due time and id from its key.
func dueOf(k []byte) (due store.Time, id noticeID) {
	copy(id[:], k[len(k)-16:])
	return store.Time(binary.BigEndian.Uint64(k[len(k)-24:])), id // #nosec G115 -- as it was written
}

func webhookStatus(r store.Reader, ns, name string) (Status, error) {
	s, _, err := system.GetRow[Status](r, statusKey(ns, name))
	return s, err
}

func setWebhookStatus(tx *store.Tx, ns, name string, s Status) {
	tx.Set(statusKey(ns, name), system.EncodeRow(s))
}

// scanPending calls fn for the pending notices of a webhook, until it returns false.
func scanPending(r store.Reader, ns, name string, fn func(k, v []byte) bool) {
	lo := hookPrefix(system.PendingTable, ns, name)
	r.Scan(lo, system.PrefixEnd(lo), fn)
}

// oldestPending returns when the oldest pending notice of a webhook was created; 0: there is none.
func oldestPending(r store.Reader, ns, name string) (oldest store.Time) {
	scanPending(r, ns, name, func(k, _ []byte) bool {
		if _, id := dueOf(k); oldest == 0 || id.created() < oldest {
			oldest = id.created()
		}
		return true
	})
	return oldest
}

// countPending adds n to the number of pending notices.
func countPending(tx *store.Tx, s *Status, n int64) {
	s.Pending += n
	all := int64(system.GetNumber(tx, system.PendingsKey)) + n // #nosec G115 -- at most maxAllPending
	tx.Set(system.PendingsKey, system.EncodeNumber(uint64(max(all, 0))))
}

// roomForNotice reports whether there is room for one more notice for a webhook.
func roomForNotice(r store.Reader, ns string, s *Status) (bool, error) {
	all := system.GetNumber(r, system.PendingsKey)
	switch {
	case s.Pending >= maxPending || all >= maxAllPending:
		return false, nil
	case all < maxPendingOf: // so no namespace can have more
		return true, nil
	}
	here, err := pendingOf(r, ns)
	return here < maxPendingOf, err
}

// pendingOf returns the number of pending notices of a namespace's webhooks.
func pendingOf(r store.Reader, ns string) (n int64, err error) {
	lo := statusKey(ns, "")
	r.Scan(lo, system.PrefixEnd(lo), func(k, v []byte) bool {
		var s Status
		s, err = system.DecodeRow[Status](k, v)
		n += s.Pending
		return err == nil
	})
	return n, err
}

// addNotice adds a notice for a webhook, or merges it into a pending one that was not yet tried. dropped is set if there is no room.
func addNotice(tx *store.Tx, h *Webhook, n task.Notification) (dropped bool, err error) {
	untried := untriedKey(h.Namespace, h.Name, &n)
	if rest, ok := tx.Get(untried); ok {
		key := append(hookPrefix(system.PendingTable, h.Namespace, h.Name), rest...)
		waits, ok, err := system.GetRow[notice](tx, key)
		if err != nil {
			return false, err
		}
		if ok {
			waits.Notification.Merge(&n)
			tx.Set(key, system.EncodeRow(waits))
			return false, nil
		}
	}
	s, err := webhookStatus(tx, h.Namespace, h.Name)
	if err != nil {
		return false, err
	}
	room, err := roomForNotice(tx, h.Namespace, &s)
	if err != nil {
		return false, err
	}
	if !room {
		s.Dropped++
		s.DroppedAt = tx.Now()
		setWebhookStatus(tx, h.Namespace, h.Name, s)
		return true, nil
	}
	id := newNoticeID(tx.Now(), h, &n, tx.NextSeq())
	key := pendingKey(h.Namespace, h.Name, tx.Now(), id)
	tx.Set(key, system.EncodeRow(notice{Notification: n}))
	tx.Set(untried, key[len(key)-24:])
	countPending(tx, &s, +1)
	setWebhookStatus(tx, h.Namespace, h.Name, s)
	return false, nil
}

// lastTaken is the last notification of a kind and queue that a shard has sent.
type lastTaken struct {
	Seq int64      `json:"seq"`
	At  store.Time `json:"at"`
}

func seenKey(n *task.Notification) []byte {
	k := append(system.Key(system.SeenTable, n.Namespace, string(n.Kind)), 0)
	k = append(append(k, n.Queue...), 0)
	return binary.BigEndian.AppendUint32(k, n.Shard)
}

// TakeNotifications takes what the webhooks of a namespace are to be notified of from a data shard. What was taken before is ignored.
func (w *Webhooks) TakeNotifications(ctx context.Context, ns string, notifications []*task.Notification) error {
	dropped, err := system.Update(ctx, w.shard, func(tx *store.Tx) (dropped []string, err error) {
		hooks, err := scanHooks(tx, ns)
		if err != nil {
			return nil, err
		}
		for _, n := range notifications {
			was, _, err := system.GetRow[lastTaken](tx, seenKey(n))
			if err != nil {
				return nil, err
			}
			if n.Namespace != ns || n.Seq <= was.Seq {
				continue
			}
			tx.Set(seenKey(n), system.EncodeRow(lastTaken{n.Seq, tx.Now()}))
			for i := range hooks {
				if !hooks[i].wants(n.Kind, n.Queue) {
					continue
				}
				full, err := addNotice(tx, &hooks[i], *n)
				if err != nil {
					return nil, err
				}
				if full {
					dropped = append(dropped, hooks[i].Name)
				}
			}
		}
		return dropped, nil
	})
	if err == nil {
		w.droppedFor(ns, dropped, fmt.Sprintf("%d notices are waiting for it already, %d for its namespace, or %d for all", maxPending,
			maxPendingOf, maxAllPending))
	}
	w.pokeDispatcher() // even after an error: if the outcome is unknown, there may be something to send
	return err
}

// droppedFor logs and counts dropped notices of some webhooks; each name stands for one notice.
func (w *Webhooks) droppedFor(ns string, names []string, why string) {
	counts := map[string]int{}
	for _, name := range names {
		counts[name]++
	}
	for name, n := range counts {
		w.log.Warn("notices for a webhook were dropped", "namespace", ns, "webhook", name, "count", n, "reason", why)
	}
	w.dropped.Add(uint64(len(names)))
}

// pokeDispatcher has the Dispatcher check what is to be sent.
func (w *Webhooks) pokeDispatcher() {
	select {
	case w.dispatch <- struct{}{}:
	default:
	}
}

// attempt is a notice that is about to be sent.
type attempt struct {
	hook    Webhook
	secrets []string
	key     []byte // of its row
	id      noticeID
	notice  notice
}

// request returns the request of an attempt.
func (a *attempt) request() webhook.Request {
	return webhook.Request{Namespace: a.hook.Namespace, URL: a.hook.URL, Secrets: a.secrets, ID: a.id.String(),
		Body: webhook.Body(a.hook.Name, &a.notice.Notification)}
}

// tooOld reports whether a notice is too old for another attempt, whatever the number of attempts.
func tooOld(id noticeID, now store.Time) bool { return now > id.created().Add(maxNoticeAge) }

// nextAttempt returns the next attempt for a webhook if a notice is due, and drops notices that are too old.
func (w *Webhooks) nextAttempt(ctx context.Context, ns, name string) (*attempt, error) {
	type took struct {
		next *attempt
		gone []string
	}
	t, err := system.Update(ctx, w.shard, func(tx *store.Tx) (t took, err error) {
		h, ok, err := system.GetRow[Webhook](tx, hookKey(ns, name))
		if err != nil || !ok {
			return t, err
		}
		s, err := webhookStatus(tx, ns, name)
		if err != nil {
			return t, err
		}
		gone, err := dropOld(tx, &h, &s)
		if err != nil {
			return t, err
		}
		for range gone {
			t.gone = append(t.gone, name)
		}
		if !h.suspended() && s.RestUntil <= tx.Now() {
			t.next, err = begin(tx, h)
		}
		return t, err
	})
	if err != nil {
		return nil, err
	}
	w.droppedFor(ns, t.gone, fmt.Sprintf("they were not delivered within %v, or %d attempts", maxNoticeAge, maxAttempts))
	return t.next, nil
}

// dropOld removes notices that are too old, some at a time.
func dropOld(tx *store.Tx, h *Webhook, s *Status) (gone int, err error) {
	if s.Pending == 0 {
		return 0, nil
	}
	var keys [][]byte
	scanPending(tx, h.Namespace, h.Name, func(k, _ []byte) bool {
		if _, id := dueOf(k); tooOld(id, tx.Now()) {
			keys = append(keys, slices.Clone(k))
		}
		return len(keys) < maxMadeDue
	})
	if len(keys) == 0 {
		return 0, nil
	}
	for _, k := range keys {
		n, _, err := system.GetRow[notice](tx, k)
		if err != nil {
			return 0, err
		}
		removePending(tx, h, k, &n)
		_, id := dueOf(k)
		if err := remember(tx, h, deliveryOf(id, &n, tx.Now(), Dropped, webhook.Outcome{Error: "it waited too long"})); err != nil {
			return 0, err
		}
	}
	countPending(tx, s, -int64(len(keys)))
	s.Dropped += int64(len(keys))
	s.DroppedAt = tx.Now()
	setWebhookStatus(tx, h.Namespace, h.Name, *s)
	return len(keys), nil
}

// removePending removes the row of a notice, and the row that refers to it.
func removePending(tx *store.Tx, h *Webhook, key []byte, n *notice) {
	tx.Delete(key)
	untried := untriedKey(h.Namespace, h.Name, &n.Notification)
	if rest, ok := tx.Get(untried); ok && string(rest) == string(key[len(key)-24:]) {
		tx.Delete(untried)
	}
}

// begin takes the first notice, if it is due: from now on it absorbs no others, and it becomes due again if no outcome of the attempt is
// recorded.
func begin(tx *store.Tx, h Webhook) (*attempt, error) {
	var key []byte
	var a *attempt
	var err error
	scanPending(tx, h.Namespace, h.Name, func(k, v []byte) bool {
		due, id := dueOf(k)
		if due <= tx.Now() {
			key, a = slices.Clone(k), &attempt{hook: h, id: id}
			a.notice, err = system.DecodeRow[notice](k, v)
		}
		return false
	})
	if err != nil || a == nil {
		return nil, err
	}
	removePending(tx, &h, key, &a.notice)
	a.notice.Attempts++
	a.key, a.secrets = pendingKey(h.Namespace, h.Name, tx.Now().Add(attemptLease), a.id), h.secrets(tx.Now())
	tx.Set(a.key, system.EncodeRow(a.notice))
	return a, nil
}

// settle records the outcome of an attempt. If that took so long that another attempt has begun, the later one counts.
func (w *Webhooks) settle(ctx context.Context, a *attempt, o webhook.Outcome) error {
	type came struct {
		dropped  []string
		disabled bool
	}
	of, err := system.Update(ctx, w.shard, func(tx *store.Tx) (of came, err error) {
		h, ok, err := system.GetRow[Webhook](tx, hookKey(a.hook.Namespace, a.hook.Name))
		if err != nil || !ok {
			return of, err
		}
		if _, ok := tx.Get(a.key); !ok {
			return of, nil
		}
		s, err := webhookStatus(tx, h.Namespace, h.Name)
		if err != nil {
			return of, err
		}
		d := deliveryOf(a.id, &a.notice, tx.Now(), Delivered, o)
		tx.Delete(a.key)
		down := s.Failures >= hookDown
		chance := a.id.jitter(a.notice.Attempts)
		switch s.count(tx.Now(), o, chance); {
		case o.Delivered():
			countPending(tx, &s, -1)
			if down || s.Reviving {
				s.Reviving = makeDue(tx, h.Namespace, h.Name)
			}
		case a.notice.Attempts >= maxAttempts || tooOld(a.id, tx.Now()):
			d.Outcome = Dropped
			of.dropped = append(of.dropped, h.Name)
			countPending(tx, &s, -1)
			s.Dropped++
			s.DroppedAt = tx.Now()
		default:
			d.Outcome = Retrying
			due := tx.Now().Add(max(backoff(a.notice.Attempts, maxBackoff, chance), o.RetryAfter))
			tx.Set(pendingKey(h.Namespace, h.Name, due, a.id), system.EncodeRow(a.notice))
		}
		if of.disabled = o.Gone && !h.disabled(); err == nil && of.disabled {
			err = w.disable(tx, h, o)
		}
		if err == nil {
			err = remember(tx, &h, d)
		}
		setWebhookStatus(tx, h.Namespace, h.Name, s)
		return of, err
	})
	if err == nil {
		w.droppedFor(a.hook.Namespace, of.dropped, "the last attempt failed")
	}
	if err == nil && of.disabled {
		w.log.Warn("a webhook is disabled: nothing is sent until it is resumed", "namespace", a.hook.Namespace, "webhook",
			a.hook.Name, "reason", o.Error)
	}
	return err
}

// backoff returns the pause after a number of attempts, at most most. A quarter of it is random, so that attempts that failed together
// are not retried together.
func backoff(attempts int, most time.Duration, chance float64) time.Duration {
	rest := float64(most)
	if grown := float64(minBackoff) * math.Pow(backoffFactor, float64(attempts-1)); grown < rest {
		rest = grown
	}
	return time.Duration(rest * (0.75 + 0.25*chance))
}

// count records the outcome of an attempt. While attempts fail, the webhook rests for longer and longer, whatever the notice, so that the
// notices pending for a receiver that is down aren't all tried one after another.
func (s *Status) count(now store.Time, o webhook.Outcome, chance float64) {
	if o.Delivered() {
		s.Delivered++
		s.DeliveredAt, s.Failures, s.FailsSince, s.RestUntil = now, 0, 0, 0
		return
	}
	if s.Failures == 0 {
		s.FailsSince = now
	}
	s.Failed++
	s.Failures++
	s.FailedAt, s.LastStatus, s.LastError = now, o.Status, o.Error
	s.RestUntil = now.Add(max(backoff(s.Failures, maxHookBackoff, chance), o.RetryAfter))
}

// disable stops the deliveries of a webhook whose receiver says that it is gone, until the webhook is resumed.
func (w *Webhooks) disable(tx *store.Tx, h Webhook, o webhook.Outcome) error {
	before := h
	h.DisabledReason, h.DisabledAt = o.Error, tx.Now()
	by := task.Author{Name: "receiver of " + h.Name, Interface: task.InterfaceNode, Reason: "it answered 410 Gone"}
	_, err := w.putHook(tx, by, task.WebhookDisabled, &before, h)
	return err
}

// makeDue makes pending notices of a webhook due now, up to maxMadeDue. It reports whether there may be more.
func makeDue(tx *store.Tx, ns, name string) (more bool) {
	type row struct{ key, value []byte }
	var rows []row
	scanPending(tx, ns, name, func(k, v []byte) bool {
		if due, _ := dueOf(k); due > tx.Now() {
			rows = append(rows, row{slices.Clone(k), slices.Clone(v)})
		}
		return len(rows) < maxMadeDue
	})
	for _, r := range rows {
		_, id := dueOf(r.key)
		tx.Delete(r.key)
		tx.Set(pendingKey(ns, name, tx.Now(), id), r.value) // none of them is untried: those are due from their creation on
	}
	return len(rows) == maxMadeDue
}

func deliveryOf(id noticeID, n *notice, at store.Time, outcome Outcome, o webhook.Outcome) Delivery {
	return Delivery{ID: id.String(), Kind: n.Notification.Kind, Queue: n.Notification.Queue, Count: n.Notification.Count,
		CreatedAt: id.created(), At: at, Attempts: n.Attempts, Outcome: outcome, Status: o.Status, Error: task.Cut(o.Error, maxRecentError),
		Took: o.Took}
}

// remember keeps the outcome of a notice, newest first.
func remember(tx *store.Tx, h *Webhook, d Delivery) error {
	key := recentKey(h.Namespace, h.Name)
	recent, _, err := system.GetRow[[]Delivery](tx, key)
	if err != nil {
		return err
	}
	recent = slices.DeleteFunc(recent, func(o Delivery) bool { return o.ID == d.ID })
	recent = append([]Delivery{d}, recent...)
	tx.Set(key, system.EncodeRow(recent[:min(len(recent), maxRecent)]))
	return nil
}

// Deliveries returns the outcomes of a webhook's last notices, newest first.
func (w *Webhooks) Deliveries(ctx context.Context, ns, name string) ([]Delivery, error) {
	return system.View(ctx, w.shard, func(r store.Reader) ([]Delivery, error) {
		h, err := getHook(r, ns, name)
		if err != nil {
			return nil, err
		}
		recent, _, err := system.GetRow[[]Delivery](r, recentKey(ns, name))
		for i := range recent {
			if recent[i].Outcome == Retrying && h.suspended() {
				recent[i].Outcome = Held
			}
		}
		return recent, err
	})
}

// resumeAfterTest makes the pending notices of a failing webhook due now: its receiver has accepted a test.
func resumeAfterTest(tx *store.Tx, h *Webhook) error {
	s, err := webhookStatus(tx, h.Namespace, h.Name)
	if err != nil || s.Failures == 0 {
		return err
	}
	s.Failures, s.FailsSince, s.RestUntil, s.Reviving = 0, 0, 0, makeDue(tx, h.Namespace, h.Name)
	setWebhookStatus(tx, h.Namespace, h.Name, s)
	return nil
}

// removeNotices removes all rows of a webhook except its own.
func removeNotices(tx *store.Tx, ns, name string, s Status) {
	for _, tab := range []byte{system.PendingTable, system.UntriedTable, system.OverTable} {
		system.RemoveRows(tx, hookPrefix(tab, ns, name))
	}
	countPending(tx, &s, -s.Pending)
	tx.Delete(statusKey(ns, name))
	tx.Delete(recentKey(ns, name))
}
