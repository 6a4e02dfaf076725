package gateway

import (
	"google.golang.org/grpc"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/gateway/administration"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/gateway/statistics"
	"github.com/pawlq/pawl/internal/gateway/tasktrace"
	"github.com/pawlq/pawl/internal/gateway/watch"
)

// services are the services of the API, and those that other programs' protocols need.
type services struct {
	producer       producerService
	worker         workerService
	operator       operatorService
	schedule       scheduleService
	access         administration.AccessService
	webhook        administration.WebhookService
	marker         administration.MarkerService
	audit          administration.AuditService
	group          groupService
	operation      operationService
	event          watch.Service
	workerRegistry workerRegistryService
	stats          statistics.Service
	cluster        administration.ClusterService
	scaler         statistics.Scaler
	sqs            sqsCore
}

// newServices returns services that are wired to nothing yet.
func newServices() *services {
	v := &services{}
	v.event.Streams = admission.NewSlots(watch.MaxStreams)
	return v
}

// wire gives each service what it needs of the gateway.
func (g *Gateway) wire() {
	cfg, v := &g.cfg, g.services
	verbs, scoped, sharing := callinfo.Recorder{Runner: cfg.Broker}, fanout.Scoped{Cluster: cfg.Cluster}, &statistics.Sharing{}
	g.Errors.Log = cfg.Logger
	g.claims.broker, g.claims.cluster, g.claims.registry, g.claims.log = cfg.Broker, scoped, cfg.Registry, cfg.Logger
	spans := tasktrace.Spans{Tracer: g.tracer, Registry: cfg.Registry, Batch: cfg.Limits.Batch}
	queues := fanout.Queues{Verbs: verbs, Cluster: scoped, Limits: cfg.Limits}
	enqueuer := enqueuer{spans: spans, Errors: g.Errors, broker: cfg.Broker, cluster: scoped, access: g.access, limits: cfg.Limits}
	commands := taskCommands{spans: spans, verbs: verbs, log: cfg.Logger}

	v.producer = producerService{enqueuer: enqueuer, taskCommands: commands, queues: queues, limits: cfg.Limits, observer: g.observer,
		leaders: g.leaders}
	v.worker = workerService{claims: g.claims, spans: spans, Errors: g.Errors, registry: cfg.Registry, limits: cfg.Limits,
		nodes: cfg.Admin, node: cfg.Node}
	v.operator = operatorService{Queues: queues, Recent: statistics.Recent{Stats: cfg.Stats, Workers: cfg.Workers, Sharing: sharing},
		taskCommands: commands, enqueuer: enqueuer, broker: cfg.Broker, cluster: scoped, verbs: verbs, limits: cfg.Limits,
		leaders: g.leaders, log: cfg.Logger, version: cfg.Version, clusterID: cfg.ClusterID, node: cfg.Node}
	v.schedule = scheduleService{schedules: cfg.Schedules, verbs: verbs, limits: cfg.Limits, log: cfg.Logger}
	v.group = groupService{spans: spans, Errors: g.Errors, groups: cfg.Groups, access: g.access, verbs: verbs,
		limits: cfg.Limits, log: cfg.Logger}
	v.operation = operationService{operations: cfg.Operations, verbs: verbs, limits: cfg.Limits, log: cfg.Logger}
	v.workerRegistry = workerRegistryService{workers: cfg.Workers, limits: cfg.Limits, log: cfg.Logger}
	v.event = watch.Service{Source: cfg.Events, Broker: cfg.Broker, Cluster: scoped, Limits: cfg.Limits, Streams: v.event.Streams,
		Observer: g.observer, Log: cfg.Logger}
	v.stats = statistics.Service{Queues: queues, Source: cfg.Stats, Sharing: sharing, Nodes: cfg.Admin, Webhooks: cfg.Webhooks != nil,
		Limits: cfg.Limits}
	v.scaler = statistics.Scaler{Stats: &v.stats, Broker: cfg.Broker}

	total, perAddress := listen.Limits(cfg.MaxConns, cfg.MaxConnsPerAddress)
	v.access = administration.AccessService{Auth: cfg.Auth, Verbs: verbs, Cluster: scoped, Limits: cfg.Limits,
		Bounds: administration.Bounds(cfg.Limits, total, perAddress), Log: cfg.Logger}
	v.webhook = administration.WebhookService{Sender: cfg.Webhooks, Verbs: verbs, Log: cfg.Logger}
	v.marker = administration.MarkerService{Verbs: verbs, Limits: cfg.Limits, Log: cfg.Logger}
	v.audit = administration.AuditService{Broker: cfg.Broker, Limits: cfg.Limits}
	v.cluster = administration.ClusterService{Nodes: cfg.Admin, Broker: cfg.Broker, Verbs: verbs, Leaders: g.leaders, Log: cfg.Logger,
		Node: cfg.Node, ClusterID: cfg.ClusterID}

	v.sqs = sqsCore{parts: queues, claims: g.claims, taskCommands: commands, operations: &v.operation, broker: cfg.Broker,
		cluster: scoped, verbs: verbs, access: g.access, bodies: admission.NewMemoryPool(maxBodies), limits: cfg.Limits}
}

// register registers the services of the API: with the gRPC server, and with REST.
func (v *services) register(s grpc.ServiceRegistrar) {
	pawlv1.RegisterProducerServiceServer(s, &v.producer)
	pawlv1.RegisterWorkerServiceServer(s, &v.worker)
	pawlv1.RegisterOperatorServiceServer(s, &v.operator)
	pawlv1.RegisterScheduleServiceServer(s, &v.schedule)
	pawlv1.RegisterAccessServiceServer(s, &v.access)
	pawlv1.RegisterWebhookServiceServer(s, &v.webhook)
	pawlv1.RegisterMarkerServiceServer(s, &v.marker)
	pawlv1.RegisterAuditServiceServer(s, &v.audit)
	pawlv1.RegisterGroupServiceServer(s, &v.group)
	pawlv1.RegisterOperationServiceServer(s, &v.operation)
	pawlv1.RegisterEventServiceServer(s, &v.event)
	pawlv1.RegisterWorkerRegistryServiceServer(s, &v.workerRegistry)
	pawlv1.RegisterStatsServiceServer(s, &v.stats)
	pawlv1.RegisterClusterServiceServer(s, &v.cluster)
}
