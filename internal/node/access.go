package node

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// newDoor makes the door of this node, which hears of tokens by the node's copy.
func newDoor(cfg Config, current func() bool) *auth.Door {
	door := auth.Config{Mode: cfg.Tokens, Current: current}
	if cfg.AdminToken != nil {
		door.Admin = func() (auth.Hash, bool) {
			token := cfg.AdminToken()
			return auth.HashOf(token), token != ""
		}
	}
	return auth.NewDoor(door)
}

// requireRest is the pause after the cluster could not be told.
const requireRest = time.Second

// requireTokens tells the cluster, once in the node's life, what this node was told. A node that was told nothing follows.
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
			n.cfg.Logger.Warn("the other nodes are not told whether calls need a token: those without --auth go on as before", "needed_here", on, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(requireRest):
		}
	}
}

// refusalsEvery is how often callers who were not let in are noted in the audit: one entry for all of them, so that nobody fills it from outside.
const refusalsEvery = time.Minute

// noteRefusals notes callers who were not let in, until ctx ends.
func (n *Node) noteRefusals(ctx context.Context) {
	tick := time.NewTicker(refusalsEvery)
	defer tick.Stop()
	told, _ := n.door.Refused()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, source := n.door.Refused()
		if now == told {
			continue
		}
		since := func(f auth.Failure) uint64 { return now[f] - told[f] }
		r := cluster.Refusals{NoToken: since(auth.FailedNone), Malformed: since(auth.FailedForm), Unknown: since(auth.FailedUnknown), Expired: since(auth.FailedExpired),
			Denied: since(auth.FailedRights), Signature: since(auth.FailedSignature)}
		by := task.Author{Name: n.cfg.Name, Face: task.FaceNode, Address: source}
		if _, err := cluster.NoteRefusals.Call(ctx, n.router, cluster.RefusalsSeen{By: by, Refusals: r}); err == nil {
			told = now
		}
	}
}

// asksItself says whether this node is all of its cluster and leads it, so that nobody waits for a sign of its life, and its copy lacks
// nothing for longer than a poll takes to return. With tokens it tells of their use, and goes by the beat of other nodes.
func (n *Node) asksItself() bool {
	rep := n.replicas.get(systemShard)
	if rep == nil || n.hasPeers() || n.door.On() {
		return false
	}
	return rep.shard.Leads()
}

// fetch asks the leader of the system shard what the copy lacks, and tells it how this node is.
func (n *Node) fetch(ctx context.Context, after uint64, wait time.Duration) (cluster.Delta, error) {
	if n.asksItself() {
		wait = cluster.OwnPollWait
		n.waits.Store(true)
	}
	report := n.report()
	uses, told := n.door.Uses()
	report.Uses = uses
	d, err := n.system.changes(ctx, changesArgs{After: after, Report: report, Wait: wait})
	if err != nil {
		n.waits.Store(false)
		n.leaveIfRemoved(err)
		return d, err
	}
	told()
	return d, nil
}

// current notes that the copy of the cluster's tables is as new as they were at a time.
func (n *Node) current(at time.Time) {
	n.door.Heard(at)
	n.heard.Store(time.Now().UnixNano())
	n.waits.Store(false) // until it waits again: for that moment the copy is new enough
}
