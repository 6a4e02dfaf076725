package web

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/internal/ui/visitor"
	"github.com/pawlq/pawl/pawltype"
)

// The menu has counts of what may need attention. They are read with the visitor's rights, and cached for all visitors
// with the same token: however many pages are open, they cost two calls per countsFor.
const (
	countsFor = 5 * time.Second
	// countsTime is how long a page waits for the counts, which it can do without.
	countsTime = 500 * time.Millisecond
	// maxCounts is the maximum number of cached counts.
	maxCounts = 256
	// countedWindow and countedOperations are how far back the calls look.
	countedWindow     = 5 * time.Minute
	countedOperations = 50
	// countsHeader carries the counts in the response to a refresh, which does not include the menu.
	countsHeader = "Pawl-Menu"
)

// countsKey identifies visitors with the same counts.
type countsKey struct{ token, namespace string }

// menuCounts holds a visitor's counts, by the paths of the menu's entries.
type menuCounts struct {
	mu     sync.Mutex
	at     time.Time
	n      map[string]int64
	urgent bool // something critical needs attention
}

// counts caches the counts of all visitors.
type counts struct {
	mu  sync.Mutex
	all map[countsKey]*menuCounts
}

func (c *counts) of(who countsKey) *menuCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	cached := c.all[who]
	if cached == nil {
		if c.all == nil || len(c.all) >= maxCounts {
			c.all = map[countsKey]*menuCounts{}
		}
		cached = &menuCounts{}
		c.all[who] = cached
	}
	return cached
}

// menu returns the counts, which may be some seconds old. A visitor who may not see what is counted has none.
func (c *counts) menu(req *Request) (n map[string]int64, urgent bool) {
	if req.Client == nil || req.left {
		return nil, false
	}
	cached := c.of(countsKey{visitor.Token(req.HTTP), visitor.Namespace(req.HTTP)})
	cached.mu.Lock()
	defer cached.mu.Unlock()
	if req.Now.Sub(cached.at) >= countsFor {
		cached.read(req)
	}
	n = maps.Clone(cached.n)
	maps.Copy(n, req.counted)
	return n, cached.urgent
}

// read reads the counts. A count whose call fails keeps its last value.
func (m *menuCounts) read(req *Request) {
	ctx, cancel := context.WithTimeout(req.Ctx, countsTime)
	defer cancel()
	n := map[string]int64{}
	for path, of := range m.n {
		n[path] = of
	}
	if req.MayOpen("/") {
		m.readAttention(ctx, req, n)
	}
	if req.MayOpen("/operations") {
		readOperations(ctx, req, n)
	}
	m.n, m.at = n, req.Now
}

func (m *menuCounts) readAttention(ctx context.Context, req *Request, n map[string]int64) {
	stats, err := req.Admin().Stats(ctx, countedWindow)
	if err != nil {
		return
	}
	m.urgent = false
	n["/"], n["/dead"], n["/poison"] = 0, stats.Queues.Dead, stats.Queues.Poisoned
	for _, a := range stats.Attention {
		n["/"] += 1 + a.More
		m.urgent = m.urgent || a.Severity == "critical"
	}
}

func readOperations(ctx context.Context, req *Request, n map[string]int64) {
	page, err := req.Admin().Operations().ListPage(ctx, pawltype.PageRequest{Limit: countedOperations})
	if err != nil {
		return
	}
	n["/operations"] = 0
	for _, o := range page.Items {
		if !o.State.Ended() {
			n["/operations"]++
		}
	}
}

// counted names what each count is of.
var counted = map[string]string{"/": "things that need attention", "/dead": "dead letters", "/poison": "poisoned tasks",
	"/operations": "operations under way"}

// addTo adds the counts to the entries of the menu.
func (c *counts) addTo(items []navItem, req *Request) []navItem {
	n, urgent := c.menu(req)
	for i := range items {
		at := &items[i]
		at.N, at.Counted = n[at.Path], counted[at.Path] != ""
		at.Counts, at.Urgent = counted[at.Path], at.Path == "/" && urgent
	}
	return items
}

// setHeader sends the counts in the header of a refresh: "/=3! /dead=1.2k", where ! means critical.
func (c *counts) setHeader(req *Request) {
	n, urgent := c.menu(req)
	var all []string
	for path, of := range n {
		mark := ""
		if path == "/" && urgent {
			mark = "!"
		}
		all = append(all, fmt.Sprintf("%s=%s%s", path, format.ShortNumber(of), mark))
	}
	slices.Sort(all)
	req.Writer.Header().Set(countsHeader, strings.Join(all, " "))
}
