package web

import (
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/pawltype"
)

// slowRefresh is how often a page is refreshed when nothing happens, since ages, rates and other people's changes alter it.
const slowRefresh = 10 * time.Second

// frame is the data of the layout around a page.
type frame struct {
	Title     string
	Nav       []navItem
	Here      string // the page's own URL, for refreshes
	Flash     string // message from the previous page
	Theme     string // "light", "dark"; "": the system's
	Query     string // in the search field
	NoRefresh bool   // it is never refreshed
	Watch     string // URL of the stream of changes; "": none
	// RefreshMillis is the maximum refresh interval, in milliseconds.
	RefreshMillis int64
	LoggedOut     bool // without menu and search: the visitor is not logged in
	// NoKeys disables single-letter shortcuts.
	NoKeys    bool
	Me        *admin.Identity
	Namespace string // the namespace, if there are several
	Rights    string // the visitor's rights
	// Enqueues: this is the page for enqueuing a task.
	Enqueues bool
	Data     any
	Missing  []pawltype.Missing // shards and nodes whose part the page lacks
}

func (s *Server) frame(req *Request, content *Screen) *frame {
	f := &frame{Title: content.Title, Nav: s.counts.addTo(req.menu(), req), Here: req.Here(), Flash: req.takeFlash(),
		Theme: Theme(req.HTTP), NoRefresh: content.NoRefresh, NoKeys: NoKeys(req.HTTP), Me: req.me, Rights: visitor.Rights(req.me),
		Enqueues: req.nav == "/enqueue", Data: content.Data, Missing: req.missing}
	if req.several() {
		f.Namespace = req.me.Namespace
	}
	f.RefreshMillis = slowRefresh.Milliseconds()
	if content.Watch != nil {
		f.Watch = req.base + content.Watch.Address()
	} else {
		f.RefreshMillis = QuickRefresh.Milliseconds()
	}
	if content.Refresh > 0 {
		f.RefreshMillis = content.Refresh.Milliseconds()
	}
	if req.nav == "/tasks" {
		f.Query = req.Query("q")
	}
	return f
}
