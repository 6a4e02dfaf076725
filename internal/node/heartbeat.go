package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// heartbeat keeps this node's copy of the cluster's tables current by asking the leader of the system shard for changes. The same
// call tells the leader that the node is up, and its state.
type heartbeat struct {
	cfg      Config
	identity *datadir.IdentityStore
	copy     *cluster.Copy
	replicas *replicas
	auth     *auth.Authenticator
	verbs    verb.Runner
	report   func() cluster.Report
	fail     func(error)

	heard       atomic.Int64 // when the system shard's leader was last heard from, in Unix nanoseconds
	waitsForOwn atomic.Bool  // this node waits for its own changes, which arrive without delay
}

// announce tells the cluster this node's address and capabilities, once in its life.
func (h *heartbeat) announce(ctx context.Context) {
	p := cluster.Presence{Number: h.identity.Read().Node, PeerAddress: h.cfg.PeerAddress, APIAddress: h.cfg.APIAddress,
		Version: h.cfg.Version, MinLevel: minLevel, MaxLevel: maxLevel}
	for {
		_, err := cluster.Announce.Call(ctx, h.verbs, p)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case errors.Is(err, task.ErrWrongState): // this version of the program can't work there
			h.fail(err)
			return
		}
		h.cfg.Logger.Warn("the cluster doesn't know this node's address yet", "error", err)
		if pause(ctx, time.Second) != nil {
			return
		}
	}
}

// follow keeps the copy current until ctx ends.
func (h *heartbeat) follow(ctx context.Context) { h.copy.Follow(ctx, h.fetch, h.noteCurrent) }

// fetch asks the leader of the system shard for the changes since a version, and sends it this node's report.
func (h *heartbeat) fetch(ctx context.Context, after uint64, wait time.Duration) (cluster.Delta, error) {
	if h.leadsAlone() {
		wait = cluster.OwnPollWait
		h.waitsForOwn.Store(true)
	}
	report := h.report()
	uses, reported := h.auth.Uses()
	report.Uses = uses
	d, err := cluster.Changes.Call(ctx, h.verbs, cluster.ChangesCall{After: after, Report: report, Wait: wait})
	if err != nil {
		h.waitsForOwn.Store(false)
		h.leaveIfRemoved(err)
		return d, err
	}
	reported()
	return d, nil
}

// leadsAlone reports whether this node is alone in its cluster and leads it. Then nobody waits for its heartbeats, and its copy is
// at most as stale as a poll takes to return. With tokens it reports their use, and polls as often as in a larger cluster.
func (h *heartbeat) leadsAlone() bool {
	rep := h.replicas.get(systemShard)
	if rep == nil || hasPeers(h.copy.Map()) || h.auth.TokensRequired() {
		return false
	}
	return rep.shard.Leads()
}

// noteCurrent records that the copy of the cluster's tables matched them at a time.
func (h *heartbeat) noteCurrent(at time.Time) {
	h.auth.Refreshed(at)
	h.heard.Store(time.Now().UnixNano())
	h.waitsForOwn.Store(false) // until it waits again: until then the copy is new enough
}

// age returns how old the copy may be.
func (h *heartbeat) age() time.Duration {
	if h.waitsForOwn.Load() {
		return 0
	}
	return time.Since(time.Unix(0, h.heard.Load()))
}

// leaveIfRemoved ends the node if the cluster says that it is no longer a member.
func (h *heartbeat) leaveIfRemoved(err error) {
	if e, ok := task.AsError(err); ok && e.Code == task.CodeWrongState {
		h.fail(fmt.Errorf("this node is no longer a member: %w; the cluster has no use for its data directory %s", err, h.cfg.Dir))
	}
}
