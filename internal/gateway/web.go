package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/rest"
)

// newREST returns the handler of REST. It calls the same methods as gRPC, and its requests are calls like gRPC's.
func (g *Gateway) newREST() http.Handler {
	return rest.New(rest.Config{
		Register: g.register, Events: g.watchEvents,
		Call: g.webCall, Ready: g.ready, Batch: g.limits.Batch,
		Large: g.large, Extra: g.extra, Namespace: namespaceOf,
		Misdirected: g.misdirected, Pages: g.cfg.Pages, Metrics: g.cfg.Metrics, BasePath: g.cfg.BasePath,
	})
}

// webCall runs a REST request as a call, as unary does for gRPC.
func (g *Gateway) webCall(r *http.Request, on *rest.Route, handle func(context.Context) error) (came rest.Outcome) {
	began := time.Now()
	ctx, c := begin(r.Context(), "rest", on.String())
	c.web = r
	err := g.runWebCall(ctx, c, on, handle)
	g.observed(c, err, time.Since(began))
	if err != nil {
		came.Refusal = g.refusal(err)
	}
	came.Shard, came.Index, came.Time, _ = c.stamp()
	return came
}

func (g *Gateway) runWebCall(ctx context.Context, c *call, on *rest.Route, handle func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = g.panicked(c.web.Method+" "+c.web.URL.Path, p)
		}
	}()
	ctx, leave, err := g.admit(ctx, c, needOfRoute(on), restCredentials(c.web))
	defer leave()
	if err != nil {
		return err
	}
	return callError(ctx, handle(ctx))
}

var (
	errNoLeader = errors.New("no leader")
	errDraining = errors.New("shutting down")
)

// ready reports whether the node should get calls now. Anybody may ask, and gets no more than that: names of nodes, and how fast
// logs grow, are only for those who may know of the cluster.
func (g *Gateway) ready(ctx context.Context) (rest.Readiness, error) {
	var s *pawlv1.GetServerResponse
	knows := g.knowsCluster(ctx)
	if knows || g.cfg.Ready == nil { // other callers make no node ask another
		var err error
		if s, err = (operatorService{Gateway: g}).GetServer(ctx, &pawlv1.GetServerRequest{}); err != nil {
			return rest.Readiness{}, err
		}
	}
	why := g.whyNotReady(s)
	switch {
	case why == nil && knows:
		return rest.Readiness{OK: true, Status: "ok", Shards: s.GetShards()}, nil
	case why == nil:
		return rest.Readiness{OK: true, Status: "ok"}, nil
	case knows:
		return rest.Readiness{Status: why.Error(), Shards: s.GetShards()}, nil
	}
	return rest.Readiness{Status: "not ready"}, nil
}

// knowsCluster reports whether the caller, which needs no token for this call, may know of the cluster.
func (g *Gateway) knowsCluster(ctx context.Context) bool {
	c := callOf(ctx)
	s := restCredentials(c.web)
	if len(s.tokens) == 0 && s.certificate == nil && g.auth.TokensRequired() {
		return false
	}
	v, err := g.authenticate(s)
	if err != nil {
		g.refused(ctx, c, err, false) // it is answered like a stranger, and immediately: a probe that waits takes a healthy node for a dead one
		return false
	}
	return v.may(need{reach: ofCluster}) == nil
}

// whyNotReady returns why the node should get no calls now.
func (g *Gateway) whyNotReady(s *pawlv1.GetServerResponse) error {
	if g.isDraining() {
		return errDraining
	}
	if g.cfg.Ready != nil {
		return g.cfg.Ready()
	}
	for _, i := range s.GetShards() {
		if i.GetLeader() == "" {
			return errNoLeader
		}
	}
	return nil
}
