package gateway

import (
	"context"
	"time"

	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// readyEvery is how often watchers of gRPC's health service learn whether the node is ready.
const readyEvery = time.Second

// healthService is gRPC's health service. It checks whether the node is ready when asked, so it costs nothing otherwise.
type healthService struct {
	*health.Server
	g *Gateway
}

// look updates the status to report. After its Shutdown that stays "not serving".
func (h healthService) look() {
	status := grpc_health_v1.HealthCheckResponse_SERVING
	if h.g.cfg.Ready() != nil {
		status = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	h.SetServingStatus("", status)
}

// Check implements grpc_health_v1.HealthServer. The node's own name, pawlv1.NodeService, stands for the whole server. List omits it.
func (h healthService) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	h.look()
	if r.GetService() == pawlv1.NodeService(h.g.cfg.ClusterID, h.g.cfg.Node) {
		r = &grpc_health_v1.HealthCheckRequest{}
	}
	return h.Server.Check(ctx, r)
}

// List implements grpc_health_v1.HealthServer.
func (h healthService) List(ctx context.Context, r *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	h.look()
	return h.Server.List(ctx, r)
}

// Watch implements grpc_health_v1.HealthServer.
func (h healthService) Watch(r *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer) error {
	h.look()
	watched := make(chan struct{})
	defer close(watched)
	go h.follow(watched)
	return h.Server.Watch(r, stream)
}

// follow updates it periodically until done is closed.
func (h healthService) follow(done <-chan struct{}) {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			h.look()
		case <-done:
			return
		}
	}
}
