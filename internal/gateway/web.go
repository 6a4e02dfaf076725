package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"google.golang.org/grpc"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/gateway/access"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/send"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/task"
)

// newREST returns the handler of REST. It calls the same methods as gRPC, and its requests are calls like gRPC's.
func (g *Gateway) newREST() http.Handler {
	return g.answers.Handler(rest.New(rest.Config{
		Register: func(s grpc.ServiceRegistrar) {
			g.services.register(g.answers.Registrar(access.RecordReads(s, g.cfg.Trail)))
		}, Events: g.services.event.Watch,
		Call: g.webCall, Ready: g.ready, Batch: g.cfg.Limits.Batch,
		Large: g.memory.Large, Extra: g.memory.Extra, Namespace: callinfo.Namespace, Sends: send.Sends,
		Misdirected: g.access.CheckHost, Pages: g.answers.Pages(g.cfg.Pages), Metrics: g.cfg.Metrics, BasePath: g.cfg.BasePath,
	}))
}

// webCall runs a REST request as a call, as unary does for gRPC.
func (g *Gateway) webCall(r *http.Request, on *rest.Route, handle func(context.Context) error) (came rest.Outcome) {
	began := time.Now()
	ctx, c := callinfo.Begin(r.Context(), task.InterfaceREST, on.String())
	c.Web = r
	err := g.runWebCall(ctx, c, on, handle)
	g.observer.Observed(c, err, time.Since(began))
	if err != nil {
		came.Refusal = g.Refusal(err)
	}
	came.Shard, came.Index, came.Time, _ = c.Stamp()
	return came
}

func (g *Gateway) runWebCall(ctx context.Context, c *callinfo.Call, on *rest.Route, handle func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = callinfo.Panicked(c.Web.Method+" "+c.Web.URL.Path, p)
		}
	}()
	ctx, leave, err := g.access.AdmitREST(ctx, c, on)
	defer leave()
	if err != nil {
		return err
	}
	return callinfo.ErrorOf(ctx, handle(ctx))
}

var errDraining = errors.New("shutting down")

// ready reports whether the node should get calls now. Anybody may ask, and gets no more than that: names of nodes, and how fast
// logs grow, are only for those who may know of the cluster.
func (g *Gateway) ready(ctx context.Context) (rest.Readiness, error) {
	var s *pawlv1.GetServerResponse
	knows := g.access.KnowsCluster(ctx)
	if knows { // other callers make no node ask another
		var err error
		if s, err = g.services.operator.GetServer(ctx, &pawlv1.GetServerRequest{}); err != nil {
			return rest.Readiness{}, err
		}
	}
	why := g.whyNotReady()
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

// whyNotReady returns why the node should get no calls now.
func (g *Gateway) whyNotReady() error {
	if g.claims.isDraining() {
		return errDraining
	}
	return g.cfg.Ready()
}
