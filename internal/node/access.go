package node

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/task"
)

// tokens are the calls on tokens and namespaces, wherever the system shard is led: it is the gateway.Tokens.
type tokens struct {
	add, rotate, revoke func(context.Context, cluster.TokenCall) (tokenAnswer, error)
	list                func(context.Context, auth.Rights) ([]auth.Token, error)
	make                func(context.Context, cluster.NamespaceCall) ([]string, error)
	remove, quotas      func(context.Context, namespaceArgs) ([]string, error)
	namespaces          func(context.Context, struct{}) ([]cluster.NamespaceInfo, error)
	require             func(context.Context, requireArgs) (struct{}, error)
	refused             func(context.Context, refusedArgs) (struct{}, error)
}

type refusedArgs struct {
	By       task.Author
	Refusals cluster.Refusals
}

type namespaceArgs struct {
	By     task.Author
	Name   string
	Quotas task.QuotaChange
}

type requireArgs struct {
	By task.Author
	On bool
}

// tokenAnswer is a token and who has not confirmed the change.
type tokenAnswer struct {
	Token  auth.Token
	Behind []string
}

func newTokens(r *router.Router, c *cluster.Control) *tokens {
	onToken := func(name string, again bool, do func(context.Context, cluster.TokenCall) (cluster.TokenDone, error)) func(context.Context, cluster.TokenCall) (tokenAnswer, error) {
		return router.OnSystem(r, name, again, func(ctx context.Context, a cluster.TokenCall) (out tokenAnswer, err error) {
			done, err := do(ctx, a)
			if err != nil {
				return out, err
			}
			out.Token = done.Token
			out.Behind, err = c.Confirm(ctx, done.Version)
			return out, err
		})
	}
	onNamespace := func(name string, again bool, do func(context.Context, namespaceArgs) (uint64, error)) func(context.Context, namespaceArgs) ([]string, error) {
		return router.OnSystem(r, name, again, func(ctx context.Context, a namespaceArgs) ([]string, error) { return confirmed(ctx, c, a, do) })
	}
	return &tokens{
		add:    onToken("add-token", true, c.AddToken),
		rotate: onToken("rotate-token", true, c.RotateToken),
		revoke: onToken("revoke-token", false, c.RevokeToken), // a repeat would not find it
		list:   router.OnSystem(r, "tokens", true, c.Tokens),
		make: router.OnSystem(r, "add-namespace", true, func(ctx context.Context, a cluster.NamespaceCall) ([]string, error) {
			return confirmed(ctx, c, a, c.AddNamespace)
		}),
		remove: onNamespace("remove-namespace", false, func(ctx context.Context, a namespaceArgs) (uint64, error) {
			return c.RemoveNamespace(ctx, a.By, a.Name)
		}),
		quotas: onNamespace("set-quotas", true, func(ctx context.Context, a namespaceArgs) (uint64, error) {
			return c.SetQuotas(ctx, a.By, a.Name, a.Quotas)
		}),
		namespaces: router.OnSystem(r, "namespaces", true, func(ctx context.Context, _ struct{}) ([]cluster.NamespaceInfo, error) {
			return c.Namespaces(ctx)
		}),
		require: onSystem(r, "require-tokens", func(ctx context.Context, a requireArgs) error { return c.RequireTokens(ctx, a.By, a.On) }),
		refused: onSystem(r, "note-refusals", func(ctx context.Context, a refusedArgs) error { return c.NoteRefusals(ctx, a.By, a.Refusals) }),
	}
}

// confirmed does what changes the tables and waits until the nodes have heard of it.
func confirmed[A any](ctx context.Context, c *cluster.Control, args A, do func(context.Context, A) (uint64, error)) ([]string, error) {
	version, err := do(ctx, args)
	if err != nil {
		return nil, err
	}
	return c.Confirm(ctx, version)
}

// AddToken implements gateway.Tokens.
func (t *tokens) AddToken(ctx context.Context, c cluster.TokenCall) (auth.Token, []string, error) {
	a, err := t.add(ctx, c)
	return a.Token, a.Behind, err
}

// RotateToken implements gateway.Tokens.
func (t *tokens) RotateToken(ctx context.Context, c cluster.TokenCall) (auth.Token, []string, error) {
	a, err := t.rotate(ctx, c)
	return a.Token, a.Behind, err
}

// RevokeToken implements gateway.Tokens.
func (t *tokens) RevokeToken(ctx context.Context, c cluster.TokenCall) ([]string, error) {
	a, err := t.revoke(ctx, c)
	return a.Behind, err
}

// Tokens implements gateway.Tokens.
func (t *tokens) Tokens(ctx context.Context, by auth.Rights) ([]auth.Token, error) {
	return t.list(ctx, by)
}

// AddNamespace implements gateway.Tokens.
func (t *tokens) AddNamespace(ctx context.Context, c cluster.NamespaceCall) ([]string, error) {
	return t.make(ctx, c)
}

// SetQuotas implements gateway.Tokens.
func (t *tokens) SetQuotas(ctx context.Context, by task.Author, name string, to task.QuotaChange) ([]string, error) {
	return t.quotas(ctx, namespaceArgs{by, name, to})
}

// RemoveNamespace implements gateway.Tokens.
func (t *tokens) RemoveNamespace(ctx context.Context, by task.Author, name string) ([]string, error) {
	return t.remove(ctx, namespaceArgs{By: by, Name: name})
}

// Namespaces implements gateway.Tokens.
func (t *tokens) Namespaces(ctx context.Context) ([]cluster.NamespaceInfo, error) {
	return t.namespaces(ctx, struct{}{})
}

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
		_, err := n.tokens.require(ctx, requireArgs{by, on})
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
		if _, err := n.tokens.refused(ctx, refusedArgs{by, r}); err == nil {
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
	_, leads := rep.shard.Now()
	return leads
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
