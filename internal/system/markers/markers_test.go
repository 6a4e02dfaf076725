package markers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/markers"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/systemtest"
	"github.com/pawlq/pawl/internal/task"
)

var (
	bg   = context.Background()
	lena = task.Author{Name: "lena", Interface: task.InterfaceREST}
)

// world is a system shard, and the markers and namespaces in it.
type world struct {
	*systemtest.World
	shard      *system.Shard
	Markers    *markers.Markers
	Namespaces *namespaces.Namespaces
}

// inBubble runs a test in fake time.
func inBubble(t *testing.T, fn func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{World: systemtest.NewWorld(t)}
		w.shard = w.Open(1)
		w.shard.Confirm = func(context.Context, uint64) ([]string, error) { return nil, nil }
		w.Markers = markers.New(w.shard)
		w.Namespaces = namespaces.New(namespaces.Config{Shard: w.shard, Undivide: func(*store.Tx, string) {}, Forget: []func(*store.Tx,
			string){markers.Forget},
			Erase: func(context.Context, uint32, string, uint64) error { return nil }})
		fn(t, w)
	})
}

// pass lets fake time pass, in the bubble that a test is in.
func pass(d time.Duration) { time.Sleep(d) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mark adds a marker that began that long ago, with the number in its id and its title.
func (w *world) mark(ctx context.Context, n int, ago time.Duration, queues ...string) error {
	_, err := w.Markers.Add(ctx, markers.Call{By: lena, Marker: markers.Marker{ID: numbered(n), Namespace: "default", Kind: markers.Deploy,
		Title: fmt.Sprint(n), Queues: queues, At: store.TimeOf(time.Now().Add(-ago))}})
	return err
}

func numbered(n int) task.ID { return task.NewID(0, int64(n), 0) }

// marks returns the titles of the markers that a caller sees, oldest first.
func (w *world) marks(ctx context.Context, ns string) (titles []string) {
	page, err := w.Markers.List(ctx, markers.Query{Namespace: ns, Limit: markers.MaxMarkers})
	if err != nil {
		w.T.Fatal(err)
	}
	for _, m := range slices.Backward(page.Markers) {
		titles = append(titles, m.Title)
	}
	return titles
}

func (w *world) countedMarkers() int {
	n, err := system.View(bg, w.shard, func(r store.Reader) (uint64, error) { return system.GetNumber(r, system.MarkersKey), nil })
	if err != nil {
		w.T.Fatal(err)
	}
	return int(n)
}

// TestMarkersAreBounded: the oldest are removed, by number and by age, and all existing ones are counted.
func TestMarkersAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const day = 24 * time.Hour
		for i := range markers.MaxMarkers {
			must(t, w.mark(bg, i, 80*day-time.Duration(i)*time.Minute))
		}
		if e, _ := task.AsError(w.mark(bg, markers.MaxMarkers, 0)); e == nil || e.Code != task.CodeRateLimited || e.RetryAfter <= 0 {
			t.Errorf("one more marker within the hour: %v, want rate_limited with a delay", e)
		}
		pass(time.Hour + time.Second)
		if err := w.mark(bg, markers.MaxMarkers+1, 81*day); err == nil || !strings.Contains(err.Error(), "at: ") {
			t.Errorf("adding a marker older than all that are kept: %v, want an error about its time", err)
		}
		must(t, w.mark(bg, markers.MaxMarkers, 0))
		if got := w.marks(bg, "default"); len(got) != markers.MaxMarkers || got[0] != "1" || w.countedMarkers() != markers.MaxMarkers {
			t.Errorf("after one more there are %d markers, %d are counted, the oldest is %s", len(got), w.countedMarkers(), got[0])
		}
		pass(11 * day) // all but the last are more than 90 days old
		if got := w.marks(bg, "default"); !slices.Equal(got, []string{"1000"}) {
			t.Errorf("after 11 days the markers are %q, want only the last", got)
		}
		must(t, w.mark(bg, markers.MaxMarkers+2, 0))
		if got := w.countedMarkers(); got != 2 {
			t.Errorf("%d markers are counted after the old ones expired, want 2", got)
		}
		if err := w.mark(bg, markers.MaxMarkers+3, 90*day); err == nil {
			t.Error("a marker from 90 days ago was accepted")
		}
		_, err := system.Update(bg, w.shard, func(tx *store.Tx) (int, error) {
			tx.Set(system.MarkersKey, system.EncodeNumber(markers.MaxAllMarkers))
			return 0, nil
		})
		must(t, err)
		if err := w.mark(bg, markers.MaxMarkers+4, 0); !errors.Is(err, task.ErrWrongState) {
			t.Errorf("one more marker than the limit of all namespaces: %v, want ErrWrongState", err)
		}
	})
}

// TestMarkersAreScoped: a caller limited to some queues sees and sets the markers of those queues only.
func TestMarkersAreScoped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		must(t, w.mark(bg, 1, time.Minute))
		must(t, w.mark(bg, 2, time.Minute, "mail*", "images"))
		must(t, w.mark(bg, 3, time.Minute, "images"))
		mail := task.WithScope(bg, task.Scope{Queues: []string{"mail-eu", "mail-us*"}})
		if got := w.marks(mail, "default"); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("a caller limited to mail-eu sees the markers %q, want 1 and 2", got)
		}
		page, err := w.Markers.List(mail, markers.Query{Namespace: "default", Limit: 1})
		if must(t, err); !page.More || !slices.Equal(page.Markers[0].Queues, []string{"mail*"}) {
			t.Errorf("the caller sees patterns outside its scope: %+v", page)
		}
		must(t, w.mark(mail, 4, 0, "mail-us-1"))
		for what, err := range map[string]error{
			"one about all queues": w.mark(mail, 5, 0),
			"one about no queues":  w.mark(mail, 5, 0, []string{}...), // which is about all
			"one about others too": w.mark(mail, 5, 0, "mail-eu", "images"),
			"to remove its own":    w.Markers.Remove(mail, markers.Name{By: lena, Namespace: "default", ID: numbered(4)}),
			"to remove one of all": w.Markers.Remove(mail, markers.Name{By: lena, Namespace: "default", ID: numbered(1)}),
			"to remove another's":  w.Markers.Remove(mail, markers.Name{By: lena, Namespace: "default", ID: numbered(3)}),
		} {
			want := map[string]task.Code{"to remove its own": "", "to remove another's": task.CodeNotFound}
			code, known := want[what]
			if !known {
				code = task.CodePermissionDenied
			}
			if e, _ := task.AsError(err); err == nil && code != "" || err != nil && e.Code != code {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err = w.Markers.End(mail, markers.Ending{Name: markers.Name{By: lena, Namespace: "default", ID: numbered(2)}})
		if e, _ := task.AsError(err); e == nil || e.Code != task.CodePermissionDenied {
			t.Errorf("ending a marker that also names other queues: %v, want permission_denied", err)
		}
	})
}

// TestMarkersAreRemovedWithNamespace: markers are removed with their namespace.
func TestMarkersAreRemovedWithNamespace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, err := w.Namespaces.Add(bg, namespaces.Call{By: lena, Name: "team"})
		must(t, err)
		_, err = w.Markers.Add(bg, markers.Call{By: lena, Marker: markers.Marker{ID: numbered(1), Namespace: "team", Kind: markers.Incident,
			Title: "team's"}})
		must(t, err)
		must(t, w.mark(bg, 2, 0))
		_, err = w.Namespaces.Remove(bg, lena, "team")
		must(t, err)
		if got := w.marks(bg, "team"); len(got) != 0 || w.countedMarkers() != 1 {
			t.Errorf("a removed namespace has the markers %q, and %d are counted, want none and 1", got, w.countedMarkers())
		}
		_, err = w.Markers.Add(bg, markers.Call{By: lena, Marker: markers.Marker{ID: numbered(3), Namespace: "team",
			Kind: markers.Note, Title: "late"}})
		if !errors.Is(err, task.ErrNotFound) {
			t.Errorf("adding a marker in a removed namespace: %v, want ErrNotFound", err)
		}
	})
}

// Invalid markers are refused, and the error names the field.
func TestMarkersAreChecked(t *testing.T) {
	limits := task.DefaultLimits()
	good := markers.Marker{Kind: markers.Deploy, Title: "v1"}
	for _, c := range []struct {
		change func(m *markers.Marker)
		want   string // empty: it is valid
	}{
		{func(*markers.Marker) {}, ""}, {func(m *markers.Marker) { m.Kind = "" }, "kind: is required"},
		{func(m *markers.Marker) { m.Kind = "party" }, "kind: "}, {func(m *markers.Marker) { m.Title = "" }, "title: is required"},
		{func(m *markers.Marker) { m.Title = strings.Repeat("x", markers.MaxTitle) }, ""},
		{func(m *markers.Marker) { m.Title = strings.Repeat("x", markers.MaxTitle+1) }, "title: "},
		{func(m *markers.Marker) { m.Title = "a\nb" },
			"control character"},
		{func(m *markers.Marker) { m.Version = "\xff" }, "version: is not UTF-8"},
		{func(m *markers.Marker) { m.URL = "https://ci/runs/42" }, ""}, {func(m *markers.Marker) { m.URL = "http://ci" }, ""},
		{func(m *markers.Marker) { m.URL = "ftp://ci" }, `begins with "ftp"`}, {func(m *markers.Marker) { m.URL = "https://" },
			"is not an address"}, {func(m *markers.Marker) { m.URL = "https://a b" }, "is not an address"},
		{func(m *markers.Marker) { m.URL = "javascript:alert(1)" }, "is not an address"},
		{func(m *markers.Marker) { m.URL = "https://me:secret@ci" }, "a user or password"},
		{func(m *markers.Marker) { m.Queues = slices.Repeat([]string{"a*"}, markers.MaxPatterns) }, ""},
		{func(m *markers.Marker) { m.Queues = slices.Repeat([]string{"a*"}, markers.MaxPatterns+1) }, "queues: "},
		{func(m *markers.Marker) { m.Queues = []string{"(x)"} }, "queues: "}, {func(m *markers.Marker) { m.Types = []string{"a*", ""} },
			"types: a pattern is empty"},
		{func(m *markers.Marker) { m.Types = slices.Repeat([]string{"a*"}, markers.MaxPatterns+1) }, "types: "},
		{func(m *markers.Marker) { m.Types = []string{strings.Repeat("*", task.MaxStars)} }, ""},
		{func(m *markers.Marker) { m.Types = []string{strings.Repeat("*", task.MaxStars+1)} }, "stars"},
		{func(m *markers.Marker) { m.Types = []string{"a\x00"} }, "types: "},
	} {
		m := good
		c.change(&m)
		if err := m.Check(limits); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", m, err, c.want)
		}
	}
}

// A page of markers continues after the last one, and a range of time excludes its end.
func TestPagesOfMarkers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for n := range 5 {
			must(t, w.mark(bg, n, time.Duration(5-n)*time.Minute))
		}
		var got []string
		q := markers.Query{Namespace: "default", Limit: 2}
		for more := true; more; {
			page, err := w.Markers.List(bg, q)
			if err != nil || len(page.Markers) == 0 || len(got) > 5 {
				t.Fatalf("listing a page of markers: %+v, %v", page, err)
			}
			for _, m := range page.Markers {
				got = append(got, m.Title)
				q.BehindAt, q.BehindID = m.At, m.ID
			}
			more = page.More
		}
		if fmt.Sprint(got) != "[4 3 2 1 0]" {
			t.Errorf("paging through the markers found %v, want newest first", got)
		}
		page, err := w.Markers.List(bg, markers.Query{Namespace: "default", Limit: 9,
			Until: store.TimeOf(time.Now().Add(-2 * time.Minute))})
		if err != nil || len(page.Markers) != 3 || page.Markers[0].Title != "2" {
			t.Errorf("markers up to two minutes ago: %+v, %v, want three", page, err)
		}
	})
}
