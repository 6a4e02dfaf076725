package web

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/ui/form"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

// linksOf returns the links of a page below /base.
func linksOf(target string) Links {
	return Links{httptest.NewRequest(http.MethodGet, target, nil), "/base"}
}

// Links keep the parameters of the page, escape what they are given, and begin with the base.
func TestLinks(t *testing.T) {
	l := linksOf("/queues/a%2Fb?like=x&cursor=7")
	long := linksOf("/tasks?q=" + strings.Repeat("x", maxReturnPath))
	for what, c := range map[string]struct{ got, want string }{
		"the page":                    {l.Here(), "/base/queues/a%2Fb?cursor=7&like=x"},
		"another parameter":           {l.Here("cursor", "8", "sort", "name"), "/base/queues/a%2Fb?cursor=8&like=x&sort=name"},
		"without a parameter":         {l.Here("cursor", ""), "/base/queues/a%2Fb?like=x"},
		"without any":                 {l.Here("cursor", "", "like", ""), "/base/queues/a%2Fb"},
		"half a pair":                 {l.Here("cursor"), "/base/queues/a%2Fb?cursor=7&like=x"},
		"a parameter":                 {l.Query("like"), "x"},
		"a page":                      {l.URL("queues", "a/b", 7), "/base/queues/a%2Fb/7"},
		"a page with a query":         {l.URL("tasks", "?q=a"), "/base/tasks?q=a"},
		"the overview":                {l.URL(), "/base/"},
		"a path":                      {PathTo("queues", "a b"), "/queues/a%20b"},
		"found by one field":          {l.Find("queue", "mail"), "/base/tasks?q=queue%3Amail"},
		"found by two":                {l.Find("queue", "mail", "state", "dead"), "/base/tasks?q=queue%3Amail+state%3Adead"},
		"found by one of two":         {l.Find("queue", "mail", "type", ""), "/base/tasks?q=queue%3Amail"},
		"found by half a pair":        {l.Find("queue", "mail", "type"), "/base/tasks?q=queue%3Amail"},
		"the way back":                {l.ReturnPath(), "/queues/a%2Fb?cursor=7&like=x"},
		"the way back to a long page": {long.ReturnPath(), "/tasks"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", what, c.got, c.want)
		}
	}
	edge := linksOf("/t?q=" + strings.Repeat("x", maxReturnPath-len("/t?q=")))
	if got := edge.ReturnPath(); len(got) != maxReturnPath {
		t.Errorf("a path of %d bytes became %q", maxReturnPath, got)
	}
}

func TestLocalPath(t *testing.T) {
	for path, want := range map[string]string{"/queues?a=b": "/queues?a=b", "/": "/", "": "/", "queues": "/", "//evil.example": "/",
		"/\\evil.example": "/", "/a\nb": "/", "/a\tb": "/", "https://evil.example/": "/"} {
		if got := LocalPath(path); got != want {
			t.Errorf("%q leads to %q, want %q", path, got, want)
		}
	}
	for address, want := range map[string]string{"https://any.host/base/queues?a=b": "/queues?a=b", "/base/queues": "/queues",
		"https://h/other": "/", "https://h/base//evil.example": "/", ":": "/", "https://h/base": "/"} {
		if got := pathOf(address, "/base"); got != want {
			t.Errorf("the page %q is %q, want %q", address, got, want)
		}
	}
}

// A list is searched by a pattern; a word is looked for anywhere.
func TestNames(t *testing.T) {
	for like, want := range map[string]string{"": "", "  ": "", "mail": "*mail*", " mail ": "*mail*", "mail*": "mail*"} {
		l := linksOf("/queues?cursor=7&like=" + url.QueryEscape(like))
		if got := l.Pattern(); got != want {
			t.Errorf("%q is searched as %q, want %q", like, got, want)
		}
		if n := l.Names(); n.Like != like || n.ClearURL != "/base/queues" {
			t.Errorf("the search is %+v", n)
		}
	}
	var n Names
	odd := errors.New("odd")
	if err := n.Refuse(odd); !errors.Is(err, odd) || n.Refused != nil {
		t.Errorf("another error: %v, %+v", err, n.Refused)
	}
	bad := format.BadField("like", "is bad")
	if err := n.Refuse(bad); err != nil || n.Refused == nil || *n.Refused != format.ProblemOf(bad) {
		t.Errorf("an error of the search: %v, %+v", err, n.Refused)
	}
}

func TestMore(t *testing.T) {
	for _, c := range []struct {
		target, next string
		want         More
	}{
		{"/q?like=x", "", More{First: "/base/q?like=x"}},
		{"/q?like=x", "9", More{First: "/base/q?like=x", Next: "/base/q?cursor=9&like=x"}},
		{"/q?cursor=7", "", More{First: "/base/q", NotFirst: true}},
	} {
		l := linksOf(c.target)
		if got := l.More(c.next); got != c.want {
			t.Errorf("more of %s behind %q: %+v, want %+v", c.target, c.next, got, c.want)
		}
		c.want.ByName = true
		if got := l.MoreByName(c.next); got != c.want {
			t.Errorf("more by name of %s behind %q: %+v, want %+v", c.target, c.next, got, c.want)
		}
	}
}

// The menu of a page's actions is hidden from those for whom it would be empty.
func TestActionBar(t *testing.T) {
	pause, deploy, look := Ask("Pause…", "queues", "a/b", "pause"), Ask("Deploy…", "x").Needing("cluster"), Ask("Look", "y").AsPage()
	if pause.URL != baseMark+"/queues/a%2Fb/pause" || pause.Label != "Pause…" || pause.Page {
		t.Errorf("a button is %+v", pause)
	}
	admins, produce := Ask("Tokens", "z").Needing("admin"), Ask("Enqueue", "e").Needing("produce")
	for what, c := range map[string]struct {
		bar                 ActionBar
		empty, menu, narrow bool
		needs               string
	}{
		"nothing":             {ActionBar{}, true, false, true, "admin"},
		"only the main one":   {ActionBar{Main: &pause}, false, false, true, "admin"},
		"beside it":           {ActionBar{Beside: []Button{pause}}, false, true, true, "operate"},
		"in the menu":         {ActionBar{More: []Button{deploy}}, false, true, false, "cluster"},
		"harmful":             {ActionBar{Danger: []Button{admins}}, false, true, false, "admin"},
		"a page":              {ActionBar{More: []Button{look}, Danger: []Button{admins}}, false, true, false, ""},
		"for producers":       {ActionBar{More: []Button{produce}, Danger: []Button{admins}}, false, true, false, ""},
		"operate and cluster": {ActionBar{More: []Button{pause}, Danger: []Button{deploy}}, false, true, false, "operate"},
		"cluster and admin":   {ActionBar{More: []Button{admins}, Danger: []Button{deploy}}, false, true, false, "cluster"},
	} {
		if c.bar.Empty() != c.empty || c.bar.HasMenu() != c.menu || c.bar.Narrow() != c.narrow || c.bar.MenuNeeds() != c.needs {
			t.Errorf("%s: empty %v, menu %v, narrow %v, needs %q", what, c.bar.Empty(), c.bar.HasMenu(), c.bar.Narrow(), c.bar.MenuNeeds())
		}
	}
	for _, c := range []struct {
		b    Button
		want string
	}{{pause, "operate"}, {look, ""}, {deploy, "cluster"}, {deploy.AsPage(), "cluster"}} {
		if got := c.b.Right(); got != c.want {
			t.Errorf("%q needs %q, want %q", c.b.Label, got, c.want)
		}
	}
}

func TestWithLinks(t *testing.T) {
	queue, size := form.Fact{Name: "Queue", Value: "mail"}, form.Fact{Name: "Size", Value: "7"}
	got := WithLinks([]form.Fact{queue, size}, map[string]string{"Queue": "/queues/mail"})
	if want := []LinkedFact{{queue, "/queues/mail"}, {size, ""}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestTemplateFunctions(t *testing.T) {
	if got := dict("a", 1, "b", "x", "half"); !reflect.DeepEqual(got, map[string]any{"a": 1, "b": "x"}) {
		t.Errorf("pairs became %v", got)
	}
	for _, e := range entries {
		if icons[e.Path] == "" {
			t.Errorf("%s has no icon", e.Path)
		}
	}
	if a, b, page := icon("/dead"), icon("nothing"), icon("page"); a == page || b != page || !strings.Contains(string(a), icons["/dead"]) {
		t.Errorf("icons: %s, %s", a, b)
	}
	f := funcs("/base", nil)
	for what, c := range map[string]struct{ got, want any }{
		"url": {f["url"].(func(...any) string)("queues", "a"), baseMark + "/queues/a"},
		"at":  {f["at"].(func(string) string)("/dead"), baseMark + "/dead"},
		"find": {f["find"].(func(string, any, ...any) string)("queue", "a", "state", "dead"),
			baseMark + "/tasks?q=queue%3Aa+state%3Adead"},
		"root":  {f["root"].(func() string)(), "/base/"},
		"clip":  {f["clip"].(func(int, string) string)(3, "abcdef"), "ab…"},
		"reads": {f["reads"].(func(any) string)("wrong_state"), "wrong state"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
}

// What the visitor chose is taken from cookies, which may contain anything.
func TestPreferences(t *testing.T) {
	for value, want := range map[string]string{"light": "light", "dark": "dark", "": "", "pink": ""} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: ThemeCookie, Value: value})
		if got := Theme(r); got != want {
			t.Errorf("the theme of %q is %q, want %q", value, got, want)
		}
		r.AddCookie(&http.Cookie{Name: KeysCookie, Value: map[bool]string{true: "off", false: "on"}[value == "dark"]})
		if got := NoKeys(r); got != (value == "dark") {
			t.Errorf("without keys: %v", got)
		}
	}
	if r := httptest.NewRequest(http.MethodGet, "/", nil); Theme(r) != "" || NoKeys(r) {
		t.Error("a visitor without cookies has preferences")
	}
	for _, c := range []struct {
		name, value string
		age         int
		scripts     bool
	}{{ThemeCookie, "dark", yearSeconds, true}, {KeysCookie, "off", yearSeconds, false}, {KeysCookie, "", -1, false}} {
		w := httptest.NewRecorder()
		req := &Request{Links: linksOf("/"), server: &Server{base: "/base"}, Writer: w}
		req.KeepCookie(c.name, c.value)
		got := w.Result().Cookies()[0]
		if got.Name != c.name || got.Value != c.value || got.MaxAge != c.age || got.HttpOnly == c.scripts || got.Path != "/base/" ||
			got.SameSite != http.SameSiteStrictMode || got.Secure {
			t.Errorf("%s=%q is kept as %+v", c.name, c.value, got)
		}
	}
}

// A message reaches the next page once.
func TestFlash(t *testing.T) {
	w := httptest.NewRecorder()
	req := &Request{Links: linksOf("/"), server: &Server{base: "/base"}, Writer: w}
	if got := req.takeFlash(); got != "" || len(w.Header()) > 0 {
		t.Errorf("a page without a message shows %q", got)
	}
	req.setFlash("Queue “a” was paused; " + strings.Repeat("x", 400))
	set := w.Result().Cookies()[0]
	next := &Request{Links: linksOf("/"), server: req.server, Writer: httptest.NewRecorder()}
	next.HTTP.AddCookie(&http.Cookie{Name: set.Name, Value: set.Value})
	if got := next.takeFlash(); !strings.HasPrefix(got, "Queue “a” was paused; xxx") || len([]rune(got)) != 300 || set.MaxAge != 60 {
		t.Errorf("%d characters came for %d s: %q", len([]rune(got)), set.MaxAge, got)
	}
	if c := next.Writer.(*httptest.ResponseRecorder).Result().Cookies(); len(c) != 1 || c[0].MaxAge != -1 {
		t.Errorf("then the cookie is %v", c)
	}
	bad := &Request{Links: linksOf("/"), server: req.server, Writer: httptest.NewRecorder()}
	bad.HTTP.AddCookie(&http.Cookie{Name: flash, Value: "%zz"})
	if got := bad.takeFlash(); got != "" {
		t.Errorf("a broken message is shown as %q", got)
	}
}

func TestTitles(t *testing.T) {
	for status, want := range map[int]string{404: "Not found", 403: "Not allowed", 401: "Log in", 503: "Not available",
		504: "Not available", 500: "Internal error", 422: "Invalid request", 413: "Invalid request"} {
		if got := titleOf(status); got != want {
			t.Errorf("%d is titled %q, want %q", status, got, want)
		}
	}
	if !errors.Is(notFound(&Request{Links: linksOf("/x")}), pawltype.ErrNotFound) {
		t.Error("an unknown path is found")
	}
	for method, want := range map[string]error{http.MethodHead: pawltype.ErrNotFound, http.MethodPost: pawltype.ErrInvalidArgument} {
		req := &Request{Links: Links{httptest.NewRequest(method, "/x", nil), ""}}
		if err := notFound(req); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", method, err, want)
		}
	}
}
