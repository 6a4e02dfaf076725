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
	CreatedAt time.Time // zero: it was there from the beginning
	CreatedBy string
	Quotas    Quotas
	Usage     *NamespaceUsage // nil: not all shards have told theirs
}

// Quotas are what a namespace may use; 0: as much as it likes. What is more is refused, tasks with ErrQueueFull or ErrRateLimited.
type Quotas struct {
	MaxBacklog           int64 // tasks that have not ended
	MaxBacklogBytes      int64 // of their payloads, and of those of what is to follow them
	MaxRunning           int64 // tasks that are claimed; others wait
	MaxQueues            int64
	MaxSchedules         int64
	MaxRequestsPerSecond int64 // on each node; a batch counts once for each of its tasks
	MaxBytesPerSecond    int64 // of payloads enqueued, on each node
}

// QuotaChange is new values for some quotas; nil: as it is.
type QuotaChange struct {
	MaxBacklog, MaxBacklogBytes, MaxRunning, MaxQueues, MaxSchedules, MaxRequestsPerSecond, MaxBytesPerSecond *int64
}

// NamespaceUsage is what a namespace uses of its quotas.
type NamespaceUsage struct {
	Backlog, BacklogBytes, Running, Queues, Schedules int64
}

// Limits are what calls may send, and what a namespace may use.
type Limits struct {
	Limits    []Limit
	Namespace string
	Quotas    Quotas
	Usage     *NamespaceUsage // nil: not all shards have told theirs, or the client's token is limited to some queues
}

// Limit is a bound of what calls may send.
type Limit struct {
	Name  string
	Value int64
	Unit  string
}

// NamespaceFilter selects namespaces.
type NamespaceFilter struct {
	Pattern string // of their names, in which each * stands for any characters; "": all
}

// List goes over the namespaces that the client may go to, by name.
func (a Namespaces) List(ctx context.Context, f NamespaceFilter) iter.Seq2[*Namespace, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Namespace], error) {
		return a.ListPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage gives one page of the namespaces.
func (a Namespaces) ListPage(ctx context.Context, f NamespaceFilter, page pawltype.PageRequest) (pawltype.Page[*Namespace], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).ListNamespaces, &pawlv1.ListNamespacesRequest{Pattern: f.Pattern, Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*Namespace]{}, fmt.Errorf("list namespaces: %w", err)
	}
	return convert.Page(resp, namespaceInfoOf), nil
}

// Get gives one namespace, or ErrNotFound.
func (a Namespaces) Get(ctx context.Context, name string) (*Namespace, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).GetNamespace, &pawlv1.GetNamespaceRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("namespace %q: %w", name, err)
	}
	return namespaceInfoOf(p.GetNamespace()), nil
}

func namespaceInfoOf(p *pawlv1.Namespace) *Namespace {
	return &Namespace{Name: p.GetName(), CreatedAt: convert.Time(p.GetCreatedAt()), CreatedBy: p.GetCreatedBy(), Quotas: quotasFrom(p.GetQuotas()),
		Usage: usageOf(p.GetUsage())}
}

func quotasFrom(p *pawlv1.Quotas) Quotas {
	return Quotas{MaxBacklog: p.GetMaxBacklog(), MaxBacklogBytes: p.GetMaxBacklogBytes(), MaxRunning: p.GetMaxRunning(), MaxQueues: p.GetMaxQueues(),
		MaxSchedules: p.GetMaxSchedules(), MaxRequestsPerSecond: p.GetMaxRequestsPerSecond(), MaxBytesPerSecond: p.GetMaxBytesPerSecond()}
}

func usageOf(p *pawlv1.NamespaceUsage) *NamespaceUsage {
	if p == nil {
		return nil
	}
	return &NamespaceUsage{Backlog: p.GetBacklog(), BacklogBytes: p.GetBacklogBytes(), Running: p.GetRunning(), Queues: p.GetQueues(), Schedules: p.GetSchedules()}
}

func (c QuotaChange) proto() *pawlv1.Quotas {
	return &pawlv1.Quotas{MaxBacklog: c.MaxBacklog, MaxBacklogBytes: c.MaxBacklogBytes, MaxRunning: c.MaxRunning, MaxQueues: c.MaxQueues,
		MaxSchedules: c.MaxSchedules, MaxRequestsPerSecond: c.MaxRequestsPerSecond, MaxBytesPerSecond: c.MaxBytesPerSecond}
}

// Create makes a namespace. Quotas that are nil get their defaults: 1,000,000 tasks that have not ended, 1 GiB of their payloads, 1,000 queues
// and 100,000 schedules. A namespace that is there with the same quotas stays as it is; one with others is ErrConflict. Unconfirmed are the
// nodes that have not said within a second that they know of it: they may answer that it is not there.
func (a Namespaces) Create(ctx context.Context, name string, quotas QuotaChange) (unconfirmed []string, err error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).AddNamespace, &pawlv1.AddNamespaceRequest{Name: name, Quotas: quotas.proto()})
	if err != nil {
		return nil, fmt.Errorf("add namespace %q: %w", name, err)
	}
	return p.GetUnconfirmedNodes(), nil
}

// SetQuotas changes what a namespace may use. Lower quotas refuse new work, and leave alone what is there.
func (a Namespaces) SetQuotas(ctx context.Context, name string, to QuotaChange) (n *Namespace, unconfirmed []string, err error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).SetQuotas, &pawlv1.SetQuotasRequest{Name: name, Quotas: to.proto()})
	if err != nil {
		return nil, nil, fmt.Errorf("set quotas of namespace %q: %w", name, err)
	}
	return namespaceInfoOf(p.GetNamespace()), p.GetUnconfirmedNodes(), nil
}

// Limits tells what calls may send, and what the client's namespace may use.
func (a Namespaces) Limits(ctx context.Context) (*Limits, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).GetLimits, &pawlv1.GetLimitsRequest{})
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	l := &Limits{Namespace: p.GetNamespace(), Quotas: quotasFrom(p.GetQuotas()), Usage: usageOf(p.GetUsage())}
	for _, one := range p.GetLimits() {
		l.Limits = append(l.Limits, Limit{one.GetName(), one.GetValue(), one.GetUnit()})
	}
	return l, nil
}

// Delete removes a namespace without queues, schedules and tokens, with what is kept of its ended tasks; with them it is
// ErrWrongState.
func (a Namespaces) Delete(ctx context.Context, name string) (unconfirmed []string, err error) {
	p, err := operate(ctx, a.calls, false, pawlv1.NewAccessServiceClient(a.rpc).RemoveNamespace, &pawlv1.RemoveNamespaceRequest{Name: name})
	if err != nil {
		return nil, fmt.Errorf("remove namespace %q: %w", name, err)
	}
	return p.GetUnconfirmedNodes(), nil
}
