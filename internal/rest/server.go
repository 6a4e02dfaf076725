package rest

import (
	"net/http"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

var serverRoutes = []Route{
	{"GET", "/api/v1/server", "OperatorService/GetServer", getServer},
	{"GET", "/api/v1/openapi.json", "", openAPI},
	{"GET", "/healthz", "", health},
	{"GET", "/readyz", "", ready},
	{"GET", "/metrics", "", metrics},
}

func openAPI(x *exchange) error {
	x.b = append(x.b, OpenAPI()...)
	return nil
}

func getServer(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	s, err := x.API.Operator.GetServer(x.ctx, &pawlv1.GetServerRequest{})
	if err != nil {
		return err
	}
	x.open('{')
	x.str("version", s.GetVersion())
	x.str("cluster_id", s.GetClusterId())
	x.str("node", s.GetNode())
	x.time("now", s.GetNow())
	x.shards(s.GetShards())
	x.close('}')
	return nil
}

func (x *exchange) shards(shards []*pawlv1.ShardInfo) {
	x.within("shards", '[')
	for _, i := range shards {
		x.open('{')
		x.num("shard", int64(i.GetShard()))
		x.opt("leader", i.GetLeader())
		x.num("index", int64(i.GetIndex()))
		x.num("term", int64(i.GetTerm()))
		x.close('}')
	}
	x.close(']')
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
		x.shards(is.Shards)
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
