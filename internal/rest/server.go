package rest

import (
	"net/http"

	"github.com/pawlq/pawl/internal/task"
)

// serverRoutes stand for no rpc.
var serverRoutes = []*Route{
	{Method: "GET", Path: "/api/v1/openapi.json", handle: openAPI},
	{Method: "GET", Path: "/healthz", handle: health},
	{Method: "GET", Path: "/readyz", handle: ready},
	{Method: "GET", Path: "/metrics", handle: metrics},
}

func openAPI(x *exchange) error {
	x.b = append(x.b, OpenAPI()...)
	return nil
}

// health says that the process lives.
func health(x *exchange) error {
	x.open('{')
	x.str("status", "ok")
	x.close('}')
	return nil
}

// ready says whether calls will be served: the node is ready for them, and does not shut down.
func ready(x *exchange) error {
	is, err := x.Ready(x.ctx)
	if err != nil {
		return err
	}
	if !is.OK {
		x.status = http.StatusServiceUnavailable
	}
	x.open('{')
	x.str("status", is.Status)
	if is.Shards != nil {
		list(x, "shards", is.Shards)
	}
	x.close('}')
	return nil
}

// metrics is what Prometheus reads.
func metrics(x *exchange) error {
	if x.Metrics == nil {
		return task.NotFound("path", x.r.URL.Path)
	}
	x.sent = true
	x.Metrics.ServeHTTP(x.w, x.r)
	return nil
}
