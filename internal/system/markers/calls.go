package markers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
)

// Call asks for a new marker. Its id is that of the request, so that a repeat finds it.
type Call struct {
	By     task.Author
	Marker Marker // At 0: now
}

// Name holds what calls on a marker have in common.
type Name struct {
	By        task.Author
	Namespace string
	ID        task.ID
}

// Ending asks for the end of a marker.
type Ending struct {
	Name
	EndedAt store.Time // 0: now, unless it already has an end
}

// Query selects markers, newest first.
type Query struct {
	Namespace    string
	Since, Until store.Time // markers that overlap this range; 0: unbounded
	Kind         Kind       // "": all
	Queue, Type  string     // those about it
	Limit        int
	// BehindAt and BehindID are those of the last marker of the page before; zero: from the newest.
	BehindAt store.Time
	BehindID task.ID
}

// Page is a page of markers, newest first.
type Page struct {
	Markers []Marker
	More    bool
}

// markerPlaces returns the places of a namespace's markers, oldest first.
func markerPlaces(r store.Reader, ns string) (all []markerPlace) {
	lo := system.Key(system.MarkerTable, ns, "")
	r.Scan(lo, system.PrefixEnd(lo), func(k, _ []byte) bool {
		if p, ok := placeOfMarker(k); ok {
			all = append(all, p)
		}
		return true
	})
	return all
}

// getMarker returns a marker, or not_found if it does not exist or the caller may not see it.
func getMarker(ctx context.Context, r store.Reader, ns string, id task.ID) (Marker, error) {
	for _, p := range markerPlaces(r, ns) {
		if p.id != id {
			continue
		}
		m, ok, err := system.GetRow[Marker](r, p.key(ns))
		if seen := m; err != nil || ok && seen.seenBy(task.ScopeOf(ctx)) {
			return m, err
		}
	}
	return Marker{}, task.NotFound("marker", id.String())
}

// maySet returns an error for a marker about queues other than those of the caller.
func (m *Marker) maySet(ctx context.Context) error {
	scope := task.ScopeOf(ctx)
	if scope.All() || len(m.Queues) > 0 && scope.Covers(task.Scope{Queues: m.Queues}) {
		return nil
	}
	about := "all queues"
	if len(m.Queues) > 0 {
		about = strings.Join(m.Queues, ", ")
	}
	return &task.Error{Code: task.CodePermissionDenied,
		Message: fmt.Sprintf("a caller that is limited to the queues %s can't set, end or remove a marker about %s",
			strings.Join(scope.Queues, ", "), about)}
}

// Markers reads and changes the markers.
type Markers struct{ shard *system.Shard }

// New returns the markers in a system shard.
func New(shard *system.Shard) *Markers { return &Markers{shard} }

// Add adds a marker. A repeat under the same id returns the existing marker.
//
// Errors: conflict if the id belongs to another marker; rate_limited after too many within an hour.
func (s *Markers) Add(ctx context.Context, a Call) (Marker, error) {
	return system.Update(ctx, s.shard, func(tx *store.Tx) (Marker, error) {
		m := a.Marker
		if _, err := namespaces.Get(tx, m.Namespace); err != nil {
			return m, err
		}
		if err := m.maySet(ctx); err != nil {
			return m, err
		}
		kept := markerPlaces(tx, m.Namespace)
		for _, p := range kept {
			if p.id == m.ID {
				return m.answerRepeat(tx, p)
			}
		}
		if m.At == 0 {
			m.At = tx.Now()
		}
		if err := m.checkTimes(tx.Now()); err != nil {
			return m, err
		}
		gone, err := roomForMarker(tx, &m, kept, tx.Now())
		if err != nil {
			return m, err
		}
		m.CreatedBy, m.CreatedAt = a.By.Name, tx.Now()
		if err := putMarker(tx, a.By, task.MarkerAdded, nil, &m); err != nil {
			return m, err
		}
		for _, p := range gone {
			tx.Delete(p.key(m.Namespace))
		}
		countMarkers(tx, 1-len(gone))
		return m, nil
	})
}

// answerRepeat answers a repeat.
func (m *Marker) answerRepeat(r store.Reader, p markerPlace) (Marker, error) {
	old, _, err := system.GetRow[Marker](r, p.key(m.Namespace))
	if err == nil && !old.same(m) {
		err = system.Conflict("request_id %q: it was given to another marker", m.ID)
	}
	return old, err
}

// roomForMarker returns the markers that must go for a new one: those past their retention, and the oldest if there are too many.
func roomForMarker(r store.Reader, m *Marker, kept []markerPlace, now store.Time) (gone []markerPlace, err error) {
	n := 0
	for n < len(kept) && kept[n].at <= now.Add(-KeptFor) {
		n++
	}
	if over := len(kept) + 1 - MaxMarkers; over > n {
		if n = over; m.At < kept[n-1].at {
			return nil, task.Invalid("at", "%s is before the oldest of the %d markers that namespace %q keeps",
				m.At.Time().Format(time.RFC3339), MaxMarkers, m.Namespace)
		}
	}
	if n == 0 && system.GetNumber(r, system.MarkersKey) >= MaxAllMarkers {
		return nil, system.WrongState("marker %q would exceed the limit of %d in all namespaces together: remove some",
			m.Title, MaxAllMarkers)
	}
	return kept[:n], nil
}

// putMarker writes the row of a marker and an audit entry, unless there were too many within an hour. before is nil for a new marker.
func putMarker(tx *store.Tx, by task.Author, action task.Action, before, m *Marker) error {
	pace, err := nextPace(tx, m.Namespace)
	if err != nil {
		return err
	}
	var was any
	if before != nil {
		was = factsOfMarker(before)
	}
	if err := onMarker(tx, by, action, m, was, factsOfMarker(m)); err != nil {
		return err
	}
	if before != nil {
		tx.Delete(before.place().key(m.Namespace))
	}
	tx.Set(m.place().key(m.Namespace), system.EncodeRow(*m))
	tx.Set(markerPaceKey(m.Namespace), system.EncodeRow(pace))
	return nil
}

func onMarker(tx *store.Tx, by task.Author, action task.Action, m *Marker, before, after any) error {
	return auditlog.Record(tx, audit.Entry{By: by, Action: action, Namespace: m.Namespace, Target: task.Target{Kind: task.OnMarker,
		Name: m.ID.String()}}, before, after)
}

func markerPaceKey(ns string) []byte { return append([]byte{system.MetaTable, 'K'}, ns...) }

// nextPace returns the pace with one more change, or an error if there are too many within an hour.
func nextPace(tx *store.Tx, ns string) (markerPace, error) {
	pace, _, err := system.GetRow[markerPace](tx, markerPaceKey(ns))
	if err != nil {
		return pace, err
	}
	ends := pace.Since.Add(time.Hour)
	switch {
	case tx.Now() >= ends:
		pace = markerPace{Since: tx.Now()}
	case pace.Changes >= markersHourly:
		return pace, &task.Error{Code: task.CodeRateLimited, RetryAfter: ends.Sub(tx.Now()),
			Message: fmt.Sprintf("namespace %q: %d markers were set or ended within an hour, the maximum", ns, markersHourly)}
	}
	pace.Changes++
	return pace, nil
}

// countMarkers adds n to the number of all markers.
func countMarkers(tx *store.Tx, n int) {
	tx.Set(system.MarkersKey, system.EncodeNumber(uint64(max(int(system.GetNumber(tx, system.MarkersKey))+n,
		0)))) // #nosec G115 -- at most MaxAllMarkers
}

// End sets when a marker was over. Without a time, an existing end is kept.
func (s *Markers) End(ctx context.Context, a Ending) (Marker, error) {
	return system.Update(ctx, s.shard, func(tx *store.Tx) (Marker, error) {
		before, err := getMarker(ctx, tx, a.Namespace, a.ID)
		if err == nil {
			err = before.maySet(ctx)
		}
		if err != nil {
			return before, err
		}
		m := before
		switch {
		case a.EndedAt != 0:
			m.EndedAt = a.EndedAt
		case m.EndedAt == 0:
			m.EndedAt = tx.Now()
		}
		if m.EndedAt == before.EndedAt {
			return m, nil
		}
		if err := m.checkTimes(tx.Now()); err != nil {
			return m, err
		}
		return m, putMarker(tx, a.By, task.MarkerEnded, &before, &m)
	})
}

// Remove removes a marker.
func (s *Markers) Remove(ctx context.Context, a Name) error {
	_, err := system.Update(ctx, s.shard, func(tx *store.Tx) (struct{}, error) {
		m, err := getMarker(ctx, tx, a.Namespace, a.ID)
		if err == nil {
			err = m.maySet(ctx)
		}
		if err != nil {
			return struct{}{}, err
		}
		if err := onMarker(tx, a.By, task.MarkerRemoved, &m, factsOfMarker(&m), nil); err != nil {
			return struct{}{}, err
		}
		tx.Delete(m.place().key(a.Namespace))
		countMarkers(tx, -1)
		return struct{}{}, nil
	})
	return err
}

// Forget removes the markers of a namespace.
func Forget(tx *store.Tx, ns string) {
	all := markerPlaces(tx, ns)
	for _, p := range all {
		tx.Delete(p.key(ns))
	}
	if len(all) > 0 {
		countMarkers(tx, -len(all))
	}
	tx.Delete(markerPaceKey(ns))
}

// List returns a page of the markers that overlap a range of time and that the caller may see.
func (s *Markers) List(ctx context.Context, q Query) (Page, error) {
	oldest := store.TimeOf(time.Now().Add(-KeptFor))
	return system.View(ctx, s.shard, func(r store.Reader) (page Page, err error) {
		lo := markerPlace{at: oldest + 1}.key(q.Namespace)
		r.ScanBack(lo, q.end(), func(k, v []byte) bool {
			if p, ok := placeOfMarker(k); !ok || p.until < q.Since {
				return true
			}
			var m Marker
			if m, err = system.DecodeRow[Marker](k, v); err != nil {
				return false
			}
			if q.Kind != "" && m.Kind != q.Kind || !m.about(q.Queue, q.Type) || !m.seenBy(task.ScopeOf(ctx)) {
				return true
			}
			if page.More = len(page.Markers) == q.Limit; !page.More {
				page.Markers = append(page.Markers, m)
			}
			return !page.More
		})
		return page, err
	})
}

// end returns the first key after the markers that a query selects.
func (q *Query) end() []byte {
	if q.BehindAt != 0 {
		return markerPlace{at: q.BehindAt, id: q.BehindID}.key(q.Namespace)
	}
	if q.Until != 0 {
		return markerPlace{at: q.Until}.key(q.Namespace)
	}
	return system.PrefixEnd(system.Key(system.MarkerTable, q.Namespace, ""))
}
