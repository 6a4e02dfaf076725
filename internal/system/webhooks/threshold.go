package webhooks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
)

// Depth is the number of ready tasks of a queue over all shards.
type Depth struct {
	Queue string
	Ready int64
	Wait  time.Duration // of the task that has been ready longest
}

const (
	// A queue that was over a threshold is under it again at this fraction of it, so that a queue at the threshold does not cause notices
	// all the time.
	underFraction = 0.8
	// crossEvery is how often at most a webhook is notified that a queue is over, or that it is under: of a queue that oscillates, it
	// learns the state when the minute is over.
	crossEvery = time.Minute
	// depthsTime bounds the wait for the shards' answers. What a queue has in the others may be enough to be over a threshold.
	depthsTime = time.Second
	// crossingsAtOnce bounds the crossings in one entry.
	crossingsAtOnce = 200
)

// crossingState is a queue that is over a threshold of a webhook, or was within the last minute. It is a row, so that
// the next leader neither repeats a notice nor forgets that it was sent.
type crossingState struct {
	Since     store.Time `json:"since"`           // since when the queue is over
	Under     bool       `json:"under,omitempty"` // it is under again
	OverTold  store.Time `json:"over_told,omitempty"`
	UnderTold store.Time `json:"under_told,omitempty"`
}

// reportedAt points to when the webhook was last notified that a queue is over, or that it is under.
func (l *crossingState) reportedAt(over bool) *store.Time {
	if over {
		return &l.OverTold
	}
	return &l.UnderTold
}

// recently reports whether that was within the last minute.
func recently(reported, now store.Time) bool { return reported != 0 && now < reported.Add(crossEvery) }

func overKey(ns, name, queue string) []byte {
	return append(hookPrefix(system.OverTable, ns, name), queue...)
}

// exceeds reports whether a queue is over a threshold of the webhook.
func (h *Webhook) exceeds(d Depth) bool {
	return h.DepthOver > 0 && d.Ready > h.DepthOver || h.WaitOver > 0 && d.Wait > h.WaitOver
}

// under reports whether a queue that was over no longer is.
func (h *Webhook) under(d Depth) bool {
	return (h.DepthOver == 0 || float64(d.Ready) <= underFraction*float64(h.DepthOver)) &&
		(h.WaitOver == 0 || float64(d.Wait) <= underFraction*float64(h.WaitOver))
}

func (h *Webhook) hasThreshold() bool { return h.DepthOver > 0 || h.WaitOver > 0 }

// watchThresholds regularly checks the depths of queues, and whether all shards know what webhooks subscribe to. It sleeps until there is a
// webhook.
func (p *Dispatcher) watchThresholds(ctx context.Context) {
	timer := time.NewTimer(p.cfg.Period)
	defer timer.Stop()
	for last := time.Now(); ; {
		wait := p.cfg.Period
		if !p.cfg.Webhooks.mayHaveHooks(ctx) {
			wait = idleCheck
		}
		timer.Reset(time.Until(last.Add(wait)))
		select {
		case <-ctx.Done():
			return
		case <-p.cfg.Webhooks.firstHook:
			continue
		case last = <-timer.C:
		}
		if !p.cfg.Webhooks.shard.Leads() {
			continue
		}
		if unconfirmed, err := p.cfg.Webhooks.TellShards(ctx, ""); ctx.Err() == nil && (err != nil || len(unconfirmed) > 0) {
			p.log.Warn("not all shards have the current subscriptions of webhooks", "shards", unconfirmed, "error", err)
		}
		if err := p.checkThresholds(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("thresholds of webhooks could not be checked", "error", err)
		}
		if err := p.cfg.Webhooks.forgetSeen(ctx); err != nil && ctx.Err() == nil {
			p.log.Debug("old reports of shards could not be removed yet", "error", err)
		}
	}
}

// mayHaveHooks reports whether a webhook exists or existed, as far as can be found out. Once there was one, shards may know of it.
func (w *Webhooks) mayHaveHooks(ctx context.Context) bool {
	if !w.shard.Leads() {
		return false // Elected pokes
	}
	any, err := system.View(ctx, w.shard, func(r store.Reader) (any bool, _ error) {
		r.Scan([]byte{system.WatchTable}, []byte{system.WatchTable + 1}, func(_, _ []byte) bool { any = true; return false })
		return any, nil
	})
	return any || err != nil
}

// pokeWatcher signals that the first webhook may exist.
func (w *Webhooks) pokeWatcher() {
	select {
	case w.firstHook <- struct{}{}:
	default:
	}
}

// checkThresholds gets the depths of queues, and sends notices about those that have crossed a threshold. A namespace
// that can't be checked, for example because a row is damaged, does not hold up the others.
func (p *Dispatcher) checkThresholds(ctx context.Context) error {
	w := p.cfg.Webhooks
	hooks, err := system.View(ctx, w.shard, func(r store.Reader) ([]Webhook, error) {
		all, err := system.ScanRows[Webhook](r, system.HookTable)
		return slices.DeleteFunc(all, func(h Webhook) bool { return h.disabled() || !h.hasThreshold() }), err
	})
	if err != nil {
		return err
	}
	spaces := byNamespace(hooks)
	names := slices.Collect(maps.Keys(spaces))
	errs := make([]error, len(names))
	parallel.Run(len(names), func(i int) {
		depths, missing := p.depths(ctx, names[i], spaces[names[i]])
		if err := w.crossed(ctx, names[i], spaces[names[i]], depths, missing); err != nil {
			errs[i] = fmt.Errorf("namespace %q: %w", names[i], err)
		}
	})
	return errors.Join(errs...)
}

func byNamespace(hooks []Webhook) map[string][]Webhook {
	all := map[string][]Webhook{}
	for _, h := range hooks {
		all[h.Namespace] = append(all[h.Namespace], h)
	}
	return all
}

func (p *Dispatcher) depths(ctx context.Context, ns string, hooks []Webhook) ([]Depth, bool) {
	ctx, cancel := context.WithTimeout(ctx, depthsTime)
	defer cancel()
	patterns := map[string]bool{}
	since := false
	for i := range hooks {
		since = since || hooks[i].WaitOver > 0
		for _, q := range hooks[i].Queues {
			patterns[q] = true
		}
	}
	list := make([]string, 0, len(patterns))
	for q := range patterns {
		list = append(list, q)
	}
	return p.cfg.Depths(ctx, ns, list, since)
}

// crossing is a queue that has crossed a threshold of a webhook, or one that was over and is under, whose row may soon be deleted.
type crossing struct {
	hook string
	Depth
	over bool
}

// crossed records which queues have crossed thresholds, in the entry that adds the notices. If a shard did not answer, the counts are too
// low: a queue may still be over, but none is taken to be under.
func (w *Webhooks) crossed(ctx context.Context, ns string, hooks []Webhook, depths []Depth, missing bool) error {
	all, err := system.View(ctx, w.shard, func(r store.Reader) (all []crossing, err error) {
		for i := range hooks {
			some, err := crossings(r, &hooks[i], depths, missing)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		return all, nil
	})
	if err != nil {
		return err
	}
	for some := range slices.Chunk(all, crossingsAtOnce) {
		dropped, err := system.Update(ctx, w.shard, func(tx *store.Tx) (dropped []string, err error) {
			for _, x := range some {
				full, err := cross(tx, ns, x)
				if err != nil {
					return nil, err
				}
				if full {
					dropped = append(dropped, x.hook)
				}
			}
			return dropped, nil
		})
		if err != nil {
			return err
		}
		w.droppedFor(ns, dropped, "too many are waiting for it already")
	}
	if len(all) > 0 {
		w.pokeDispatcher()
	}
	return nil
}

// crossings returns the queues that have crossed a threshold of a webhook since the last check, and those under it that still have a row. A
// queue that no longer exists is under.
func crossings(r store.Reader, h *Webhook, depths []Depth, missing bool) (all []crossing, err error) {
	was := map[string]bool{} // over
	lo := hookPrefix(system.OverTable, h.Namespace, h.Name)
	r.Scan(lo, system.PrefixEnd(lo), func(k, v []byte) bool {
		var l crossingState
		if l, err = system.DecodeRow[crossingState](k, v); err != nil {
			return false
		}
		was[string(k[len(lo):])] = !l.Under
		return true
	})
	if err != nil {
		return nil, err
	}
	within := task.Scope{Queues: h.Queues}
	for _, d := range depths {
		switch {
		case !within.Sees(d.Queue):
		case !was[d.Queue]:
			if h.exceeds(d) {
				delete(was, d.Queue)
				all = append(all, crossing{h.Name, d, true})
			}
		default:
			delete(was, d.Queue)
			if !missing && h.under(d) {
				all = append(all, crossing{h.Name, d, false})
			}
		}
	}
	for queue := range was {
		if !missing {
			all = append(all, crossing{h.Name, Depth{Queue: queue}, false})
		}
	}
	return all, nil
}

// cross records one crossing, if it still is one, unless it is too soon after the last for another notice. Then the next check sees it
// again.
func cross(tx *store.Tx, ns string, x crossing) (dropped bool, err error) {
	h, ok, err := system.GetRow[Webhook](tx, hookKey(ns, x.hook))
	if err != nil || !ok {
		return false, err
	}
	key := overKey(ns, x.hook, x.Queue)
	l, known, err := system.GetRow[crossingState](tx, key)
	switch over := known && !l.Under; {
	case err != nil:
		return false, err
	case over == x.over:
		if known && l.Under && !recently(l.OverTold, tx.Now()) && !recently(l.UnderTold, tx.Now()) {
			tx.Delete(key)
		}
		return false, nil
	case recently(*l.reportedAt(x.over), tx.Now()):
		return false, nil
	}
	kind := task.NotifyQueueUnder
	if l.Under = !x.over; x.over {
		kind, l.Since = task.NotifyQueueOver, tx.Now()
	}
	wants := h.wants(kind, x.Queue)
	if wants {
		*l.reportedAt(x.over) = tx.Now()
	}
	tx.Set(key, system.EncodeRow(l))
	if !wants {
		return false, nil
	}
	now := tx.Now().Time()
	return addNotice(tx, &h, task.Notification{Kind: kind, Namespace: ns, Queue: x.Queue, Count: 1, First: now, Last: now,
		Level: &task.NotificationLevel{Depth: x.Ready, Wait: x.Wait, DepthOver: h.DepthOver, WaitOver: h.WaitOver, Since: l.Since.Time()}})
}

// seenEvery is how often notifications that can't arrive again are forgotten.
const seenEvery = time.Hour

// forgetSeen deletes the records of notifications so old that they can't arrive again.
func (w *Webhooks) forgetSeen(ctx context.Context) error {
	recent := true
	w.seenAt.In(w.shard, func(at *time.Time) { recent = time.Since(*at) < seenEvery })
	if recent {
		return nil
	}
	limit := store.TimeOf(time.Now().Add(-task.NotificationWindow))
	old, err := system.View(ctx, w.shard, func(r store.Reader) (keys [][]byte, err error) {
		r.Scan([]byte{system.SeenTable}, []byte{system.SeenTable + 1}, func(k, v []byte) bool {
			if s, bad := system.DecodeRow[lastTaken](k, v); bad != nil {
				err = bad
			} else if s.At < limit {
				keys = append(keys, slices.Clone(k))
			}
			return err == nil && len(keys) < 10*crossingsAtOnce
		})
		return keys, err
	})
	if err != nil || len(old) == 0 {
		w.seenAt.In(w.shard, func(at *time.Time) { *at = time.Now() })
		return err
	}
	_, err = system.Update(ctx, w.shard, func(tx *store.Tx) (struct{}, error) {
		for _, k := range old {
			if s, ok, err := system.GetRow[lastTaken](tx, k); err != nil {
				return struct{}{}, err
			} else if ok && s.At < limit {
				tx.Delete(k)
			}
		}
		return struct{}{}, nil
	})
	return err
}
