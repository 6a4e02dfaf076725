package markers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/markers"
	"github.com/pawlq/pawl/internal/task"
)

// A repeat finds the marker that it set, also once that has ended; another marker under the same id is refused.
func TestRepeatedMarkers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ask := markers.Call{By: lena, Marker: markers.Marker{ID: numbered(1), Namespace: "default", Kind: markers.Deploy, Title: "v1"}}
		first, err := w.Markers.Add(bg, ask)
		must(t, err)
		ended, err := w.Markers.End(bg, markers.Ending{Name: markers.Name{By: lena, Namespace: "default", ID: numbered(1)}})
		must(t, err)
		if again, err := w.Markers.Add(bg, ask); err != nil || again.At != first.At || again.EndedAt != ended.EndedAt ||
			w.countedMarkers() != 1 {
			t.Errorf("the same call again: %+v, %v", again, err)
		}
		ask.Marker.Title = "v2"
		if _, err := w.Markers.Add(bg, ask); !errors.Is(err, task.ErrConflict) || !strings.Contains(err.Error(),
			"was given to another marker") {
			t.Errorf("another marker: %v", err)
		}
	})
}

// A marker ends now, or when a call says; an end that it has is kept, and changed only to another one.
func TestMarkersEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		must(t, w.mark(bg, 1, time.Hour))
		name := markers.Name{By: lena, Namespace: "default", ID: numbered(1)}
		end := func(at store.Time) (markers.Marker, error) {
			return w.Markers.End(bg, markers.Ending{Name: name, EndedAt: at})
		}
		first, err := end(0)
		if must(t, err); first.EndedAt != w.State.Applied().Time {
			t.Errorf("it ended at %v", first.EndedAt)
		}
		pass(time.Minute)
		before := w.State.Applied().Index
		for _, at := range []store.Time{0, first.EndedAt} {
			if again, err := end(at); err != nil || again.EndedAt != first.EndedAt || w.State.Applied().Index != before {
				t.Errorf("ended again at %v: %v, %v", at, again.EndedAt, err)
			}
		}
		earlier := first.EndedAt.Add(-time.Minute)
		if again, err := end(earlier); err != nil || again.EndedAt != earlier {
			t.Errorf("ended earlier: %v, %v", again.EndedAt, err)
		}
		if page, err := w.Markers.List(bg, markers.Query{Namespace: "default", Limit: 9}); err != nil || len(page.Markers) != 1 ||
			page.Markers[0].EndedAt != earlier || w.countedMarkers() != 1 {
			t.Errorf("then there are %+v, %v", page, err)
		}
		if _, err := end(first.At - 1); !errors.Is(err, task.ErrInvalidArgument) {
			t.Errorf("ended before it began: %v", err)
		}
		name.ID = numbered(2)
		if _, err := end(0); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("the end of one that is not there: %v", err)
		}
		if got := w.Audited("default"); len(got) != 3 || !strings.HasPrefix(got[2], "lena marker.end marker ") {
			t.Errorf("audited %q", got)
		}
	})
}

// A list has the markers of a kind and a time, and none that is kept no longer.
func TestMarkersAreSelected(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		now := store.TimeOf(time.Now())
		for n, m := range []markers.Marker{{Kind: markers.Deploy, At: now.Add(-3 * time.Hour), EndedAt: now.Add(-2 * time.Hour)},
			{Kind: markers.Incident, At: now.Add(-3 * time.Hour)}, {Kind: markers.Deploy, At: now}} {
			m.ID, m.Namespace, m.Title = numbered(n), "default", string(rune('a'+n))
			_, err := w.Markers.Add(bg, markers.Call{By: lena, Marker: m})
			must(t, err)
		}
		for _, other := range []string{"\x00", "\x7f"} { // rows of another form
			w.Put(system.Key(system.MarkerTable, "default", other), []byte{99})
		}
		for what, c := range map[string]struct {
			q    markers.Query
			want string
		}{
			"all":                     {markers.Query{}, "cba"},
			"deploys":                 {markers.Query{Kind: markers.Deploy}, "ca"},
			"since one ended":         {markers.Query{Since: now.Add(-2 * time.Hour)}, "cba"},
			"since just after it did": {markers.Query{Since: now.Add(-2*time.Hour) + 1}, "cb"}, // an incident without an end goes on
		} {
			c.q.Namespace, c.q.Limit = "default", 9
			page, err := w.Markers.List(bg, c.q)
			got := ""
			for _, m := range page.Markers {
				got += m.Title
			}
			if err != nil || got != c.want {
				t.Errorf("%s: %q, %v, want %q", what, got, err, c.want)
			}
		}
		if must(t, w.mark(bg, 9, 0)); w.countedMarkers() != 4 { // the other rows are no markers
			t.Errorf("%d are counted, want 4", w.countedMarkers())
		}
	})
}

// A marker is listed up to the moment at which it has been kept long enough.
func TestMarkersUpToTheirEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		at := store.TimeOf(time.Now())
		_, err := w.Markers.Add(bg, markers.Call{By: lena, Marker: markers.Marker{ID: numbered(1), Namespace: "default", Kind: markers.Note,
			Title: "a", At: at}})
		must(t, err)
		pass(time.Until(at.Add(markers.KeptFor).Time()) - time.Millisecond)
		if got := w.marks(bg, "default"); !slices.Equal(got, []string{"a"}) {
			t.Errorf("a moment before, there are %q", got)
		}
		pass(time.Millisecond)
		if got := w.marks(bg, "default"); len(got) > 0 {
			t.Errorf("at that moment there are %q", got)
		}
	})
}

// A refusal says which queues are meant; a new marker may begin with the oldest that is kept.
func TestRefusedMarkers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		mail := task.WithScope(context.Background(), task.Scope{Queues: []string{"mail*"}})
		for words, queues := range map[string][]string{"a marker about all queues": nil, "a marker about images, videos": {
			"images", "videos"}} {
			if err := w.mark(mail, 1, 0, queues...); err == nil || !strings.HasSuffix(err.Error(), words) {
				t.Errorf("about %q: %v, want %q", queues, err, words)
			}
		}
		w.Round(func(tx *store.Tx) { markers.Forget(tx, "default") })
		for n := range markers.MaxMarkers {
			must(t, w.mark(bg, n, time.Hour))
			if n%500 == 499 {
				pass(time.Hour + time.Second)
			}
		}
		page, err := w.Markers.List(bg, markers.Query{Namespace: "default", Limit: markers.MaxMarkers})
		must(t, err)
		oldest := page.Markers[len(page.Markers)-1].At
		add := func(n int, at store.Time) error {
			_, err := w.Markers.Add(bg, markers.Call{By: lena, Marker: markers.Marker{ID: numbered(n), Namespace: "default",
				Kind: markers.Note, Title: "a", At: at}})
			return err
		}
		if err := add(2000, oldest-1); !errors.Is(err, task.ErrInvalidArgument) || !strings.Contains(err.Error(),
			"is before the oldest of the 1000 markers") {
			t.Errorf("one before the oldest: %v", err)
		}
		must(t, add(2001, oldest))
	})
	long := markers.Marker{Kind: markers.Note, Title: "a", Types: []string{strings.Repeat("*", 70)}}
	if err := long.Check(task.DefaultLimits()); err == nil || !strings.Contains(err.Error(), `"`+task.Cut(long.Types[0], 64)+`"`) {
		t.Errorf("a long pattern: %v", err)
	}
}
