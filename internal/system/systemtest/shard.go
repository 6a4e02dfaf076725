package systemtest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
)

// Open founds a cluster with some data shards, and returns its system shard, whose leader has no other parts.
func (w *World) Open(shards int) *system.Shard {
	w.T.Helper()
	r := w.NewReplica()
	shard := system.NewShard(r)
	r.Leader = LeaderOf(shard)
	r.Lead()
	w.Put(system.SettingsKey, system.EncodeRow(system.Settings{Replication: 1, Level: 1, NextNode: 2, DataShards: shards}))
	return shard
}

// LeaderOf returns a Leader that has no parts beside the shard.
func LeaderOf(s *system.Shard) Leader { return leader{s} }

type leader struct{ *system.Shard }

func (l leader) Elected()     { l.Shard.Elected() }
func (l leader) Dropped(bool) { l.Shard.Dropped() }

// Put writes a row in a round of the leader's.
func (w *World) Put(key, value []byte) {
	w.T.Helper()
	w.Round(func(tx *store.Tx) { tx.Set(key, value) })
}

// Damage makes a row unreadable.
func (w *World) Damage(key []byte) {
	w.T.Helper()
	w.Put(key, []byte{99})
}

// Round runs a round of the leader's.
func (w *World) Round(fn func(tx *store.Tx)) {
	w.T.Helper()
	if err := w.leader.Update(context.Background(), func(tx *store.Tx) error { fn(tx); return nil }); err != nil {
		w.T.Fatal(err)
	}
}

// Get reads a row; nil: there is none.
func (w *World) Get(key []byte) []byte {
	snap := w.State.Snapshot()
	defer snap.Close()
	value, _ := snap.Get(key)
	return slices.Clone(value)
}

// Audited returns what the audit log says of a namespace and the cluster, oldest first, and checks that its chain is intact.
func (w *World) Audited(ns string) (all []string) {
	w.T.Helper()
	snap := w.State.Snapshot()
	defer snap.Close()
	page, err := audit.Read(snap, 0, audit.Query{Namespace: ns}, nil, 1000)
	if err != nil {
		w.T.Fatal(err)
	}
	if problems := audit.Check(snap); len(problems) > 0 {
		w.T.Errorf("the audit log: %q", problems)
	}
	for _, e := range slices.Backward(page.Entries) {
		all = append(all, strings.TrimRight(fmt.Sprintf("%s %s %s %s: %s → %s", e.By.Name, e.Action, e.Target.Kind, e.Target.Name,
			e.Before, e.After), " "))
	}
	return all
}
