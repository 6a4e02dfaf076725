package conformance

import (
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/cluster/schedules"
	"github.com/pawlq/pawl/internal/cluster/webhooks"
	"github.com/pawlq/pawl/internal/cluster/workers"
)

// routerControl is the parts of the control plane that the router calls.
type routerControl struct {
	*cluster.Placement
	*queueTable
	*schedules.Names
	*workers.Workers
	*webhooks.Webhooks
	*auditlog.Log
}

// queueTable embeds without a field named Queues, which would hide the method.
type queueTable = queues.Queues

func newRouterControl(c *cluster.Control) routerControl {
	return routerControl{c.Placement, c.Queues, c.Schedules, c.Workers, c.Webhooks, c.Audit}
}
