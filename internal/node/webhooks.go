package node

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/webhook"
)

// webhooks are the calls on webhooks, wherever the system shard is led: it is the gateway.Webhooks.
type webhooks struct {
	*webhook.Sender // of this node: it checks addresses

	add, set, rotate, pause, resume, remove func(context.Context, cluster.WebhookCall) (cluster.WebhookDone, error)
	list                                    func(context.Context, string) ([]cluster.WebhookView, error)
	get                                     func(context.Context, hookArgs) (cluster.WebhookView, error)
	test                                    func(context.Context, hookArgs) (cluster.Delivery, error)
	deliveries                              func(context.Context, hookArgs) ([]cluster.Delivery, error)
}

type hookArgs struct {
	Namespace, Name string
	By              task.Author
}

func newWebhooks(r *router.Router, c *cluster.Control, p *cluster.Dispatcher, s *webhook.Sender) *webhooks {
	// Shards that are not told here are told soon: by whoever leads the system shard.
	on := func(name string, again bool, do func(context.Context, cluster.WebhookCall) (cluster.WebhookView, error)) func(context.Context, cluster.WebhookCall) (cluster.WebhookDone, error) {
		return router.OnSystem(r, name, again, func(ctx context.Context, a cluster.WebhookCall) (out cluster.WebhookDone, err error) {
			if out.Hook, err = do(ctx, a); err != nil {
				return out, err
			}
			out.Unconfirmed, err = c.TellShards(ctx)
			return out, err
		})
	}
	return &webhooks{
		Sender: s,
		add:    on("add-webhook", true, c.AddWebhook),
		set:    on("set-webhook", true, c.SetWebhook),
		rotate: on("rotate-webhook", true, c.RotateWebhook),
		pause:  on("pause-webhook", true, c.PauseWebhook),
		resume: on("resume-webhook", true, c.ResumeWebhook),
		remove: on("remove-webhook", false, func(ctx context.Context, a cluster.WebhookCall) (cluster.WebhookView, error) { // a repeat would not find it
			return cluster.WebhookView{}, c.RemoveWebhook(ctx, a)
		}),
		list: router.OnSystem(r, "webhooks", true, c.Webhooks),
		get: router.OnSystem(r, "webhook", true, func(ctx context.Context, a hookArgs) (cluster.WebhookView, error) {
			return c.Webhook(ctx, a.Namespace, a.Name)
		}),
		test: router.OnSystem(r, "test-webhook", true, func(ctx context.Context, a hookArgs) (cluster.Delivery, error) {
			return p.Test(ctx, a.By, a.Namespace, a.Name)
		}),
		deliveries: router.OnSystem(r, "webhook-deliveries", true, func(ctx context.Context, a hookArgs) ([]cluster.Delivery, error) {
			return c.Deliveries(ctx, a.Namespace, a.Name)
		}),
	}
}

// AddWebhook implements gateway.Webhooks.
func (w *webhooks) AddWebhook(ctx context.Context, a cluster.WebhookCall) (cluster.WebhookDone, error) {
	return w.add(ctx, a)
}

// SetWebhook implements gateway.Webhooks.
func (w *webhooks) SetWebhook(ctx context.Context, a cluster.WebhookCall) (cluster.WebhookDone, error) {
	return w.set(ctx, a)
}

// RotateWebhook implements gateway.Webhooks.
func (w *webhooks) RotateWebhook(ctx context.Context, a cluster.WebhookCall) (cluster.WebhookDone, error) {
	return w.rotate(ctx, a)
}

// PauseWebhook implements gateway.Webhooks.
func (w *webhooks) PauseWebhook(ctx context.Context, a cluster.WebhookCall) (cluster.WebhookDone, error) {
	return w.pause(ctx, a)
}

// ResumeWebhook implements gateway.Webhooks.
func (w *webhooks) ResumeWebhook(ctx context.Context, a cluster.WebhookCall) (cluster.WebhookDone, error) {
	return w.resume(ctx, a)
}

// RemoveWebhook implements gateway.Webhooks.
func (w *webhooks) RemoveWebhook(ctx context.Context, a cluster.WebhookCall) (cluster.WebhookDone, error) {
	return w.remove(ctx, a)
}

// Webhooks implements gateway.Webhooks.
func (w *webhooks) Webhooks(ctx context.Context, ns string) ([]cluster.WebhookView, error) {
	return w.list(ctx, ns)
}

// Webhook implements gateway.Webhooks.
func (w *webhooks) Webhook(ctx context.Context, ns, name string) (cluster.WebhookView, error) {
	return w.get(ctx, hookArgs{Namespace: ns, Name: name})
}

// TestWebhook implements gateway.Webhooks.
func (w *webhooks) TestWebhook(ctx context.Context, by task.Author, ns, name string) (cluster.Delivery, error) {
	return w.test(ctx, hookArgs{ns, name, by})
}

// Deliveries implements gateway.Webhooks.
func (w *webhooks) Deliveries(ctx context.Context, ns, name string) ([]cluster.Delivery, error) {
	return w.deliveries(ctx, hookArgs{Namespace: ns, Name: name})
}

// meterArgs say which queues' ready tasks are wanted.
type meterArgs struct {
	Namespace string
	Patterns  []string
	Since     bool
}

// watches are the calls on data shards that webhooks need, wherever those are led.
type watches struct {
	copy   func(ctx context.Context, shard uint32, w map[string]task.Watch) (struct{}, error)
	meters func(ctx context.Context, shard uint32, a meterArgs) ([]broker.Meter, error)
}

func newWatches(r *router.Router, b *broker.Broker) *watches {
	return &watches{
		copy: router.OnShard(r, "copy-watches", true, func(ctx context.Context, id uint32, w map[string]task.Watch) (struct{}, error) {
			return struct{}{}, b.CopyWatches(ctx, id, w)
		}),
		meters: router.OnShard(r, "meters", true, func(ctx context.Context, id uint32, a meterArgs) ([]broker.Meter, error) {
			return b.Meters(ctx, id, a.Namespace, a.Patterns, a.Since)
		}),
	}
}

// depths adds up what the shards say of queues.
func (n *Node) depths(ctx context.Context, ns string, patterns []string, since bool) (all []cluster.Depth, missing bool) {
	at := map[string]int{}
	now := store.TimeOf(time.Now())
	for _, shard := range n.copy.Shards() {
		some, err := n.watches.meters(ctx, shard, meterArgs{ns, patterns, since})
		if err != nil {
			missing = true
			continue
		}
		for _, m := range some {
			i, known := at[m.Queue]
			if !known {
				i = len(all)
				at[m.Queue], all = i, append(all, cluster.Depth{Queue: m.Queue})
			}
			all[i].Ready += m.Ready
			if m.Since != 0 {
				all[i].Wait = max(all[i].Wait, now.Sub(m.Since))
			}
		}
	}
	return all, missing
}

// openPost makes what sends notices.
func (n *Node) openPost() {
	n.sender = webhook.NewSender(webhook.Config{Allow: n.cfg.WebhookNetworks, Version: n.cfg.Version, Dial: n.cfg.dialWebhook})
	n.watches = newWatches(n.router, n.broker)
	n.dispatcher = cluster.NewDispatcher(cluster.DispatcherConfig{Control: n.control, Send: n.sender.Send, Depths: n.depths, Logger: n.cfg.Logger})
	n.webhooks = newWebhooks(n.router, n.control, n.dispatcher, n.sender)
}
