package rest

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

func listNamespaces(x *exchange) error {
	limit, cursor, err := x.page("pattern")
	if err != nil {
		return err
	}
	got, err := x.API.Access.ListNamespaces(x.ctx, &pawlv1.ListNamespacesRequest{Limit: limit, Cursor: cursor, Pattern: x.r.URL.Query().Get("pattern")})
	if err != nil {
		return err
	}
	listPage(x, got.GetItems(), got.GetNextCursor(), x.namespaceFields)
	return nil
}

func (x *exchange) namespaceFields(n *pawlv1.Namespace) {
	x.str("name", n.GetName())
	x.time("created_at", n.GetCreatedAt())
	x.opt("created_by", n.GetCreatedBy())
	x.quotas(n.GetQuotas())
	x.usage(n.GetUsage())
}

func (x *exchange) quotas(q *pawlv1.Quotas) {
	x.within("quotas", '{')
	for _, f := range quotaFields(q) {
		x.num(f.name, **f.at)
	}
	x.close('}')
}

// quotaField is where a message has one of the quotas.
type quotaField struct {
	name string
	at   **int64
}

func quotaFields(q *pawlv1.Quotas) []quotaField {
	return []quotaField{{"max_backlog", &q.MaxBacklog}, {"max_backlog_bytes", &q.MaxBacklogBytes}, {"max_running", &q.MaxRunning}, {"max_queues", &q.MaxQueues},
		{"max_schedules", &q.MaxSchedules}, {"max_requests_per_second", &q.MaxRequestsPerSecond}, {"max_bytes_per_second", &q.MaxBytesPerSecond}}
}

func (x *exchange) usage(u *pawlv1.NamespaceUsage) {
	if u == nil {
		return
	}
	x.within("usage", '{')
	x.num("backlog", u.GetBacklog())
	x.num("backlog_bytes", u.GetBacklogBytes())
	x.num("running", u.GetRunning())
	x.num("queues", u.GetQueues())
	x.num("schedules", u.GetSchedules())
	x.close('}')
}

// quotas reads an object of quotas.
func (r *jsonReader) quotas(path string) (*pawlv1.Quotas, error) {
	q := &pawlv1.Quotas{}
	err := r.fields(path, func(name string) error {
		for _, f := range quotaFields(q) {
			if f.name == name {
				v, err := r.integer(join(path, name), 0, task.MaxQuota)
				*f.at = &v
				return err
			}
		}
		return unknown(path, name)
	})
	return q, err
}

func addNamespace(x *exchange) error {
	req := &pawlv1.AddNamespaceRequest{}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		switch name {
		case "name":
			req.Name, err = r.str(name)
		case "quotas":
			req.Quotas, err = r.quotas(name)
		default:
			err = unknown("", name)
		}
		return err
	})
	if err != nil {
		return err
	}
	got, err := x.API.Access.AddNamespace(x.ctx, req)
	return x.confirmed(got.GetUnconfirmedNodes(), err)
}

func removeNamespace(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.API.Access.RemoveNamespace(x.ctx, &pawlv1.RemoveNamespaceRequest{Name: x.r.PathValue("name")})
	return x.confirmed(got.GetUnconfirmedNodes(), err)
}

func getNamespace(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.API.Access.GetNamespace(x.ctx, &pawlv1.GetNamespaceRequest{Name: x.r.PathValue("name")})
	if err != nil {
		return err
	}
	x.open('{')
	x.namespaceFields(got.GetNamespace())
	x.close('}')
	return nil
}

func setQuotas(x *exchange) error {
	req := &pawlv1.SetQuotasRequest{Name: x.r.PathValue("name")}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		switch name {
		case "quotas":
			req.Quotas, err = r.quotas(name)
		case "reason":
			req.Reason, err = r.str(name)
		default:
			err = unknown("", name)
		}
		return err
	})
	if err != nil {
		return err
	}
	got, err := x.API.Access.SetQuotas(x.ctx, req)
	if err != nil {
		return err
	}
	x.open('{')
	x.within("namespace", '{')
	x.namespaceFields(got.GetNamespace())
	x.close('}')
	x.strs("unconfirmed_nodes", got.GetUnconfirmedNodes())
	x.close('}')
	return nil
}

func getLimits(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.API.Access.GetLimits(x.ctx, &pawlv1.GetLimitsRequest{})
	if err != nil {
		return err
	}
	x.open('{')
	objects(x, "limits", got.GetLimits(), func(l *pawlv1.Limit) {
		x.str("name", l.GetName())
		x.num("value", l.GetValue())
		x.str("unit", l.GetUnit())
	})
	x.str("namespace", got.GetNamespace())
	x.quotas(got.GetQuotas())
	x.usage(got.GetUsage())
	x.close('}')
	return nil
}
