package ui

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// chartMarks are a chart's markers: lines and bands across it, with a flag above each, and a list below.
type chartMarks struct {
	Flags   []chartFlag
	Listed  []chartFlag // newest first
	More    int         // number of drawn ones that are not listed
	Cut     bool        // not all are drawn
	Problem string      // why they could not be read; ""
	New     string      // URL of the form for a new one
	All     string      // URL of the page of all
}

// chartFlag is a marker on a chart.
type chartFlag struct {
	*admin.Marker
	X, Width string // percent; Width "": an instant
	Label    string
	Href     string // where it is listed
	About    string // its queues and types; "": all
	Own      bool   // Pawl's own marker, such as a pause; it can't be ended by a call
}

const (
	// maxFlags is the maximum number of markers drawn on a chart, maxListedMarkers that of markers listed: the newest. More would be indistinguishable.
	maxFlags         = 24
	maxListedMarkers = 6
	// maxMarkersInTitle is the maximum number of markers named in a step's title.
	maxMarkersInTitle = 3
)

// mark adds the markers within the chart's time span. A chart without them is still useful.
func (v *visit) mark(c *chart, queue, typ string, own ...*admin.Marker) {
	c.Marks = &chartMarks{New: v.newMarkerURL(queue, typ), All: v.url("markers")}
	end := c.Start.Add(time.Duration(len(c.Steps)) * c.step)
	page, err := v.admin().Markers().ListPage(v.ctx, admin.MarkerFilter{Since: c.Start, Until: end, Queue: queue, Type: typ}, pawltype.PageRequest{Limit: maxFlags})
	if err != nil {
		c.Marks.Problem = problemOf(err).Message
	}
	for i, m := range own {
		m.ID = "own-" + strconv.Itoa(i)
		c.Marks.add(c, m, end, true)
	}
	for _, m := range page.Items {
		c.Marks.add(c, m, end, false)
	}
	c.Marks.list(maxListedMarkers)
	c.Marks.Cut = page.NextCursor != ""
}

// list lists the newest markers. The flags of the others link to the page of all.
func (m *chartMarks) list(most int) {
	n := min(len(m.Flags), most)
	m.Listed, m.More = m.Flags[:n], len(m.Flags)-n
	for i := range m.Flags {
		if m.Flags[i].Href = "#" + m.Flags[i].Anchor(); i >= n {
			m.Flags[i].Href = m.All + m.Flags[i].Href
		}
	}
}

// newMarkerURL returns the URL of the form for a marker about a queue and a type; "" for any.
func (v *visit) newMarkerURL(queue, typ string) string {
	about := url.Values{}
	for name, value := range map[string]string{"queues": queue, "types": typ} {
		if value != "" {
			about.Set(name, value)
		}
	}
	if len(about) == 0 {
		return v.url("new-marker")
	}
	return v.url("new-marker", "?"+about.Encode())
}

// add draws a marker if it overlaps the chart's time span.
func (m *chartMarks) add(c *chart, of *admin.Marker, end time.Time, own bool) {
	whole := float64(end.Sub(c.Start))
	place := func(t time.Time) float64 { return min(max(float64(t.Sub(c.Start))/whole, 0), 1) }
	if whole == 0 || !of.At.Before(end) {
		return
	}
	f := chartFlag{Marker: of, X: percent(place(of.At)), Label: markerLabel(of), About: markerAbout(of), Own: own}
	switch {
	case of.Open():
		f.Width = percent(1 - place(of.At))
	case of.EndedAt.After(of.At):
		f.Width = percent(place(of.EndedAt) - place(of.At))
	}
	m.Flags = append(m.Flags, f)
	last := of.EndedAt
	if of.Open() {
		last = end
	}
	for i := range c.Steps {
		s := &c.Steps[i]
		if begins, over := s.Begins, s.Begins.Add(c.step); !of.At.Before(over) || of.At.Before(begins) && !last.After(begins) {
			continue
		}
		switch s.marks++; {
		case s.marks <= maxMarkersInTitle:
			s.Title += "\n" + string(of.Kind) + ": " + clip(of.Title, 60)
		case s.marks == maxMarkersInTitle+1:
			s.Title += "\nand more markers"
		}
	}
}

// markerLabel returns a flag's text: deploy web 1.4.2.
func markerLabel(m *admin.Marker) string {
	out := string(m.Kind) + ": " + m.Title
	if v := newVersion(m); v != "" {
		out += " " + v
	}
	if m.Open() {
		out += ", open"
	}
	return out
}

// newVersion returns the version if the title does not contain it, otherwise "".
func newVersion(m *admin.Marker) string {
	if strings.Contains(m.Title, m.Version) {
		return ""
	}
	return m.Version
}

func markerAbout(m *admin.Marker) string {
	var about []string
	if len(m.Queues) > 0 {
		about = append(about, "queue "+strings.Join(m.Queues, ", "))
	}
	if len(m.Types) > 0 {
		about = append(about, "type "+strings.Join(m.Types, ", "))
	}
	return strings.Join(about, " · ")
}

// Anchor is the marker's id on the page.
func (f *chartFlag) Anchor() string { return "marker-" + f.ID }

// NewVersion is the version if the title does not contain it, otherwise "".
func (f *chartFlag) NewVersion() string { return newVersion(f.Marker) }

// Stamp is the marker's start time for programs.
func (f *chartFlag) Stamp() string { return f.At.UTC().Format(time.RFC3339) }

// Stamped is the marker's start time for people.
func (f *chartFlag) Stamped() string { return clockText(f.At, time.Now()) }

// Lasted is how long a marker lasted; 0 if it is an instant or still open.
func (f *chartFlag) Lasted() time.Duration {
	if f.EndedAt.IsZero() {
		return 0
	}
	return f.EndedAt.Sub(f.At).Round(time.Second)
}

// hostText returns the host of a URL.
func hostText(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "link"
	}
	return clip(u.Host, 40)
}
