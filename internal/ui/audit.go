package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

var auditPages = []web.Page{{Path: "/audit", Template: "audit", Nav: "/audit", Show: showAudit}}

// auditLimit is the page size of the audit log.
const auditLimit = 50

type auditView struct {
	Filter  admin.AuditFilter
	Since   string
	Kinds   []form.Option
	Rows    []auditRow
	Refused *format.Problem
	web.More
}

// auditRow is an entry with its changes and the page of its target.
type auditRow struct {
	*admin.AuditEntry
	URL         string
	Changes     []change
	Cut         int
	Anchor      string // the entry's anchor on the page
	ExpandURL   string // the page with all of its changes; "": they are all here
	CollapseURL string // the page with only the first of them; "": it is not expanded
}

// change is a value before and after.
type change struct{ Name, Before, After string }

// maxChanges and maxChange limit how many changes of an entry a page shows, and how much of each.
const (
	maxChanges = 5
	maxChange  = 120
)

func showAudit(req *web.Request) (*web.Screen, error) {
	view := auditView{Since: req.Query("since"), Kinds: form.Choices("anything", "queue", "task", "schedule", "operation", "node",
		"shard", "cluster"),
		Filter: admin.AuditFilter{Actor: req.Query("actor"), Action: req.Query("action"), TargetKind: req.Query("kind"),
			Target: req.Query("target"), Queue: req.Query("queue")}}
	err := view.find(req)
	if errors.Is(err, pawltype.ErrInvalidArgument) {
		p := format.ProblemOf(err)
		view.Refused, err = &p, nil
	}
	return &web.Screen{Title: "Audit", Data: view}, err
}

func (view *auditView) find(req *web.Request) error {
	filter := view.Filter
	if view.Since != "" {
		at, err := humanize.Past(view.Since, req.Now)
		if err != nil {
			return format.BadField("since", "%v", err)
		}
		filter.Since = at
	}
	cursor, start := req.Query("cursor"), time.Now()
	for { // the API may return an empty page although there is more
		page, err := req.Admin().Audit().ListPage(req.Ctx, filter, pawltype.PageRequest{Limit: auditLimit - len(view.Rows), Cursor: cursor})
		if err != nil {
			return err
		}
		req.Lacks(page.Missing)
		for _, e := range page.Items {
			view.Rows = append(view.Rows, auditRowOf(req, e))
		}
		cursor = page.NextCursor
		if cursor == "" || len(view.Rows) >= auditLimit || time.Since(start) > web.SearchTime {
			break
		}
	}
	view.More = req.More(cursor)
	return nil
}

func auditRowOf(req *web.Request, e *admin.AuditEntry) auditRow {
	row := auditRow{AuditEntry: e, Anchor: fmt.Sprintf("a-%d-%d", e.Shard, e.Seq)}
	switch e.TargetKind {
	case "queue":
		row.URL = req.URL("queues", e.Target)
	case "task":
		row.URL = req.URL("tasks", e.Target)
	case "schedule":
		row.URL = req.URL("schedules", e.Target)
	case "operation":
		row.URL = req.URL("operations", e.Target)
	}
	row.Changes = changesOf(e.Before, e.After)
	switch n := len(row.Changes) - maxChanges; {
	case n <= 0:
	case req.Query("open") == row.Anchor:
		row.CollapseURL = req.Here("open", "") + "#" + row.Anchor
	default:
		row.Changes, row.Cut, row.ExpandURL = row.Changes[:maxChanges], n, req.Here("open", row.Anchor)+"#"+row.Anchor
	}
	return row
}

// changesOf pairs values before and after.
func changesOf(before, after json.RawMessage) (all []change) {
	was, is := flat(before), flat(after)
	names := map[string]bool{}
	for name := range was {
		names[name] = true
	}
	for name := range is {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = append(all, change{name, format.Clip(was[name], maxChange), format.Clip(is[name], maxChange)})
	}
	return all
}

// flat converts an object in the audit log, which has dotted names, to text.
func flat(data json.RawMessage) map[string]string {
	var values map[string]json.RawMessage
	if json.Unmarshal(data, &values) != nil {
		return nil
	}
	out := map[string]string{}
	for name, value := range values {
		var text string
		if json.Unmarshal(value, &text) != nil {
			var b bytes.Buffer
			_ = json.Compact(&b, value) // it has been decoded before
			text = b.String()
		}
		out[name] = format.TidyTime(strings.TrimSpace(text))
	}
	return out
}
