package webhooks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

const (
	// MaxWebhooks bounds the webhooks of a namespace, maxAllWebhooks those of all together: each may have one notice in flight.
	MaxWebhooks    = 100
	maxAllWebhooks = 1000
	// MaxName bounds a name, in bytes.
	MaxName = 128
	// maxHookSecrets is how many secrets may sign at a time: further rotations within the overlap retire the oldest.
	maxHookSecrets = 3

	maxDepthOver = 1_000_000_000
	minWaitOver  = time.Second
	maxWaitOver  = 30 * 24 * time.Hour
)

// Webhooks reads and changes the webhooks, and their notices to be sent.
type Webhooks struct {
	shard *system.Shard
	// copyWatches brings a shard's copies of what the webhooks of namespaces subscribe to to at least these versions.
	copyWatches func(ctx context.Context, shard uint32, watches map[string]task.Watch) error
	log         *slog.Logger

	dispatch  chan struct{} // capacity 1: something is to be sent, or may be now
	firstHook chan struct{} // capacity 1: the first webhook may exist now, or this node became leader
	confirmed system.Memory[map[uint32]watchVersions]
	seenAt    system.Memory[time.Time] // when old shard states were last forgotten
	dropped   atomic.Uint64            // notices that were given up
}

// New returns the webhooks in a system shard. copyWatches brings a data shard's copies of what the webhooks of namespaces subscribe
// to to at least these versions.
func New(shard *system.Shard, copyWatches func(ctx context.Context, shard uint32, watches map[string]task.Watch) error,
	log *slog.Logger) *Webhooks {
	return &Webhooks{shard: shard, copyWatches: copyWatches, log: log, dispatch: make(chan struct{}, 1), firstHook: make(chan struct{}, 1)}
}

// Elected has the Dispatcher look at what there is.
func (w *Webhooks) Elected() {
	w.pokeDispatcher()
	w.pokeWatcher()
}

// Webhook is the settings of a webhook.
type Webhook struct {
	Namespace string                  `json:"namespace"`
	Name      string                  `json:"name"`
	URL       string                  `json:"url"`
	Events    []task.NotificationKind `json:"events"`
	Queues    []string                `json:"queues"`               // patterns
	DepthOver int64                   `json:"depth_over,omitempty"` // 0: none
	WaitOver  time.Duration           `json:"wait_over,omitempty"`  // 0: none
	Secrets   []Secret                `json:"secrets"`              // newest first; empty in answers

	CreatedBy string     `json:"created_by,omitempty"`
	CreatedAt store.Time `json:"created_at"`
	ChangedAt store.Time `json:"changed_at"`
	RotatedAt store.Time `json:"rotated_at,omitempty"`
	OldUntil  store.Time `json:"old_until,omitempty"` // until when an older secret signs too

	Paused         bool       `json:"paused,omitempty"`
	PausedReason   string     `json:"paused_reason,omitempty"`
	PausedBy       string     `json:"paused_by,omitempty"`
	PausedAt       store.Time `json:"paused_at,omitempty"`
	DisabledReason string     `json:"disabled_reason,omitempty"` // set: the receiver said that it is gone
	DisabledAt     store.Time `json:"disabled_at,omitempty"`
}

// Secret is a secret that signs notices.
type Secret struct {
	Value string     `json:"value"`
	Until store.Time `json:"until,omitempty"` // 0: unlimited
}

// Call asks for a change of a webhook.
type Call struct {
	// Hook has the name and the namespace; for a new webhook also the settings.
	Hook    Webhook
	Change  Change        // for an existing webhook
	Secret  string        // for a new webhook, or a rotation
	Overlap time.Duration // for which the previous secret signs too
	By      task.Author
}

// Change is a change of a webhook's settings. Zero fields are left unchanged.
type Change struct {
	URL       string
	Events    []task.NotificationKind
	Queues    []string
	DepthOver *int64
	WaitOver  *time.Duration
}

// View is a webhook and the state of its deliveries, without its secrets.
type View struct {
	Webhook
	Status
	PendingSince store.Time // of the oldest notice to be sent; 0: there is none
	// NextAttempt is when the next attempt after a failed one is due; 0: none is, or none has failed. It may be in the past.
	NextAttempt store.Time
}

// State is the state of a webhook. The strings are part of the public contract.
type State string

// The states of a webhook. The most severe is reported.
const (
	Active   State = "active"
	Failing  State = "failing"  // the last attempt failed
	Paused   State = "paused"   // by an operator
	Disabled State = "disabled" // its receiver said that it is gone
)

var hookStates = []State{Active, Failing, Paused, Disabled}

// State returns the state of the webhook.
func (v *View) State() State { return v.Webhook.state(&v.Status) }

func (h *Webhook) state(s *Status) State {
	switch {
	case h.disabled():
		return Disabled
	case h.Paused:
		return Paused
	case s.Failures > 0:
		return Failing
	}
	return Active
}

// Done is a webhook after a change.
type Done struct {
	Hook        View
	Unconfirmed []uint32 // shards that did not acknowledge it within a second
}

func hookKey(ns, name string) []byte { return system.Key(system.HookTable, ns, name) }

// hookPrefix returns the prefix of the keys of a webhook's rows in a table that has several per webhook.
func hookPrefix(table byte, ns, name string) []byte { return append(system.Key(table, ns, name), 0) }

// disabled reports whether the receiver wants no more.
func (h *Webhook) disabled() bool { return h.DisabledReason != "" }

// suspended reports whether nothing is sent to the webhook until it is resumed.
func (h *Webhook) suspended() bool { return h.Paused || h.disabled() }

// wants reports whether the webhook subscribes to a kind in a queue.
func (h *Webhook) wants(k task.NotificationKind, queue string) bool {
	return !h.disabled() && task.WatchRule{Kinds: h.Events, Queues: h.Queues}.Wants(k, queue)
}

// secrets returns the secrets that sign now.
func (h *Webhook) secrets(now store.Time) (values []string) {
	for _, s := range h.Secrets {
		if s.Until == 0 || s.Until > now {
			values = append(values, s.Value)
		}
	}
	return values
}

// CheckName returns an error if name is not a valid name of a webhook.
func CheckName(name string) error {
	l := task.DefaultLimits()
	l.Name = MaxName
	if name == "" {
		return task.Invalid("name", "is required")
	}
	return task.CheckQueue("name", name, l) // the same characters
}

// fill sets the defaults of what operators left out.
func (h *Webhook) fill() {
	if len(h.Queues) == 0 {
		h.Queues = []string{"*"}
	}
	if len(h.Events) > 0 {
		return
	}
	for _, k := range task.NotificationKinds {
		if !k.OfThreshold() || h.DepthOver > 0 || h.WaitOver > 0 {
			h.Events = append(h.Events, k)
		}
	}
}

// check validates the settings. The URL is validated elsewhere.
func (h *Webhook) check() error {
	ofThreshold := slices.ContainsFunc(h.Events, task.NotificationKind.OfThreshold)
	switch {
	case h.DepthOver < 0 || h.DepthOver > maxDepthOver:
		return task.Invalid("depth_over", "%d is not between 0 and %d", h.DepthOver, maxDepthOver)
	case h.WaitOver != 0 && (h.WaitOver < minWaitOver || h.WaitOver > maxWaitOver):
		return task.Invalid("wait_over", "%v is not between %v and %v (30 days)", h.WaitOver, minWaitOver, maxWaitOver)
	case ofThreshold && h.DepthOver == 0 && h.WaitOver == 0:
		return task.Invalid("events", "queue.over and queue.under need a threshold: give depth_over or wait_over, or other events")
	case !ofThreshold && h.DepthOver > 0:
		return task.Invalid("depth_over", "%d is given, and events has neither queue.over nor queue.under", h.DepthOver)
	case !ofThreshold && h.WaitOver > 0:
		return task.Invalid("wait_over", "%v is given, and events has neither queue.over nor queue.under", h.WaitOver)
	}
	return task.Scope{Queues: h.Queues}.Check("queues", task.DefaultLimits())
}

// getHook reads a webhook, or returns not_found.
func getHook(r store.Reader, ns, name string) (Webhook, error) {
	h, ok, err := system.GetRow[Webhook](r, hookKey(ns, name))
	if err == nil && !ok {
		err = task.NotFound("webhook", name)
	}
	return h, err
}

// Add adds a webhook. Repeating it with the same secret returns the same answer.
//
// Errors: conflict if the name is taken.
func (w *Webhooks) Add(ctx context.Context, a Call) (View, error) {
	defer w.pokeWatcher()
	return system.Update(ctx, w.shard, func(tx *store.Tx) (View, error) {
		h := a.Hook
		h.fill()
		old, exists, err := system.GetRow[Webhook](tx, hookKey(h.Namespace, h.Name))
		switch {
		case err != nil:
			return View{}, err
		case exists && len(old.Secrets) > 0 && old.Secrets[0].Value == a.Secret:
			return viewHook(tx, old)
		case exists:
			return View{}, system.Conflict("webhook %q already exists: change it, or remove it first", h.Name)
		}
		if err := h.check(); err != nil {
			return View{}, err
		}
		if _, err := namespaces.Get(tx, h.Namespace); err != nil {
			return View{}, err
		}
		if err := roomForHook(tx, h); err != nil {
			return View{}, err
		}
		h.CreatedBy, h.CreatedAt, h.ChangedAt = a.By.Name, tx.Now(), tx.Now()
		h.Secrets = []Secret{{Value: a.Secret}}
		return w.putHook(tx, a.By, task.WebhookAdded, nil, h)
	})
}

// roomForHook returns an error for one webhook too many.
func roomForHook(r store.Reader, h Webhook) error {
	all, err := system.ScanRows[Webhook](r, system.HookTable)
	if err != nil {
		return err
	}
	here := 0
	for i := range all {
		if all[i].Namespace == h.Namespace {
			here++
		}
	}
	switch {
	case here >= MaxWebhooks:
		return task.Invalid("name", "%q would exceed the limit of %d webhooks per namespace", h.Name, MaxWebhooks)
	case len(all) >= maxAllWebhooks:
		return task.Invalid("name", "%q would exceed the limit of %d webhooks in all namespaces together", h.Name, maxAllWebhooks)
	}
	return nil
}

// putHook writes a webhook's row and an audit entry. before is nil for a new webhook.
func (w *Webhooks) putHook(tx *store.Tx, by task.Author, action task.Action, before *Webhook, h Webhook) (View, error) {
	var was *hookFacts
	if before != nil {
		was = factsOfHook(before)
	}
	v, err := viewHook(tx, h)
	if err != nil {
		return v, err
	}
	if err := onHook(tx, by, action, &h, was, factsOfHook(&h)); err != nil {
		return View{}, err
	}
	tx.Set(hookKey(h.Namespace, h.Name), system.EncodeRow(h))
	if before == nil || !slices.Equal(before.Events, h.Events) || !slices.Equal(before.Queues, h.Queues) ||
		before.disabled() != h.disabled() {
		watchChanged(tx, h.Namespace)
	}
	return v, nil
}

// changeHook changes an existing webhook. A change that changes nothing writes nothing.
func (w *Webhooks) changeHook(ctx context.Context, a Call, action task.Action, change func(tx *store.Tx, h *Webhook) (changed bool,
	err error)) (View, error) {
	return system.Update(ctx, w.shard, func(tx *store.Tx) (View, error) {
		before, err := getHook(tx, a.Hook.Namespace, a.Hook.Name)
		if err != nil {
			return View{}, err
		}
		h := before
		changed, err := change(tx, &h)
		if err != nil {
			return View{}, err
		}
		if !changed {
			return viewHook(tx, before)
		}
		return w.putHook(tx, a.By, action, &before, h)
	})
}

// Set changes the settings of a webhook. Pending notices go to the new address.
func (w *Webhooks) Set(ctx context.Context, a Call) (View, error) {
	return w.changeHook(ctx, a, task.WebhookSet, func(tx *store.Tx, h *Webhook) (bool, error) {
		before, to := *h, &a.Change
		if to.URL != "" {
			h.URL = to.URL
		}
		if len(to.Events) > 0 {
			h.Events = to.Events
		}
		if len(to.Queues) > 0 {
			h.Queues = to.Queues
		}
		if to.DepthOver != nil {
			h.DepthOver = *to.DepthOver
		}
		if to.WaitOver != nil {
			h.WaitOver = *to.WaitOver
		}
		if h.URL == before.URL && slices.Equal(h.Events, before.Events) && slices.Equal(h.Queues, before.Queues) &&
			h.DepthOver == before.DepthOver && h.WaitOver == before.WaitOver {
			return false, nil
		}
		h.ChangedAt = tx.Now()
		if err := h.check(); err != nil {
			return false, err
		}
		if !h.hasThreshold() {
			system.RemoveRows(tx, hookPrefix(system.OverTable, h.Namespace, h.Name))
		}
		return true, nil
	})
}

// Rotate gives a webhook a new secret. The previous one signs too until the overlap is over.
func (w *Webhooks) Rotate(ctx context.Context, a Call) (View, error) {
	return w.changeHook(ctx, a, task.WebhookRotated, func(tx *store.Tx, h *Webhook) (bool, error) {
		if h.Secrets[0].Value == a.Secret {
			return false, nil
		}
		now := tx.Now()
		secrets := []Secret{{Value: a.Secret}}
		h.RotatedAt, h.OldUntil = now, 0
		for _, old := range h.Secrets {
			if until := now.Add(a.Overlap); a.Overlap > 0 && len(secrets) < maxHookSecrets && (old.Until == 0 || old.Until > now) {
				if old.Until != 0 { // the rotation must not extend it
					until = min(until, old.Until)
				}
				secrets = append(secrets, Secret{old.Value, until})
				h.OldUntil = max(h.OldUntil, until)
			}
		}
		h.Secrets = secrets
		return true, nil
	})
}

// Pause stops deliveries for now.
func (w *Webhooks) Pause(ctx context.Context, a Call) (View, error) {
	return w.changeHook(ctx, a, task.WebhookPaused, func(tx *store.Tx, h *Webhook) (bool, error) {
		if h.Paused && h.PausedReason == a.By.Reason {
			return false, nil
		}
		if !h.Paused {
			h.PausedAt = tx.Now()
		}
		h.Paused, h.PausedReason, h.PausedBy = true, a.By.Reason, a.By.Name
		return true, nil
	})
}

// Resume ends a pause, or re-enables a disabled webhook. Pending notices are tried immediately.
func (w *Webhooks) Resume(ctx context.Context, a Call) (View, error) {
	v, err := w.changeHook(ctx, a, task.WebhookResumed, func(tx *store.Tx, h *Webhook) (bool, error) {
		if !h.suspended() {
			return false, nil
		}
		h.Paused, h.PausedReason, h.PausedBy, h.PausedAt = false, "", "", 0
		h.DisabledReason, h.DisabledAt = "", 0
		s, err := webhookStatus(tx, h.Namespace, h.Name)
		if err != nil {
			return false, err
		}
		s.Failures, s.FailsSince, s.RestUntil, s.Reviving = 0, 0, 0, makeDue(tx, h.Namespace, h.Name)
		setWebhookStatus(tx, h.Namespace, h.Name, s)
		return true, nil
	})
	w.pokeDispatcher()
	return v, err
}

// Remove removes a webhook and its pending notices.
func (w *Webhooks) Remove(ctx context.Context, a Call) error {
	_, err := system.Update(ctx, w.shard, func(tx *store.Tx) (struct{}, error) {
		h, err := getHook(tx, a.Hook.Namespace, a.Hook.Name)
		if err != nil {
			return struct{}{}, err
		}
		s, err := webhookStatus(tx, h.Namespace, h.Name)
		if err != nil {
			return struct{}{}, err
		}
		if err := onHook(tx, a.By, task.WebhookRemoved, &h, factsOfHook(&h), nil); err != nil {
			return struct{}{}, err
		}
		removeNotices(tx, h.Namespace, h.Name, s)
		tx.Delete(hookKey(h.Namespace, h.Name))
		watchChanged(tx, h.Namespace)
		return struct{}{}, nil
	})
	return err
}

// List lists the webhooks of a namespace, by name, without their secrets.
func (w *Webhooks) List(ctx context.Context, ns string) ([]View, error) {
	return system.View(ctx, w.shard, func(r store.Reader) (all []View, err error) {
		hooks, err := scanHooks(r, ns)
		for i := range hooks {
			v, bad := viewHook(r, hooks[i])
			if bad != nil {
				return nil, bad
			}
			all = append(all, v)
		}
		return all, err
	})
}

// scanHooks reads the webhooks of a namespace.
func scanHooks(r store.Reader, ns string) (all []Webhook, err error) {
	lo := system.Key(system.HookTable, ns, "")
	r.Scan(lo, system.PrefixEnd(lo), func(k, v []byte) bool {
		var h Webhook
		if h, err = system.DecodeRow[Webhook](k, v); err != nil {
			return false
		}
		all = append(all, h)
		return true
	})
	return all, err
}

// Get returns a webhook without its secrets.
func (w *Webhooks) Get(ctx context.Context, ns, name string) (View, error) {
	return system.View(ctx, w.shard, func(r store.Reader) (View, error) {
		h, err := getHook(r, ns, name)
		if err != nil {
			return View{}, err
		}
		return viewHook(r, h)
	})
}

// viewHook returns a webhook as it is shown.
func viewHook(r store.Reader, h Webhook) (v View, err error) {
	h.Secrets = nil
	v.Webhook = h
	if v.Status, err = webhookStatus(r, h.Namespace, h.Name); err != nil || v.Pending == 0 {
		return v, err
	}
	v.PendingSince = oldestPending(r, h.Namespace, h.Name)
	if v.Failures > 0 && !h.suspended() {
		v.NextAttempt = max(firstDue(r, &h), v.RestUntil)
	}
	return v, nil
}

// hookStates counts the webhooks by namespace and state, for each namespace that has some; nil: they can't be read.
func (w *Webhooks) hookStates(ctx context.Context) map[string]map[string]int {
	n, err := system.View(ctx, w.shard, func(r store.Reader) (map[string]map[string]int, error) {
		n := map[string]map[string]int{}
		hooks, err := system.ScanRows[Webhook](r, system.HookTable)
		for i := range hooks {
			h := &hooks[i]
			s, bad := webhookStatus(r, h.Namespace, h.Name)
			if bad != nil {
				return nil, bad
			}
			of := n[h.Namespace]
			if of == nil {
				of = map[string]int{}
				for _, state := range hookStates {
					of[string(state)] = 0
				}
				n[h.Namespace] = of
			}
			of[string(h.state(&s))]++
		}
		return n, err
	})
	if err != nil {
		return nil
	}
	return n
}

// hookFacts is what the audit log records of a webhook: of the address only what is no secret.
type hookFacts struct {
	URL            string                  `json:"url"`
	Address        string                  `json:"address"` // a hash that shows whether the rest of the address has changed
	Events         []task.NotificationKind `json:"events"`
	Queues         []string                `json:"queues"`
	DepthOver      int64                   `json:"depth_over"`
	WaitOver       string                  `json:"wait_over"`
	RotatedAt      *time.Time              `json:"rotated_at"`
	Paused         bool                    `json:"paused"`
	PausedReason   string                  `json:"paused_reason"`
	DisabledReason string                  `json:"disabled_reason"`
}

func factsOfHook(h *Webhook) *hookFacts {
	sum := sha256.Sum256([]byte(h.URL))
	return &hookFacts{URL: webhook.Redacted(h.URL), Address: hex.EncodeToString(sum[:4]), Events: h.Events, Queues: h.Queues,
		DepthOver: h.DepthOver, WaitOver: h.WaitOver.String(), RotatedAt: auditlog.Moment(h.RotatedAt), Paused: h.Paused,
		PausedReason: h.PausedReason, DisabledReason: h.DisabledReason}
}

func onHook(tx *store.Tx, by task.Author, action task.Action, h *Webhook, before, after *hookFacts) error {
	var was, is any
	if before != nil {
		was = before
	}
	if after != nil {
		is = after
	}
	return auditlog.Record(tx, audit.Entry{By: by, Action: action, Namespace: h.Namespace, Target: task.Target{Kind: task.OnWebhook,
		Name: h.Name}}, was, is)
}
