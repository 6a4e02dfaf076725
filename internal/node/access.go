package node

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/system/tokens"
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

// accessNotices tell the cluster what this node knows about access.
type accessNotices struct {
	cfg    Config
	auth   *auth.Authenticator
	router *router.Router
}

// requireRetryPause is the pause before telling the cluster again.
const requireRetryPause = time.Second

// requireTokens tells the cluster, once in the node's life, whether calls need a token, as configured at this node. A node without
// that setting follows the cluster.
func (a accessNotices) requireTokens(ctx context.Context) {
	if a.cfg.Tokens == TokensAsCluster {
		return
	}
	on := a.cfg.Tokens == TokensAlways
	by := task.Author{Name: a.cfg.Name, Interface: task.InterfaceNode, Reason: "--auth"}
	for logged := false; ; logged = true {
		_, err := tokens.Require.Call(ctx, a.router, tokens.Required{By: by, On: on})
		if err == nil || ctx.Err() != nil {
			return
		}
		if !logged {
			a.cfg.Logger.Warn("the setting of --auth could not be sent to the other nodes: those without --auth keep theirs",
				"needed_here", on, "error", err)
		}
		if pause(ctx, requireRetryPause) != nil {
			return
		}
	}
}

// endSession ends a session of the web UI. A node that has not confirmed that does not rely on its copy of the tables for long.
func (a accessNotices) endSession(ctx context.Context, x auth.Session) error {
	_, err := tokens.EndSession.Call(ctx, a.router, x)
	if err != nil {
		a.cfg.Logger.Warn("a session of the web UI could not be ended on all nodes: copies of its cookie are valid until it ends by itself",
			"error", err)
	}
	return err
}
