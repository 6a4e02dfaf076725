package access

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// maxPublicCalls bounds the calls of a connection that need no token: health checks and reflection.
	maxPublicCalls = 8
	// publicCallRetryAfter is when such a call that exceeded the limit may be retried.
	publicCallRetryAfter = 5 * time.Second
)

// AdmitGRPC admits a call of gRPC by its headers, as admit does. The caller must call leave at its end.
func (g *Guard) AdmitGRPC(ctx context.Context, c *callinfo.Call, n Need) (_ context.Context, leave func(), err error) {
	if n.Reach != Public {
		return g.admit(ctx, c, n, GRPCCredentials(ctx))
	}
	publicCalls := listen.InfoOf(ctx).PublicCalls
	if publicCalls == nil {
		return ctx, func() {}, nil
	}
	leave = func() { publicCalls.Add(-1) }
	if publicCalls.Add(1) > maxPublicCalls {
		return ctx, leave, task.Unavailable(publicCallRetryAfter,
			"%d calls that need no token are in progress on this connection, the maximum", maxPublicCalls)
	}
	return ctx, leave, nil
}

// AdmitREST admits a request of REST, as admit does.
func (g *Guard) AdmitREST(ctx context.Context, c *callinfo.Call, on *rest.Route) (_ context.Context, leave func(), err error) {
	return g.admit(ctx, c, NeedOfRoute(on), restCredentials(c.Web))
}

// KnowsCluster reports whether the caller, which needs no token for this call, may know of the cluster.
func (g *Guard) KnowsCluster(ctx context.Context) bool {
	c := callinfo.Of(ctx)
	s := restCredentials(c.Web)
	if len(s.tokens) == 0 && s.certificate == nil && g.auth.TokensRequired() {
		return false
	}
	v, err := g.Authenticate(s)
	if err != nil {
		// it is answered like a stranger, and immediately: a probe that waits takes a healthy node for a dead one
		g.refused(ctx, c, err, false)
		return false
	}
	return Need{Reach: OfCluster}.Allows(v) == nil
}
