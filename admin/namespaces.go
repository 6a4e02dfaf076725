package admin

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Namespace is a namespace.
type Namespace struct {
	Name      string
	CreatedAt time.Time // zero: it has always existed
	CreatedBy string
	Quotas    Quotas
	Usage     *NamespaceUsage    // nil: no shard has reported its part, or the client's token is limited to some queues
	Missing   []pawltype.Missing // shards whose part of the usage is missing
}

// Quotas limit what a namespace may use; 0: no limit. Requests beyond a quota are refused, tasks with ErrQueueFull or ErrRateLimited.
type Quotas struct {
	MaxBacklog           int64 // tasks that have not ended
	MaxBacklogBytes      int64 // of their payloads and those of their follow-up tasks
	MaxRunning           int64 // claimed tasks; others wait
	MaxQueues            int64
	MaxSchedules         int64
	MaxRequestsPerSecond int64 // on each node; a batch counts once per task
	MaxBytesPerSecond    int64 // of enqueued payloads, on each node
}

// QuotaChange holds new values for some quotas; nil: unchanged.
type QuotaChange struct {
	MaxBacklog, MaxBacklogBytes, MaxRunning, MaxQueues, MaxSchedules, MaxRequestsPerSecond, MaxBytesPerSecond *int64
}

// NamespaceUsage is how much of its quotas a namespace uses.
type NamespaceUsage struct {
	Backlog, BacklogBytes, Running, Queues, Schedules int64
}

// Limits holds the limits on requests, and the quotas of a namespace.
type Limits struct {
	Limits    []Limit
	Namespace string
	Quotas    Quotas
	Usage     *NamespaceUsage    // nil: no shard has reported its part, or the client's token is limited to some queues
	Missing   []pawltype.Missing // shards whose part of the usage is missing
}

// Limit is a limit on requests.
type Limit struct {
	Name  string
	Value int64
	Unit  string
}

// NamespaceFilter selects namespaces.
type NamespaceFilter struct {
	Pattern string // of names, in which * matches any characters; "": all
}

// List iterates over the namespaces that the client may use, by name.
func (a Namespaces) List(ctx context.Context, f NamespaceFilter) iter.Seq2[*Namespace, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Namespace], error) {
		return a.ListPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage returns one page of namespaces.
func (a Namespaces) ListPage(ctx context.Context, f NamespaceFilter, page pawltype.PageRequest) (pawltype.Page[*Namespace], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).ListNamespaces, &pawlv1.ListNamespacesRequest{
		Pattern: convert.Text(f.Pattern), Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*Namespace]{}, fmt.Errorf("list namespaces: %w", err)
	}
	return convert.Page(resp, namespaceInfoOf), nil
}

// Get returns a namespace, or ErrNotFound if there is none.
func (a Namespaces) Get(ctx context.Context, name string) (*Namespace, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).GetNamespace, &pawlv1.GetNamespaceRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("namespace %q: %w", name, err)
	}
	return namespaceInfoOf(p.GetNamespace()), nil
}

func namespaceInfoOf(p *pawlv1.Namespace) *Namespace {
	return &Namespace{Name: p.GetName(), CreatedAt: convert.Time(p.GetCreatedAt()), CreatedBy: p.GetCreatedBy(),
		Quotas: quotasFrom(p.GetQuotas()), Usage: usageOf(p.GetUsage()), Missing: convert.Missing(p.GetMissing())}
}

func quotasFrom(p *pawlv1.Quotas) Quotas {
	return Quotas{MaxBacklog: p.GetMaxBacklog(), MaxBacklogBytes: p.GetMaxBacklogBytes(), MaxRunning: p.GetMaxRunning(),
		MaxQueues: p.GetMaxQueues(), MaxSchedules: p.GetMaxSchedules(), MaxRequestsPerSecond: p.GetMaxRequestsPerSecond(),
		MaxBytesPerSecond: p.GetMaxBytesPerSecond()}
}

func usageOf(p *pawlv1.NamespaceUsage) *NamespaceUsage {
	if p == nil {
		return nil
	}
	return &NamespaceUsage{Backlog: p.GetBacklog(), BacklogBytes: p.GetBacklogBytes(), Running: p.GetRunning(), Queues: p.GetQueues(),
		Schedules: p.GetSchedules()}
}

func (c QuotaChange) proto() *pawlv1.Quotas {
	return &pawlv1.Quotas{MaxBacklog: c.MaxBacklog, MaxBacklogBytes: c.MaxBacklogBytes, MaxRunning: c.MaxRunning, MaxQueues: c.MaxQueues,
		MaxSchedules: c.MaxSchedules, MaxRequestsPerSecond: c.MaxRequestsPerSecond, MaxBytesPerSecond: c.MaxBytesPerSecond}
}

// Create creates a namespace. Quotas that are nil get their defaults: 1,000,000 tasks that have not ended, 1 GiB of their payloads, 1,000
// queues and 100,000 schedules. It is a no-op if the namespace exists with the same quotas; with other quotas, it returns ErrConflict.
// unconfirmed lists the nodes that did not acknowledge it within a second; until they do, they may report it as not found.
func (a Namespaces) Create(ctx context.Context, name string, quotas QuotaChange) (unconfirmed []string, err error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).AddNamespace, &pawlv1.AddNamespaceRequest{Name: name,
		Quotas: quotas.proto()})
	if err != nil {
		return nil, fmt.Errorf("add namespace %q: %w", name, err)
	}
	return p.GetUnconfirmedNodes(), nil
}

// SetQuotas changes the quotas of a namespace. If usage is above a new quota, further work is refused, but existing work is kept.
func (a Namespaces) SetQuotas(ctx context.Context, name string, to QuotaChange) (n *Namespace, unconfirmed []string, err error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).SetQuotas, &pawlv1.SetQuotasRequest{Name: name,
		Quotas: to.proto()})
	if err != nil {
		return nil, nil, fmt.Errorf("set quotas of namespace %q: %w", name, err)
	}
	return namespaceInfoOf(p.GetNamespace()), p.GetUnconfirmedNodes(), nil
}

// Limits returns the limits on requests and the quotas of the client's namespace.
func (a Namespaces) Limits(ctx context.Context) (*Limits, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).GetLimits, &pawlv1.GetLimitsRequest{})
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	l := &Limits{Namespace: p.GetNamespace(), Quotas: quotasFrom(p.GetQuotas()), Usage: usageOf(p.GetUsage()),
		Missing: convert.Missing(p.GetMissing())}
	for _, one := range p.GetLimits() {
		l.Limits = append(l.Limits, Limit{one.GetName(), one.GetValue(), one.GetUnit()})
	}
	return l, nil
}

// Delete removes a namespace and what is kept of its ended tasks. If it still has queues, schedules or tokens, Delete returns
// ErrWrongState.
func (a Namespaces) Delete(ctx context.Context, name string) (unconfirmed []string, err error) {
	p, err := operate(ctx, a.calls, false, pawlv1.NewAccessServiceClient(a.rpc).RemoveNamespace, &pawlv1.RemoveNamespaceRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("remove namespace %q: %w", name, err)
	}
	return p.GetUnconfirmedNodes(), nil
}
