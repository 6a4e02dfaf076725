package admin

import (
	"context"
	"fmt"
	"iter"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// List iterates over the namespaces that the client may use, by name.
func (a Namespaces) List(ctx context.Context, f NamespaceFilter) iter.Seq2[*Namespace, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Namespace], error) {
		return a.ListPage(ctx, f, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage returns one page of namespaces.
func (a Namespaces) ListPage(ctx context.Context, f NamespaceFilter, page pawltype.PageRequest) (pawltype.Page[*Namespace], error) {
	req := f.message()
	req.Limit, req.Cursor = convert.Int32(page.Limit), page.Cursor
	resp, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).ListNamespaces, req)
	return pageOf(namespaceOf, resp, err, "list namespaces")
}

// Get returns a namespace, or ErrNotFound if there is none.
func (a Namespaces) Get(ctx context.Context, name string) (*Namespace, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).GetNamespace, &pawlv1.GetNamespaceRequest{Name: name})
	return answer(namespaceOf, p.GetNamespace(), err, "namespace %q", name)
}

// QuotaChange holds new values for some quotas; nil: unchanged.
type QuotaChange struct {
	MaxBacklog, MaxBacklogBytes, MaxRunning, MaxQueues, MaxSchedules, MaxRequestsPerSecond, MaxBytesPerSecond *int64
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
func (a Namespaces) SetQuotas(ctx context.Context, name string, to QuotaChange) (*UpdatedNamespace, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).SetQuotas, &pawlv1.SetQuotasRequest{Name: name,
		Quotas: to.proto()})
	return answer(updatedNamespaceOf, p, err, "set quotas of namespace %q", name)
}

// Limits returns the limits on requests and the quotas of the client's namespace.
func (a Namespaces) Limits(ctx context.Context) (*Limits, error) {
	p, err := operate(ctx, a.calls, true, pawlv1.NewAccessServiceClient(a.rpc).GetLimits, &pawlv1.GetLimitsRequest{})
	return answer(limitsOf, p, err, "limits")
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
