package ui_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/pawlq/pawl"
)

// TestSearchAndWorkflows: input is completed, filters are saved, and related tasks are drawn.
func TestSearchAndWorkflows(t *testing.T) {
	w := startWorld(t, "")
	turned := "log\u202egnp"
	w.enqueue(t, 1, func(int) pawl.Item {
		return job("fetch", `{"customer":{"id":42,"na.me":"Ann B"}}`, pawl.Queue("mail"), pawl.Tags("vip"), pawl.Key("tenant-7"),
			pawl.Then(pawl.RawTask{Type: turned}), pawl.Then(pawl.RawTask{Type: "resize"}, pawl.Queue("cpu")))
	})
	t.Run("completion", func(t *testing.T) { completes(t, w) })
	t.Run("views", func(t *testing.T) { keepsViews(t, w) })
	t.Run("workflow", func(t *testing.T) {
		_, list := w.get(t, "/tasks?q="+url.QueryEscape(`payload.customer.id:42 payload.customer.na\.me:"Ann B"`))
		_, at, ok := strings.Cut(list, `href="/tasks/`)
		if !ok || strings.Count(list, "<tr data-row") != 1 {
			t.Fatal("a search for two payload fields did not find exactly their task")
		}
		id, _, _ := strings.Cut(at, `"`)
		_, body := w.get(t, "/tasks/"+id)
		for _, want := range []string{`aria-label="Workflow, from left to right"`,
			`<text class="flow-name" x="40" y="22" aria-hidden="true">fetch</text>`,
			`<text class="flow-detail" x="40" y="39" aria-hidden="true">waiting · cpu</text>`,
			`<text class="flow-name" x="40" y="22" aria-hidden="true">log[U+202E]gnp</text>`,
			`<li>then: resize <span class="state s-waiting">waiting</span>`} {
			if !strings.Contains(body, want) {
				t.Errorf("the page of a task with follow-up tasks lacks %q", want)
			}
		}
		_, drawing, _ := strings.Cut(body, `<svg class="flow"`)
		if drawing, _, _ = strings.Cut(drawing, "</svg></div>"); strings.Contains(drawing, "<i ") {
			t.Error("the drawing contains HTML")
		}
		if _, body = w.get(t, "/tasks?q="+url.QueryEscape("payload..x:1")); !strings.Contains(body, "has an empty key") {
			t.Error("a filter with an invalid path was not refused")
		}
	})
}

func completes(t *testing.T, w *world) {
	for typed, want := range map[string]string{
		"": "queue: state: type: tag: key: worker: error: after: before: payload.", "qu": "queue: ", "queue:": "queue:mail", "queue:x": "",
		"queue:mail type:": "type:fetch", "queue:none type:": "", "tag:v": "tag:vip", "key:ten": "key:tenant-7", "mai": "queue:mail",
		"state:dead,po": "state:dead,poisoned", "payload.": `payload.customer.id: payload.customer.na\.me:`,
		"args.customer.n": `payload.customer.na\.me:`, "payload.customer.id:": "payload.customer.id:42",
		`payload.customer.na\.me:a`: `payload.customer.na\.me:"Ann B"`, strings.Repeat("x", 5000): "",
	} {
		resp, body := w.get(t, "/search/complete?q="+url.QueryEscape(typed), "HX-Request", "true")
		var got struct {
			Word  string
			Items []struct{ Text, Note string }
		}
		must(t, json.Unmarshal([]byte(body), &got))
		var texts []string
		for _, item := range got.Items {
			texts = append(texts, item.Text)
		}
		if said := strings.Join(texts, " "); said != strings.TrimSpace(want) || resp.Header.Get("Content-Type") != "application/json" ||
			!strings.HasSuffix(typed, got.Word) {
			t.Errorf("%.40q is completed to %q (word %q), want %q", typed, said, got.Word, want)
		}
	}
}

func keepsViews(t *testing.T, w *world) {
	save := func(cookie, name, filter string) (*http.Response, string) {
		form := url.Values{"name": {name}, "q": {filter}}
		return w.send(t, "POST", "/views/save", form.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site",
			"same-origin", "Cookie", cookie)
	}
	cookieOf := func(resp *http.Response) string {
		for _, c := range resp.Cookies() {
			if c.Name == "pawl-views" && c.HttpOnly && c.MaxAge != 0 {
				return c.Name + "=" + c.Value
			}
		}
		return ""
	}
	const filter = `queue:mail state:dead error:"timed out"`
	resp, _ := save("", "Failed mail", filter)
	cookie := cookieOf(resp)
	if resp.StatusCode != 303 || resp.Header.Get("Location") != "/tasks?q="+url.QueryEscape(filter) || cookie == "" {
		t.Fatalf("saving a view: status %d, redirect to %q, cookie %q", resp.StatusCode, resp.Header.Get("Location"), cookie)
	}
	_, body := w.get(t, "/tasks?q="+url.QueryEscape(filter), "Cookie", cookie)
	if !strings.Contains(body, `aria-current="page"><span>Failed mail</span>`) ||
		!strings.Contains(body, "/views/remove?name=Failed&#43;mail") || strings.Contains(body, "/views/save") {
		t.Error("the page of a saved view does not mark it as current, or has no link to remove it")
	}
	if _, body = w.get(t, "/tasks?q=queue:mail", "Cookie", cookie); !strings.Contains(body, `"><span>Failed mail</span>`) ||
		!strings.Contains(body, "/views/save?q=queue%3Amail") {
		t.Error("another list does not show the views, or has no link to save one")
	}
	if _, body = w.get(t, "/search/complete?q=", "Cookie", cookie, "HX-Request", "true"); !strings.Contains(body, `"note":"Failed mail"`) {
		t.Error("an empty search does not suggest the saved view")
	}
	resp, _ = save(cookie, "Failed mail", "queue:other")
	views, _ := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(cookieOf(resp), "pawl-views="))
	if string(views) != `[{"n":"Failed mail","f":"queue:other"}]` {
		t.Errorf("after saving the view again, the views are %s", views)
	}
	for _, bad := range []struct{ name, filter, says string }{{"", "queue:a", "is required"}, {strings.Repeat("x", 41), "queue:a",
		"at most 40"}, {"a\u202eb", "queue:a", "invisible characters"}, {"a", "", "filter the tasks first"},
		{"a", "color:red", "is not a field"}, {"a", strings.Repeat("x", 1025), "at most 1024"}} {
		if resp, body := save("", bad.name, bad.filter); resp.StatusCode != 422 || !strings.Contains(body, bad.says) {
			t.Errorf("saving the view %.20q with the filter %.20q: status %d, want 422 and %q", bad.name, bad.filter,
				resp.StatusCode, bad.says)
		}
	}
	full := cookie
	for i := range 30 {
		resp, _ := save(full, strings.Repeat("v", i+1), strings.Repeat("y", 200))
		if resp.StatusCode == 422 {
			full = ""
			break
		}
		full = cookieOf(resp)
	}
	if full != "" {
		t.Error("the number of saved views is not limited")
	}
	for _, broken := range []string{"pawl-views=x!", "pawl-views=" +
		base64.RawURLEncoding.EncodeToString([]byte(`[{"n":"","f":"a"},{"n":"b"}]`)), "pawl-views=" +
		base64.RawURLEncoding.EncodeToString([]byte(`{`))} {
		if resp, body := w.get(t, "/tasks", "Cookie", broken); resp.StatusCode != 200 || strings.Contains(body, "Saved views") {
			t.Errorf("the cookie %s: status %d, or the page shows views", broken, resp.StatusCode)
		}
	}
	gone := url.Values{"name": {"Failed mail"}}
	resp, _ = w.send(t, "POST", "/views/remove", gone.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site",
		"same-origin", "Cookie", cookie)
	if got := cookieOf(resp); resp.StatusCode != 303 || got != "pawl-views=" {
		t.Errorf("removing the view: status %d, cookie %q", resp.StatusCode, got)
	}
}
