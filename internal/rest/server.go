package rest

import (
	"net/http"

	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/task"
)

// serverRoutes are the routes without an rpc.
var serverRoutes = []*Route{
	{Method: "GET", Path: "/api/v1/openapi.json", handle: openAPI},
	{Method: "GET", Path: "/healthz", handle: health},
	{Method: "GET", Path: "/readyz", handle: ready},
	{Method: "GET", Path: "/metrics", handle: metrics},
}

func openAPI(x *exchange) error {
	x.B = append(x.B, OpenAPI()...)
	return nil
}

// health reports that the process is alive.
func health(x *exchange) error {
	x.Open('{')
	x.Str("status", "ok")
	x.Close('}')
	return nil
}

// ready reports whether calls will be served: the node is ready for them and not shutting down.
func ready(x *exchange) error {
	is, err := x.Ready(x.ctx)
	if err != nil {
		return err
	}
	if !is.OK {
		x.status = http.StatusServiceUnavailable
	}
	x.Open('{')
	x.Str("status", is.Status)
	if is.Shards != nil {
		apijson.List(&x.Writer, "shards", is.Shards)
	}
	x.Close('}')
	return nil
}

// metrics serves Prometheus's metrics.
func metrics(x *exchange) error {
	if x.Metrics == nil {
		return task.NotFound("path", x.r.URL.Path)
	}
	x.sent = true
	x.Metrics.ServeHTTP(x.w, x.r)
	return nil
}
