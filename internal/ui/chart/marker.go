package chart

import (
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/format"
)

// Marks are a chart's markers: lines and bands across it, with a flag above each, and a list below.
type Marks struct {
	Flags   []Flag
	Listed  []Flag // newest first
	More    int    // number of drawn ones that are not listed
	Cut     bool   // not all are drawn
	Problem string // why they could not be read; ""
	New     string // URL of the form for a new one
	All     string // URL of the page of all
}

// Flag is a marker on a chart.
type Flag struct {
	*admin.Marker
	X, Width string // percent; Width "": an instant
	Label    string
	Href     string // where it is listed
	About    string // its queues and types; "": all
	Own      bool   // Pawl's own marker, such as a pause; it can't be ended by a call
}

const (
	// MaxFlags is the maximum number of markers drawn on a chart, maxListedMarkers that of markers listed: the newest.
	// More would be indistinguishable.
	MaxFlags  = 24
	MaxListed = 6
	// maxMarkersInTitle is the maximum number of markers named in a step's title.
	maxMarkersInTitle = 3
)

// List lists the newest markers. The flags of the others link to the page of all.
func (m *Marks) List(most int) {
	n := min(len(m.Flags), most)
	m.Listed, m.More = m.Flags[:n], len(m.Flags)-n
	for i := range m.Flags {
		if m.Flags[i].Href = "#" + m.Flags[i].Anchor(); i >= n {
			m.Flags[i].Href = m.All + m.Flags[i].Href
		}
	}
}

// End returns the time at which the last step ends.
func (c *Chart) End() time.Time { return c.Start.Add(time.Duration(len(c.Steps)) * c.step) }

// Mark draws a marker if it overlaps the chart's time span. own: it is one of Pawl's own.
func (c *Chart) Mark(of *admin.Marker, own bool) {
	end := c.End()
	whole := float64(end.Sub(c.Start))
	place := func(t time.Time) float64 { return min(max(float64(t.Sub(c.Start))/whole, 0), 1) }
	if whole == 0 || !of.At.Before(end) {
		return
	}
	f := Flag{Marker: of, X: percent(place(of.At)), Label: MarkerLabel(of), About: MarkerAbout(of), Own: own}
	switch {
	case of.Open():
		f.Width = percent(1 - place(of.At))
	case of.EndedAt.After(of.At):
		f.Width = percent(place(of.EndedAt) - place(of.At))
	}
	c.Marks.Flags = append(c.Marks.Flags, f)
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
			s.Title += "\n" + string(of.Kind) + ": " + format.Clip(of.Title, 60)
		case s.marks == maxMarkersInTitle+1:
			s.Title += "\nand more markers"
		}
	}
}

// MarkerLabel returns a flag's text: deploy web 1.4.2.
func MarkerLabel(m *admin.Marker) string {
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

// MarkerAbout returns what a marker concerns: queue mail · type mail.welcome; "": everything.
func MarkerAbout(m *admin.Marker) string {
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
func (f *Flag) Anchor() string { return "marker-" + f.ID }

// NewVersion is the version if the title does not contain it, otherwise "".
func (f *Flag) NewVersion() string { return newVersion(f.Marker) }

// Stamp is the marker's start time for programs.
func (f *Flag) Stamp() string { return f.At.UTC().Format(time.RFC3339) }

// Stamped is the marker's start time for people.
func (f *Flag) Stamped() string { return format.Clock(f.At, time.Now()) }

// Lasted is how long a marker lasted; 0 if it is an instant or still open.
func (f *Flag) Lasted() time.Duration {
	if f.EndedAt.IsZero() {
		return 0
	}
	return f.EndedAt.Sub(f.At).Round(time.Second)
}
