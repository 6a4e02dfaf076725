package markers

import (
	"encoding/binary"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// MaxMarkers bounds the markers of a namespace: beyond it, each new one replaces the oldest. MaxAllMarkers bounds those of all
	// namespaces together.
	MaxMarkers    = 1000
	MaxAllMarkers = 100_000
	// KeptFor is how long a marker is kept.
	KeptFor = 90 * 24 * time.Hour
	// markersHourly bounds how many markers of a namespace are set and ended within an hour. Callers that may only enqueue may do so, and
	// each call leaves an entry in the audit log, where it must not crowd out what operators did.
	markersHourly = 1000
	// markerAhead is how far in the future a marker may be: clocks differ, and rollouts are announced.
	markerAhead = 24 * time.Hour

	// MaxTitle, MaxVersion and MaxURL bound texts, in bytes; MaxPatterns bounds the patterns of queues, and of
	// types.
	MaxTitle    = 200
	MaxVersion  = 100
	MaxURL      = 1000
	MaxPatterns = 16
)

// Kind is what a marker is about. The strings are part of the public contract.
type Kind string

// The kinds of markers.
const (
	Deploy   Kind = "deploy"
	Incident Kind = "incident" // open until it is ended
	Note     Kind = "note"
)

// Kinds lists every kind.
var Kinds = []Kind{Deploy, Incident, Note}

// Marker is a moment or a span of time with a title.
type Marker struct {
	ID        task.ID    `json:"id"`
	Namespace string     `json:"namespace"`
	Kind      Kind       `json:"kind"`
	Title     string     `json:"title"`
	Version   string     `json:"version,omitempty"` // what was deployed
	URL       string     `json:"url,omitempty"`
	Queues    []string   `json:"queues,omitempty"` // patterns; nil: all
	Types     []string   `json:"types,omitempty"`  // likewise
	At        store.Time `json:"at"`
	EndedAt   store.Time `json:"ended_at,omitempty"` // 0: an open incident, or a moment
	CreatedBy string     `json:"created_by,omitempty"`
	CreatedAt store.Time `json:"created_at"`
}

// until returns the end of a marker. An open incident has none.
func (m *Marker) until() store.Time {
	switch {
	case m.EndedAt != 0:
		return m.EndedAt
	case m.Kind == Incident:
		return math.MaxInt64
	}
	return m.At
}

// Check validates what can be validated without a clock.
func (m *Marker) Check(l task.Limits) error {
	if err := CheckKind(m.Kind); err != nil {
		return err
	}
	if m.Title == "" {
		return task.Invalid("title", "is required")
	}
	for _, f := range []struct {
		field, text string
		most        int
	}{{"title", m.Title, MaxTitle}, {"version", m.Version, MaxVersion}, {"url", m.URL, MaxURL}} {
		if err := checkLine(f.field, f.text, f.most); err != nil {
			return err
		}
	}
	if err := checkLink(m.URL); err != nil {
		return err
	}
	return m.checkPatterns(l)
}

// CheckKind returns an error if kind is not a kind of marker.
func CheckKind(kind Kind) error {
	switch {
	case kind == "":
		return task.Invalid("kind", "is required: one of %s", task.Listed(Kinds))
	case !slices.Contains(Kinds, kind):
		return task.NoneOf("kind", string(kind), []string{string(Deploy), string(Incident), string(Note)})
	}
	return nil
}

// checkLine returns an error if the text is not a single line.
func checkLine(field, text string, most int) error {
	switch {
	case len(text) > most:
		return task.Invalid(field, "%d bytes, at most %d are allowed", len(text), most)
	case !utf8.ValidString(text):
		return task.Invalid(field, "is not UTF-8")
	case strings.ContainsFunc(text, unicode.IsControl):
		return task.Invalid(field, "%q has a control character", text)
	}
	return nil
}

// checkLink returns an error for an address that pages should not link to. Schemes other than those of the web could run scripts in a page.
func checkLink(link string) error {
	if link == "" {
		return nil
	}
	u, err := url.Parse(link)
	switch {
	case err != nil || u.Host == "":
		return task.Invalid("url", "%q is not an address such as https://ci.example.com/runs/42", task.Cut(link, 64))
	case u.Scheme != "https" && u.Scheme != "http":
		return task.Invalid("url", "%q begins with %q, and must begin with https or http", task.Cut(link, 64), u.Scheme)
	case u.User != nil:
		return task.Invalid("url", "it has a user or password before its host")
	}
	return nil
}

func (m *Marker) checkPatterns(l task.Limits) error {
	for _, of := range []struct {
		field string
		list  []string
	}{{"queues", m.Queues}, {"types", m.Types}} {
		if len(of.list) > MaxPatterns {
			return task.Invalid(of.field, "%d patterns, at most %d are allowed", len(of.list), MaxPatterns)
		}
	}
	for _, p := range m.Queues {
		if err := task.CheckPattern("queues", "queue", p, l); err != nil {
			return err
		}
	}
	for _, p := range m.Types {
		switch {
		case p == "":
			return task.Invalid("types", "a pattern is empty")
		case strings.Count(p, "*") > task.MaxStars:
			return task.Invalid("types", "%q has more than %d stars", task.Cut(p, 64), task.MaxStars)
		}
		if err := task.CheckName("types", p, l); err != nil {
			return err
		}
	}
	return nil
}

// checkTimes returns an error for a span that is too old, too far ahead, or ends before it begins.
func (m *Marker) checkTimes(now store.Time) error {
	stamp := func(t store.Time) string { return t.Time().Format(time.RFC3339) }
	switch latest := now.Add(markerAhead); {
	case m.At <= now.Add(-KeptFor):
		return task.Invalid("at", "%s is more than 90 days ago, and markers are kept for 90 days", stamp(m.At))
	case m.At > latest:
		return task.Invalid("at", "%s is more than a day ahead", stamp(m.At))
	case m.EndedAt != 0 && m.EndedAt < m.At:
		return task.Invalid("ended_at", "%s is before the marker begins, at %s", stamp(m.EndedAt), stamp(m.At))
	case m.EndedAt > latest:
		return task.Invalid("ended_at", "%s is more than a day ahead", stamp(m.EndedAt))
	}
	return nil
}

// same reports whether two calls ask for the same marker. The end is ignored, since markers get ended.
func (m *Marker) same(asked *Marker) bool {
	return m.Kind == asked.Kind && m.Title == asked.Title && m.Version == asked.Version && m.URL == asked.URL &&
		slices.Equal(m.Queues, asked.Queues) && slices.Equal(m.Types, asked.Types) && (asked.At == 0 || asked.At == m.At)
}

// about reports whether a marker is about a queue and a type; "" means any.
func (m *Marker) about(queue, typ string) bool {
	fits := func(patterns []string, name string) bool {
		return name == "" || len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return task.Matches(p, name) })
	}
	return fits(m.Queues, queue) && fits(m.Types, typ)
}

// seenBy reports whether a caller limited to some queues may see the marker: one about all queues, or about some of the caller's. It
// removes the marker's queues that the caller may not see.
func (m *Marker) seenBy(s task.Scope) bool {
	if s.All() || len(m.Queues) == 0 {
		return true
	}
	m.Queues = slices.DeleteFunc(slices.Clone(m.Queues), func(p string) bool {
		return !s.Sees(p) && !slices.ContainsFunc(s.Queues, func(own string) bool { return task.Matches(p, own) })
	})
	return len(m.Queues) > 0
}

// markerPlace is a marker's position in time, after those that begin earlier.
type markerPlace struct {
	at    store.Time
	id    task.ID
	until store.Time
}

const markerPlaceBytes = 8 + 16 + 8

func (m *Marker) place() markerPlace { return markerPlace{m.At, m.ID, m.until()} }

// key returns the key of a marker's row.
func (p markerPlace) key(ns string) []byte {
	k := binary.BigEndian.AppendUint64(system.Key(system.MarkerTable, ns, ""), uint64(p.at)) // #nosec G115 -- not negative
	return binary.BigEndian.AppendUint64(append(k, p.id[:]...), uint64(p.until))             // #nosec G115 -- not negative
}

// placeOfMarker decodes the key of a row.
func placeOfMarker(key []byte) (p markerPlace, ok bool) {
	if len(key) < markerPlaceBytes {
		return p, false
	}
	b := key[len(key)-markerPlaceBytes:]
	p.at, p.until = store.Time(binary.BigEndian.Uint64(b)),
		store.Time(binary.BigEndian.Uint64(b[24:])) // #nosec G115 -- as they were written
	copy(p.id[:], b[8:24])
	return p, true
}

// markerPace counts the changes since a time.
type markerPace struct {
	Since   store.Time `json:"since"`
	Changes int        `json:"changes"`
}

// markerFacts is what the audit log records of a marker.
type markerFacts struct {
	Kind    Kind       `json:"kind"`
	Title   string     `json:"title"`
	Version string     `json:"version"`
	URL     string     `json:"url"`
	Queues  []string   `json:"queues"`
	Types   []string   `json:"types"`
	At      time.Time  `json:"at"`
	EndedAt *time.Time `json:"ended_at"`
}

func factsOfMarker(m *Marker) *markerFacts {
	return &markerFacts{m.Kind, m.Title, m.Version, m.URL, m.Queues, m.Types, m.At.Time(), auditlog.Moment(m.EndedAt)}
}
