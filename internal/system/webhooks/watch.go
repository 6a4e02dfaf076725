package webhooks

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
)

// What the webhooks of a namespace together subscribe to is copied into the data shards, with a version: they decide by their copies. The
// leader of the system shard sends each to all shards when it changes, and again when it has become leader.

const (
	// tellTime is how long a change of a webhook waits for the shards to learn of it.
	tellTime = time.Second
	// watchesAtOnce is how many namespaces one call sends to a shard.
	watchesAtOnce = 20
)

func watchVersionKey(ns string) []byte { return append([]byte{system.WatchTable}, ns...) }

// watchChanged gives a namespace's subscriptions a new version.
func watchChanged(tx *store.Tx, ns string) {
	tx.Set(watchVersionKey(ns), system.EncodeNumber(tx.NextSeq()))
}

// Forget removes the version of a namespace's subscriptions.
func Forget(tx *store.Tx, ns string) { tx.Delete(watchVersionKey(ns)) }

// readWatches reads what webhooks subscribe to, by namespace: a namespace that has no webhooks any more has no rules.
func readWatches(r store.Reader) (map[string]task.Watch, error) {
	all := map[string]task.Watch{}
	var names []string
	r.Scan([]byte{system.WatchTable}, []byte{system.WatchTable + 1}, func(k, _ []byte) bool {
		names = append(names, string(k[1:]))
		return true
	})
	for _, ns := range names {
		n, err := namespaces.Get(r, ns)
		if err != nil && !errors.Is(err, task.ErrNotFound) {
			return nil, err
		}
		all[ns] = task.Watch{Version: system.GetNumber(r, watchVersionKey(ns)), Since: n.Since}
	}
	hooks, err := system.ScanRows[Webhook](r, system.HookTable)
	for i := range hooks {
		h := &hooks[i]
		kinds := slices.DeleteFunc(slices.Clone(h.Events), task.NotificationKind.OfThreshold) // the system shard detects those itself
		if h.disabled() || len(kinds) == 0 {
			continue
		}
		w := all[h.Namespace]
		w.Rules = append(w.Rules, task.WatchRule{Kinds: kinds, Queues: h.Queues})
		all[h.Namespace] = w
	}
	return all, err
}

// watchVersions holds which versions of watches a shard is known to have, by namespace.
type watchVersions map[string]uint64

// unconfirmed returns the watches that a shard is not known to have.
func (w *Webhooks) unconfirmed(shard uint32, all map[string]task.Watch) map[string]task.Watch {
	lack := map[string]task.Watch{}
	w.confirmed.In(w.shard, func(known *map[uint32]watchVersions) {
		for ns, of := range all {
			if (*known)[shard][ns] < of.Version {
				lack[ns] = of
			}
		}
	})
	return lack
}

// confirm notes that a shard has some watches.
func (w *Webhooks) confirm(shard uint32, some map[string]task.Watch) {
	w.confirmed.In(w.shard, func(known *map[uint32]watchVersions) {
		if *known == nil {
			*known = map[uint32]watchVersions{}
		}
		if (*known)[shard] == nil {
			(*known)[shard] = watchVersions{}
		}
		for ns, of := range some {
			(*known)[shard][ns] = max((*known)[shard][ns], of.Version)
		}
	})
}

// TellShards sends the data shards the watches of a namespace, or of all for "", that they lack, and returns those that did not confirm
// them in time.
func (w *Webhooks) TellShards(ctx context.Context, ns string) (unconfirmed []uint32, err error) {
	type rows struct {
		watches map[string]task.Watch
		shards  []uint32
	}
	is, err := system.View(ctx, w.shard, func(r store.Reader) (is rows, err error) {
		settings, _, err := system.GetRow[system.Settings](r, system.SettingsKey)
		if err == nil {
			is.shards = system.DataShards(settings.DataShards)
			is.watches, err = readWatches(r)
			maps.DeleteFunc(is.watches, func(of string, _ task.Watch) bool { return ns != "" && of != ns })
		}
		return is, err
	})
	if err != nil || !w.shard.Leads() || len(is.watches) == 0 {
		return nil, err
	}
	_, errs := parallel.Ask(ctx, tellTime, len(is.shards), func(ctx context.Context, i int) (none struct{}, err error) {
		shard := is.shards[i]
		lack := w.unconfirmed(shard, is.watches)
		for names := range slices.Chunk(slices.Sorted(maps.Keys(lack)), watchesAtOnce) {
			some := map[string]task.Watch{}
			for _, ns := range names {
				some[ns] = lack[ns]
			}
			if err := w.copyWatches(ctx, shard, some); err != nil {
				return none, err
			}
			w.confirm(shard, some)
		}
		return none, nil
	})
	for i, err := range errs {
		if err != nil {
			unconfirmed = append(unconfirmed, is.shards[i])
		}
	}
	return unconfirmed, nil
}
