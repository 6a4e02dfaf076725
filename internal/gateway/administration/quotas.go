package administration

import (
	"context"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// GetNamespace returns one of the namespaces that the caller may use.
func (g *AccessService) GetNamespace(ctx context.Context, r *pawlv1.GetNamespaceRequest) (*pawlv1.GetNamespaceResponse, error) {
	if err := auth.CheckNamespace("name", r.GetName()); err != nil {
		return nil, err
	}
	n, err := g.namespaceInfo(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	return &pawlv1.GetNamespaceResponse{Namespace: n}, nil
}

// namespaceInfo returns a namespace that the caller may use.
func (g *AccessService) namespaceInfo(ctx context.Context, name string) (*pawlv1.Namespace, error) {
	all, err := g.usableNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		if n.Name == name {
			return g.withUsage(ctx, []namespaces.Info{n})[0], nil
		}
	}
	return nil, task.NotFound("namespace", name)
}

// SetQuotas changes the quotas of a namespace.
func (g *AccessService) SetQuotas(ctx context.Context, r *pawlv1.SetQuotasRequest) (*pawlv1.SetQuotasResponse, error) {
	to, err := quotasOf(r.GetQuotas())
	if err == nil && len(to) == 0 {
		err = task.Invalid("quotas", "none is given: nothing would change")
	}
	if err != nil {
		return nil, err
	}
	unconfirmed, err := g.onNamespace(ctx, "quotas set", r.GetName(), r.GetReason(), func(by task.Author) ([]string, error) {
		return namespaces.SetQuotas.Call(ctx, g.Verbs, namespaces.Change{By: by, Name: r.GetName(), Quotas: to})
	})
	if err != nil {
		return nil, err
	}
	n, err := g.namespaceInfo(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	return &pawlv1.SetQuotasResponse{Namespace: n, UnconfirmedNodes: unconfirmed}, nil
}

// quotasOf decodes the quotas in a request.
func quotasOf(p *pawlv1.Quotas) (task.QuotaChange, error) {
	to := task.QuotaChange{}
	if p != nil {
		for name, v := range map[task.Quota]*int64{task.QuotaBacklog: p.MaxBacklog, task.QuotaBacklogBytes: p.MaxBacklogBytes,
			task.QuotaRunning: p.MaxRunning, task.QuotaQueues: p.MaxQueues, task.QuotaSchedules: p.MaxSchedules,
			task.QuotaRequests: p.MaxRequestsPerSecond, task.QuotaBytes: p.MaxBytesPerSecond} {
			if v != nil {
				to[name] = *v
			}
		}
	}
	return to, task.Quotas{}.Change(to).Check()
}

func quotasProto(q task.Quotas) *pawlv1.Quotas {
	return &pawlv1.Quotas{MaxBacklog: &q.Backlog, MaxBacklogBytes: &q.BacklogBytes, MaxRunning: &q.Running, MaxQueues: &q.Queues,
		MaxSchedules: &q.Schedules, MaxRequestsPerSecond: &q.Requests, MaxBytesPerSecond: &q.Bytes}
}

// withUsage adds the usage of namespaces as far as shards report it, and names the shards that don't. It adds neither if the caller's token
// is limited to some queues: its holder must not know what others in the namespace use.
func (g *AccessService) withUsage(ctx context.Context, all []namespaces.Info) []*pawlv1.Namespace {
	names := make([]string, len(all))
	for i, n := range all {
		names[i] = n.Name
	}
	var used verb.Partial[[]task.Amounts]
	if task.ScopeOf(ctx).All() {
		used, _ = g.usage(ctx, names)
	}
	out := make([]*pawlv1.Namespace, len(all))
	for i, n := range all {
		out[i] = &pawlv1.Namespace{Name: n.Name, CreatedAt: apiproto.TimeProto(n.CreatedAt), CreatedBy: n.CreatedBy,
			Quotas: quotasProto(n.Quotas)}
		out[i].Missing = apiproto.MissingProto(used.Missing)
		if used.Value != nil {
			out[i].Usage = usageProto(used.Value[i], &n)
		}
	}
	return out
}

func usageProto(used task.Amounts, n *namespaces.Info) *pawlv1.NamespaceUsage {
	return &pawlv1.NamespaceUsage{Backlog: used.Backlog, BacklogBytes: used.Bytes, Running: used.Running, Queues: int64(n.Queues),
		Schedules: int64(n.Schedules)}
}

// usage returns what the tasks of namespaces use over all shards, in the order of the names; nil: no shard has answered.
func (g *AccessService) usage(ctx context.Context, names []string) (sums verb.Partial[[]task.Amounts], err error) {
	if len(names) == 0 {
		return sums, nil
	}
	shards := g.Cluster.Shards()
	parts, err := verb.AskShards(ctx, shards, func(ctx context.Context, i int) ([]task.Space, error) {
		return broker.Spaces.Call(ctx, g.Verbs, broker.OnSpaces{Shard: shards[i], Names: task.SpacesOf(names...)})
	})
	sums.Missing = parts.Missing
	if err != nil || len(parts.Missing) == len(shards) {
		return sums, err
	}
	sums.Value = make([]task.Amounts, len(names))
	for _, spaces := range parts.Value {
		for n := range spaces {
			for f, v := range sums.Value[n].Each() {
				*v += *spaces[n].Use.Each()[f]
			}
		}
	}
	return sums, nil
}

// GetLimits returns the limits on requests and the quotas of the caller's namespace.
func (g *AccessService) GetLimits(ctx context.Context, _ *pawlv1.GetLimitsRequest) (*pawlv1.GetLimitsResponse, error) {
	ns := callinfo.Namespace(ctx)
	out := &pawlv1.GetLimitsResponse{Namespace: ns}
	for _, l := range g.Bounds {
		out.Limits = append(out.Limits, &pawlv1.Limit{Name: l.name, Value: l.value, Unit: l.unit})
	}
	n, err := g.namespaceInfo(ctx, ns)
	if err != nil {
		return nil, err
	}
	out.Quotas, out.Usage, out.Missing = n.Quotas, n.Usage, n.Missing
	return out, nil
}
