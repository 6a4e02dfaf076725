package gateway

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/system/markers"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// fakeMarkers stores one marker and records requests.
type fakeMarkers struct {
	marker markers.Marker
	query  markers.Query
	ended  markers.Ending
	scope  task.Scope
}

// answer registers the fake's answers in a table.
func (m *fakeMarkers) answer(to verbtest.Answers) {
	verbtest.On(to, markers.Add, m.AddMarker)
	verbtest.On(to, markers.End, m.EndMarker)
	verbtest.On(to, markers.Remove, m.RemoveMarker)
	verbtest.On(to, markers.List, m.Markers)
}

func (f *fakeMarkers) AddMarker(ctx context.Context, c markers.Call) (markers.Marker, error) {
	f.scope, f.marker = task.ScopeOf(ctx), c.Marker
	f.marker.CreatedBy, f.marker.CreatedAt = c.By.Name, 3_000_000
	if f.marker.At == 0 {
		f.marker.At = 3_000_000
	}
	return f.marker, nil
}

func (f *fakeMarkers) EndMarker(_ context.Context, c markers.Ending) (markers.Marker, error) {
	f.ended = c
	f.marker.EndedAt = c.EndedAt
	return f.marker, nil
}

func (f *fakeMarkers) RemoveMarker(_ context.Context, c markers.Name) (out verb.Nothing, err error) {
	if c.ID != f.marker.ID {
		return out, task.NotFound("marker", c.ID.String())
	}
	return out, nil
}

func (f *fakeMarkers) Markers(_ context.Context, q markers.Query) (markers.Page, error) {
	f.query = q
	return markers.Page{Markers: []markers.Marker{f.marker}, More: q.BehindAt == 0}, nil
}

// TestMarkersOverREST checks each response against openapi.json, and who may make which call.
func TestMarkersOverREST(t *testing.T) {
	k, fake := newTokenSet(), &fakeMarkers{}
	k.add("ci", auth.Rights{Namespace: "team", Roles: auth.Produce, Queues: []string{"mail*"}})
	k.add("ops", auth.Rights{Namespace: "team", Roles: auth.Operate})
	k.add("eye", auth.Rights{Namespace: "team", Roles: auth.Observe})
	f := newFake()
	fake.answer(f.table())
	f.auth = k.auth
	g := New(f.config())
	t.Cleanup(func() { g.Shutdown(context.Background()) })
	const id, cursor = "0198c2f4-8a5b-7c3e-9d10-2f6b1c0a4e77", "AWQAAAAAAB6EgAGYwvSKW3w-nRAvaxwKTnc"
	for _, c := range []struct{ who, method, path, body, want string }{
		{"ci", "POST", "", `{"kind":"deploy","title":"web ` +
			`1.4.2","version":"1.4.2","url":"https://ci.example.com/42","queues":["mail*"],"types":["mail.*"],` +
			`"at":"1970-01-01T00:00:02Z","request_id":"` + id + `"}`,
			`201 {"id":"` + id + `","kind":"deploy","title":"web ` +
				`1.4.2","version":"1.4.2","url":"https://ci.example.com/42","queues":["mail*"],"types":["mail.*"],` +
				`"at":"1970-01-01T00:00:02Z","created_by":"ci","created_at":"1970-01-01T00:00:03Z"}`},
		{"eye", "POST", "", `{"kind":"note","title":"x"}`,
			`403 token \"eye\" has the role observe, and this call needs produce or operate`},
		{"ops", "POST", "", `{"title":"x"}`, `400 kind: is required: one of deploy, incident, note`},
		{"ops", "POST", "", `{"kind":"note","title":"x","url":"https://me:pw@example.com/"}`,
			`400 url: it has a user or password before its host`},
		{"ops", "POST", "", `{"kind":"note","title":"x","color":"red"}`, `400 color: `},
		{"ops", "POST", "", `{"kind":"note","title":"x","at":"yesterday"}`, `400 at: `},
		{"ci", "GET", "", "", `403 `},
		{"eye", "GET", "?since=1970-01-01T00:00:01Z&until=1970-01-01T00:00:09Z&kind=deploy&queue=mail&type=mail.welcome&limit=1", "",
			`"next_cursor":"` + cursor + `"}`},
		{"eye", "GET", "?cursor=" + cursor, "", `200 {"items":[{"id":"` + id + `"`},
		{"eye", "GET", "?cursor=AXlvbmNhbGw", "", `400 cursor: `},
		{"eye", "GET", "?cursor=AWQAAA", "", `400 cursor: `}, // a marker cursor, but too short
		{"eye", "GET", "?state=open", "", `400 state: unknown parameter`},
		{"eye", "POST", "/" + id + "/end", ``, `403 `},
		{"ci", "POST", "/" + id + "/end", `{"ended_at":"1970-01-01T00:00:04Z"}`, `"ended_at":"1970-01-01T00:00:04Z"`},
		{"ci", "POST", "/" + id + "/end", ``, `200 {"id":`},
		{"ci", "DELETE", "/" + id, "", `403 `},
		{"ops", "DELETE", "/42", "", `400 id: \"42\" is not a UUID`},
		{"ops", "DELETE", "/0198c2f4-8a5b-7c3e-9d10-2f6b1c0a4e78", "", `404 marker `},
		{"ops", "DELETE", "/" + id, "", `200 {}`},
	} {
		r := httptest.NewRequest(c.method, "/api/v1/markers"+c.path, strings.NewReader(c.body))
		r.Header.Set("Authorization", "Bearer "+k.secret[c.who])
		if c.body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		w := serveChecked(t, g.Handler(), r, []byte(c.body))
		got := fmt.Sprintf("%d %s", w.Code, w.Body)
		if _, detail, refused := strings.Cut(w.Body.String(), `"detail":"`); refused {
			got = fmt.Sprintf("%d %s", w.Code, detail)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s %s %s: got\n%s, want\n%s", c.who, c.method, c.path, c.body, got, c.want)
		}
	}
	if fake.scope.All() || fake.ended.EndedAt != 0 || fake.ended.Namespace != "team" || fake.ended.By.Name != "ci" {
		t.Errorf("scope %v, ending %+v", fake.scope, fake.ended)
	}
	if q := fake.query; q.BehindAt != 2_000_000 || q.BehindID.String() != id || q.Namespace != "team" {
		t.Errorf("query of the second page = %+v", q)
	}
}
