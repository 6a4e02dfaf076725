package gateway

import (
	_ "embed"
	"errors"
	"net/http"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

var serverRoutes = []route{
	{"GET", "/api/v1/server", restGetServer},
	{"GET", "/api/v1/openapi.json", restOpenAPI},
	{"GET", "/healthz", restHealth},
	{"GET", "/readyz", restReady},
	{"GET", "/metrics", restMetrics},
}

// openAPI describes REST for programs. It is written by hand; tests hold it and the handlers together.
//
//go:embed openapi.json
var openAPI []byte

func restOpenAPI(x *exchange) error {
	x.b = append(x.b, openAPI...)
	return nil
}

func restGetServer(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	s, err := operators{Gateway: x.Gateway}.GetServer(x.ctx, &pawlv1.GetServerRequest{})
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

// restHealth says that the process lives.
func restHealth(x *exchange) error {
	x.open('{')
	x.str("status", "ok")
	x.close('}')
	return nil
}

// restReady says whether calls will be served: the node is ready for them, and does not shut down.
func restReady(x *exchange) error {
	s, err := operators{Gateway: x.Gateway}.GetServer(x.ctx, &pawlv1.GetServerRequest{})
	if err != nil {
		return err
	}
	status := "ok"
	if err := x.ready(s); err != nil {
		status = err.Error()
	}
	if x.isDraining() {
		status = "shutting down"
	}
	if status != "ok" {
		x.status = http.StatusServiceUnavailable
	}
	x.open('{')
	x.str("status", status)
	x.shards(s.GetShards())
	x.close('}')
	return nil
}

// restMetrics is what Prometheus reads.
func restMetrics(x *exchange) error {
	if x.cfg.Metrics == nil {
		return task.NotFound("path", x.r.URL.Path)
	}
	x.sent = true
	x.cfg.Metrics.ServeHTTP(x.w, x.r)
	return nil
}

var errNoLeader = errors.New("no leader")

// ready says why the node should get no calls now.
func (g *Gateway) ready(s *pawlv1.GetServerResponse) error {
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
