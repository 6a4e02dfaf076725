package markers

import "testing"

// Two calls ask for the same marker if they describe it alike. Markers can be ended, so the end may differ.
func TestTheSameMarker(t *testing.T) {
	asked := Marker{Kind: Deploy, Title: "v1", Version: "1", URL: "https://ci", Queues: []string{"q"}, Types: []string{"t"}, At: 7}
	for i, c := range []struct {
		change func(m *Marker)
		want   bool
	}{
		{func(*Marker) {}, true}, {func(m *Marker) { m.EndedAt = 9 }, true}, {func(m *Marker) { m.At = 0 }, true},
		{func(m *Marker) { m.At = 8 }, false}, {func(m *Marker) { m.Kind = Note }, false}, {func(m *Marker) { m.Title = "v2" }, false},
		{func(m *Marker) { m.Version = "" }, false}, {func(m *Marker) { m.URL = "" }, false}, {func(m *Marker) { m.Queues = nil }, false},
		{func(m *Marker) { m.Types = []string{"u"} },
			false},
	} {
		again := asked
		if c.change(&again); asked.same(&again) != c.want {
			t.Errorf("call %d: same reports that %+v equals %+v: %v", i, again, asked, !c.want)
		}
	}
}
