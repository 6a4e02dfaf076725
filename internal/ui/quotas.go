package ui

import (
	"strconv"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
)

// quota describes a quota of a namespace.
type quota struct {
	field, label, hint string
	of                 func(*admin.Quotas) int64
	used               func(*admin.NamespaceUsage) int64 // nil: it is a rate
	set                func(*admin.QuotaChange, *int64)
	bytes              bool
}

// quotas are in the order in which they are shown.
var quotas = []quota{
	{"max_backlog", "Unfinished tasks", "Tasks that have not ended.", func(q *admin.Quotas) int64 { return q.MaxBacklog },
		func(u *admin.NamespaceUsage) int64 { return u.Backlog }, func(c *admin.QuotaChange, n *int64) { c.MaxBacklog = n }, false},
	{"max_backlog_bytes", "Bytes of unfinished payloads", "", func(q *admin.Quotas) int64 { return q.MaxBacklogBytes },
		func(u *admin.NamespaceUsage) int64 { return u.BacklogBytes }, func(c *admin.QuotaChange, n *int64) { c.MaxBacklogBytes = n },
		true},
	{"max_running", "Running tasks", "Others wait.", func(q *admin.Quotas) int64 { return q.MaxRunning },
		func(u *admin.NamespaceUsage) int64 {
			return u.Running
		}, func(c *admin.QuotaChange, n *int64) { c.MaxRunning = n }, false},
	{"max_queues", "Queues", "", func(q *admin.Quotas) int64 { return q.MaxQueues }, func(u *admin.NamespaceUsage) int64 {
		return u.Queues
	},
		func(c *admin.QuotaChange, n *int64) { c.MaxQueues = n }, false},
	{"max_schedules", "Schedules", "", func(q *admin.Quotas) int64 { return q.MaxSchedules }, func(u *admin.NamespaceUsage) int64 {
		return u.Schedules
	}, func(c *admin.QuotaChange, n *int64) { c.MaxSchedules = n }, false},
	{"max_requests_per_second", "Requests per second", "Per node. A batch counts once for each task.", func(q *admin.Quotas) int64 {
		return q.MaxRequestsPerSecond
	}, nil, func(c *admin.QuotaChange, n *int64) { c.MaxRequestsPerSecond = n }, false},
	{"max_bytes_per_second", "Bytes enqueued per second", "Payload bytes, per node.", func(q *admin.Quotas) int64 {
		return q.MaxBytesPerSecond
	}, nil, func(c *admin.QuotaChange, n *int64) { c.MaxBytesPerSecond = n }, true},
}

// quotaRow is a quota with its usage. Used is "" if the usage is unknown, and for a rate.
type quotaRow struct {
	Label, Used, Most string
	Percent           int64 // -1: no quota, or usage unknown
}

// quotaRows returns a namespace's quotas.
func quotaRows(q *admin.Quotas, u *admin.NamespaceUsage) (rows []quotaRow) {
	for _, k := range quotas {
		words := func(n int64) string {
			if k.bytes {
				return format.Size(n)
			}
			return format.ShortNumber(n)
		}
		row := quotaRow{Label: k.label, Most: "no quota", Percent: -1}
		most := k.of(q)
		if most > 0 {
			row.Most = "at most " + words(most)
		}
		if k.used != nil && u != nil {
			row.Used = words(k.used(u))
			if most > 0 {
				row.Percent = min(k.used(u)*100/most, 100)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func quotasForm(req *web.Request) (*form.Form, error) {
	n, err := req.Admin().Namespaces().Get(req.Ctx, req.PathValue("namespace"))
	if err != nil {
		return nil, err
	}
	f := &form.Form{Title: "Quotas of " + n.Name, Wide: true, Button: "Save", Back: "/namespaces",
		Text: "Work beyond a quota is refused. Lowering a quota refuses new work and leaves existing work alone. 0 or empty: no quota."}
	for _, k := range quotas {
		value := ""
		if most := k.of(&n.Quotas); most > 0 {
			value = strconv.FormatInt(most, 10)
		}
		f.Fields = append(f.Fields, form.Field{Name: k.field, Label: k.label, Kind: "number", Value: value, Placeholder: "no quota",
			Hint: k.hint})
	}
	f.Fields = append(f.Fields, form.Reason())
	f.Version = f.ContentVersion()
	return f, nil
}

func doQuotas(req *web.Request) (web.Done, error) {
	f, err := req.Unchanged(quotasForm)
	if err != nil {
		return web.Done{}, err
	}
	r := req.Reader()
	var change admin.QuotaChange
	for _, k := range quotas {
		if most := r.Whole(k.field); f.Touched(req.HTTP.PostForm, k.field) {
			k.set(&change, &most)
		}
	}
	if r.Err != nil {
		return web.Done{}, r.Err
	}
	if change == (admin.QuotaChange{}) {
		return web.Done{Message: "Nothing changed.", Next: "/namespaces"}, nil
	}
	n, err := req.Admin().WithReason(req.Value("reason")).Namespaces().SetQuotas(req.Ctx, req.PathValue("namespace"), change)
	if err != nil {
		return web.Done{}, err
	}
	return web.Done{Message: "Saved the quotas of " + n.Name + "." + unconfirmed(n.Unconfirmed), Next: "/namespaces"}, nil
}
