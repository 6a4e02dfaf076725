package node

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/cluster/tokens"
	"github.com/pawlq/pawl/internal/task"
)

// newAuthenticator returns this node's Authenticator, which learns of tokens from the node's copy of the cluster's tables.
func newAuthenticator(cfg Config, current func() bool) *auth.Authenticator {
	config := auth.Config{Mode: cfg.Tokens, Current: current}
	if cfg.AdminToken != nil {
		config.Admin = func() (auth.Hash, bool) {
			token := cfg.AdminToken()
			return auth.HashOf(token), token != ""
		}
	}
	return auth.NewAuthenticator(config)
}

// requireRetryPause is the pause before telling the cluster again.
const requireRetryPause = time.Second

// requireTokens tells the cluster, once in the node's life, whether calls need a token, as configured at this node. A node without
// that setting follows the cluster.
func (n *Node) requireTokens(ctx context.Context) {
	if n.cfg.Tokens == TokensAsCluster {
		return
	}
	on := n.cfg.Tokens == TokensAlways
	by := task.Author{Name: n.cfg.Name, Face: task.FaceNode, Reason: "--auth"}
	for said := false; ; said = true {
		_, err := cluster.RequireTokens.Call(ctx, n.router, cluster.TokensRequired{By: by, On: on})
		if err == nil || ctx.Err() != nil {
			return
		}
		if !said {
			n.cfg.Logger.Warn("the other nodes could not be told whether calls need a token: those without --auth are unchanged", "needed_here", on, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(requireRetryPause):
		}
	}
}

// refusalsEvery is how often refused callers are recorded in the audit log: one entry for all of them, so that outsiders cannot
// fill it.
const refusalsEvery = time.Minute

// noteRefusals records refused callers until ctx ends.
func (n *Node) noteRefusals(ctx context.Context) {
	tick := time.NewTicker(refusalsEvery)
	defer tick.Stop()
	told, _ := n.auth.Refused()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, source := n.auth.Refused()
		if now == told {
			continue
		}
		since := func(f auth.Failure) uint64 { return now[f] - told[f] }
		r := tokens.Refusals{NoToken: since(auth.FailedNone), Malformed: since(auth.FailedForm), Unknown: since(auth.FailedUnknown), Expired: since(auth.FailedExpired),
			Denied: since(auth.FailedRights), Signature: since(auth.FailedSignature)}
		by := task.Author{Name: n.cfg.Name, Face: task.FaceNode, Address: source}
		if _, err := cluster.NoteRefusals.Call(ctx, n.router, cluster.RefusalsSeen{By: by, Refusals: r}); err == nil {
			told = now
		}
	}
}

// leadsAlone reports whether this node is alone in its cluster and leads it. Then nobody waits for its heartbeats, and its copy is
// at most as stale as a poll takes to return. With tokens it reports their use, and polls as often as in a larger cluster.
func (n *Node) leadsAlone() bool {
	rep := n.replicas.get(systemShard)
	if rep == nil || n.hasPeers() || n.auth.TokensRequired() {
		return false
	}
	return rep.shard.Leads()
}

// fetch asks the leader of the system shard for the changes since a version, and sends it this node's report.
func (n *Node) fetch(ctx context.Context, after uint64, wait time.Duration) (cluster.Delta, error) {
	if n.leadsAlone() {
		wait = cluster.OwnPollWait
		n.waitsForOwn.Store(true)
	}
	report := n.report()
	uses, told := n.auth.Uses()
	report.Uses = uses
	d, err := n.system.changes(ctx, changesArgs{After: after, Report: report, Wait: wait})
	if err != nil {
		n.waitsForOwn.Store(false)
		n.leaveIfRemoved(err)
		return d, err
	}
	told()
	return d, nil
}

// noteCurrent records that the copy of the cluster's tables matched them at a time.
func (n *Node) noteCurrent(at time.Time) {
	n.auth.Refreshed(at)
	n.heard.Store(time.Now().UnixNano())
	n.waitsForOwn.Store(false) // until it waits again: until then the copy is new enough
}
