package webhooks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

// DispatcherConfig configures a Dispatcher.
type DispatcherConfig struct {
	Webhooks *Webhooks
	// Send makes one attempt. It returns within a bounded time, and early when ctx is done.
	Send func(ctx context.Context, l webhook.Request) webhook.Outcome
	// Depths returns the numbers of ready tasks of queues over all shards. missing is set if a shard did not answer.
	Depths func(ctx context.Context, ns string, patterns []string, since bool) (all []Depth, missing bool)
	Period time.Duration // between two checks of thresholds and of which shards lack a watch; default 10 s
	Logger *slog.Logger  // nil: none
}

const (
	// dispatchPause is the shortest time between two checks for what is due.
	dispatchPause = 50 * time.Millisecond
	// checkEvery is the default period.
	checkEvery = 10 * time.Second
	// idleCheck is when to check again if nothing waits. Whatever makes something wait asks for a check itself.
	idleCheck = 10 * time.Minute
	// maxTests bounds concurrent tests. A namespace may use half of them.
	maxTests = 8
	// settleTries is how often to try to record the outcome of an attempt. After that it counts as not made.
	settleTries = 3
)

// Dispatcher delivers notices to the receivers of webhooks on the node that leads the system shard: one at a time per webhook, so that a
// receiver that hangs holds up no other. What it must not lose is in the rows of the system shard.
type Dispatcher struct {
	cfg  DispatcherConfig
	log  *slog.Logger
	work sync.WaitGroup

	mu   sync.Mutex
	busy map[hookName]bool // webhooks being served

	tests *admission.Slots

	delivered, failed atomic.Uint64
	// when the oldest notice still to be sent was created, in microseconds; 0: there is none, or this node does not lead
	oldest atomic.Int64
}

type hookName struct{ ns, name string }

// NewDispatcher returns a Dispatcher that is not running yet.
func NewDispatcher(cfg DispatcherConfig) *Dispatcher {
	if cfg.Period == 0 {
		cfg.Period = checkEvery
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Dispatcher{cfg: cfg, log: cfg.Logger, busy: map[hookName]bool{}, tests: admission.NewSlots(maxTests)}
}

// DispatchCounts counts what a node has done for webhooks since it started.
type DispatchCounts struct {
	Delivered, Failed, Dropped uint64        // notices, attempts, notices
	Oldest                     time.Duration // age of the oldest notice to be sent, if this node leads the system shard
	Leads                      bool
	States                     map[string]map[string]int // number of webhooks by namespace and state, if it leads
}

// Counts returns what this node has done for webhooks.
func (p *Dispatcher) Counts(ctx context.Context) DispatchCounts {
	c := DispatchCounts{Delivered: p.delivered.Load(), Failed: p.failed.Load(), Dropped: p.cfg.Webhooks.dropped.Load(),
		Leads: p.cfg.Webhooks.shard.Leads()}
	if c.Leads {
		c.States = p.cfg.Webhooks.hookStates(ctx)
	}
	if at := p.oldest.Load(); c.Leads && at != 0 {
		c.Oldest = max(time.Since(store.Time(at).Time()), 0)
	}
	return c
}

// Run sends while this node leads the system shard, until ctx is done. On return all its goroutines have ended.
func (p *Dispatcher) Run(ctx context.Context) {
	defer p.work.Wait()
	p.work.Go(func() { p.watchThresholds(ctx) })
	for ctx.Err() == nil {
		wait := idleCheck
		if p.cfg.Webhooks.shard.Leads() {
			wait = p.checkDue(ctx)
		} else {
			p.oldest.Store(0)
		}
		system.Sleep(ctx, dispatchPause)
		t := time.NewTimer(max(wait-dispatchPause, 0))
		select {
		case <-ctx.Done():
		case <-p.cfg.Webhooks.dispatch:
		case <-t.C:
		}
		t.Stop()
	}
}

// checkDue serves the webhooks that have something due, and returns when to look again.
func (p *Dispatcher) checkDue(ctx context.Context) (wait time.Duration) {
	due, err := p.cfg.Webhooks.dueHooks(ctx)
	if bad := cmp.Or(err, due.damaged); bad != nil && ctx.Err() == nil {
		p.log.Warn("pending notices for webhooks could not be read", "error", bad)
	}
	if err != nil {
		return p.cfg.Period
	}
	p.oldest.Store(int64(due.oldest))
	if len(due.hooks) == 0 && due.damaged == nil {
		return idleCheck
	}
	wait = p.cfg.Period
	for _, d := range due.hooks {
		if d.at > due.now {
			wait = min(wait, max(d.at.Sub(due.now), dispatchPause))
			continue
		}
		p.serve(ctx, d.hookName)
	}
	return wait
}

// dueHook is a webhook with pending notices, and the time at which the next may be sent.
type dueHook struct {
	hookName
	at store.Time
}

type dueList struct {
	now    store.Time // of the shard, which also set the due times
	hooks  []dueHook
	oldest store.Time // of all notices to be sent, except for webhooks that are paused or disabled
	// damaged is the error of webhooks whose status can't be read. They hold up no others.
	damaged error
}

// dueHooks returns the webhooks that have pending notices.
func (w *Webhooks) dueHooks(ctx context.Context) (dueList, error) {
	return system.Update(ctx, w.shard, func(r *store.Tx) (due dueList, err error) { // writes nothing, but a view has no clock
		due.now = r.Now()
		if system.GetNumber(r, system.PendingsKey) == 0 {
			return due, nil
		}
		hooks, err := system.ScanRows[Webhook](r, system.HookTable)
		for i := range hooks {
			h := &hooks[i]
			s, bad := webhookStatus(r, h.Namespace, h.Name)
			if bad != nil {
				due.damaged = errors.Join(due.damaged, fmt.Errorf("webhook %q of namespace %q: %w", h.Name, h.Namespace, bad))
				continue
			}
			if s.Pending == 0 {
				continue
			}
			oldest := oldestPending(r, h.Namespace, h.Name)
			at := oldest.Add(maxNoticeAge + time.Second) // when it expires
			if !h.suspended() {
				at = min(at, max(firstDue(r, h), s.RestUntil))
				if due.oldest == 0 || oldest < due.oldest {
					due.oldest = oldest
				}
			}
			due.hooks = append(due.hooks, dueHook{hookName{h.Namespace, h.Name}, at})
		}
		return due, err
	})
}

// firstDue returns when the first pending notice of a webhook is due.
func firstDue(r store.Reader, h *Webhook) (at store.Time) {
	scanPending(r, h.Namespace, h.Name, func(k, _ []byte) bool {
		at, _ = dueOf(k)
		return false
	})
	return at
}

// serve sends what is due for a webhook, in a goroutine of its own, unless one is already doing so.
func (p *Dispatcher) serve(ctx context.Context, of hookName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[of] {
		return
	}
	p.busy[of] = true
	p.work.Go(func() {
		err := p.sendDue(ctx, of)
		p.mu.Lock()
		delete(p.busy, of)
		p.mu.Unlock()
		switch {
		case err == nil:
			p.cfg.Webhooks.pokeDispatcher() // when to look again has changed
		case ctx.Err() == nil && p.cfg.Webhooks.shard.Leads():
			p.log.Warn("the next notice for a webhook could not be read", "namespace", of.ns, "webhook", of.name, "error", err)
		}
	})
}

// sendDue sends what is due for a webhook.
func (p *Dispatcher) sendDue(ctx context.Context, of hookName) error {
	for ctx.Err() == nil {
		a, err := p.cfg.Webhooks.nextAttempt(ctx, of.ns, of.name)
		if err != nil || a == nil {
			return err
		}
		p.send(ctx, a)
	}
	return nil
}

// send makes an attempt, and records its outcome.
func (p *Dispatcher) send(ctx context.Context, a *attempt) {
	o := p.cfg.Send(ctx, a.request())
	if ctx.Err() != nil && !o.Delivered() {
		return // cut off: the next leader tries again
	}
	p.logOutcome(a.hook.Namespace, a.hook.Name, &a.notice, a.id, o)
	for try := 1; ; try++ {
		err := p.cfg.Webhooks.settle(ctx, a, o)
		if err == nil || ctx.Err() != nil || !p.cfg.Webhooks.shard.Leads() {
			return
		}
		if try == settleTries {
			p.log.Warn("the outcome of a notice could not be recorded: it will be sent again", "namespace", a.hook.Namespace,
				"webhook", a.hook.Name, "webhook_id", a.id.String(), "error", err)
			return
		}
		system.Sleep(ctx, time.Second)
	}
}

func (p *Dispatcher) logOutcome(ns, name string, n *notice, id noticeID, o webhook.Outcome) {
	log := p.log.With("namespace", ns, "webhook", name, "webhook_id", id.String(), "event", string(n.Notification.Kind), "queue",
		n.Notification.Queue, "attempt", n.Attempts, "status", o.Status, "took", o.Took)
	if o.Delivered() {
		p.delivered.Add(1)
		log.Debug("a notice was delivered")
		return
	}
	p.failed.Add(1)
	log.Warn("a notice was not delivered", "error", o.Error)
}

// Test sends a notice to a webhook now, and returns the outcome. It also works for a webhook that is paused or disabled.
func (p *Dispatcher) Test(ctx context.Context, by task.Author, ns, name string) (Delivery, error) {
	if ok, own := p.tests.TryAcquire(ns); !ok {
		return Delivery{}, p.tooManyTests(name, own)
	}
	defer p.tests.Release(ns)
	w := p.cfg.Webhooks
	type found struct {
		Webhook
		now store.Time
	}
	h, err := system.Update(ctx, w.shard, func(tx *store.Tx) (found, error) { // writes nothing, but a view has no clock
		h, err := getHook(tx, ns, name)
		return found{h, tx.Now()}, err
	})
	if err != nil {
		return Delivery{}, err
	}
	now, at := h.now, h.now.Time()
	n := &notice{Notification: task.Notification{Kind: task.NotifyTest, Namespace: ns, First: at, Last: at}, Attempts: 1}
	a := &attempt{hook: h.Webhook, secrets: h.secrets(now), id: testID(now, &h.Webhook), notice: *n}
	o := p.cfg.Send(ctx, a.request())
	if err := ctx.Err(); err != nil {
		return Delivery{}, err
	}
	p.logOutcome(ns, name, n, a.id, o)
	d := deliveryOf(a.id, n, now, Delivered, o)
	if !o.Delivered() {
		d.Outcome = FailedFor
	}
	_, err = system.Update(ctx, w.shard, func(tx *store.Tx) (struct{}, error) {
		h, ok, err := system.GetRow[Webhook](tx, hookKey(ns, name))
		if err == nil && ok {
			err = remember(tx, &h, d)
		}
		if err == nil && ok && o.Delivered() {
			err = resumeAfterTest(tx, &h)
		}
		if err != nil || !ok {
			return struct{}{}, err
		}
		return struct{}{}, auditlog.Record(tx, audit.Entry{By: by, Action: task.WebhookTested, Namespace: ns,
			Target: task.Target{Kind: task.OnWebhook, Name: name}}, nil,
			&testFacts{d.Outcome, d.Status})
	})
	w.pokeDispatcher()
	d.Error = o.Error
	return d, err
}

func (p *Dispatcher) tooManyTests(name string, own bool) error {
	if own {
		return task.Unavailable(time.Second, "webhook %q: %d tests are running in its namespace, and no more may at a time", name,
			p.tests.PerNamespace())
	}
	return task.Unavailable(time.Second, "webhook %q: %d tests are running, and no more may at a time", name, p.tests.Size())
}

// testFacts is the outcome of a test, for the audit log.
type testFacts struct {
	Outcome Outcome `json:"outcome"`
	Status  int     `json:"status"`
}

func testID(at store.Time, h *Webhook) noticeID {
	n := &task.Notification{Kind: task.NotifyTest}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d", at))
	return newNoticeID(at, h, n, uint64(sum[0]))
}
