package ui_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/ui"
	"github.com/pawlq/pawl/pawltype"
	"golang.org/x/net/html"
)

// filled returns the values that a browser submits for an untouched form.
func filled(body string) url.Values {
	values := url.Values{}
	page, err := html.Parse(strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	add := func(name, value string) { values.Add(name, strings.ReplaceAll(value, "\n", "\r\n")) }
	inForm := func(n *html.Node) bool {
		for ; n != nil; n = n.Parent {
			if n.Data == "form" && strings.HasPrefix(attr(n, "class"), "form") {
				return true
			}
		}
		return false
	}
	for n := range page.Descendants() {
		name, lineEnds := attr(n, "name"), strings.NewReplacer("\r\n", "\n", "\r", "\n")
		switch {
		case name == "" || !inForm(n):
		case n.Data == "textarea" && n.FirstChild != nil:
			add(name, n.FirstChild.Data)
		case n.Data == "textarea":
			add(name, "")
		case n.Data == "select":
			add(name, selected(n))
		case n.Data == "input" && attr(n, "type") == "hidden":
			add(name, lineEnds.Replace(attr(n, "value")))
		case n.Data == "input" && (attr(n, "type") != "checkbox" || hasAttr(n, "checked")):
			add(name, strings.NewReplacer("\r", "", "\n", "").Replace(attr(n, "value")))
		}
	}
	return values
}

func selected(choice *html.Node) (value string) {
	first := true
	for o := range choice.Descendants() {
		if o.Data == "option" && (first || hasAttr(o, "selected")) {
			value, first = attr(o, "value"), false
		}
	}
	return value
}

func hasAttr(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// editable is something that a form edits.
type editable struct {
	reset func() (path string) // stores values that a form can't show as they are, and returns where the form is
	get   func() any           // what is stored
}

// changes are valid values for the fields of all forms, other than the stored ones.
var changes = map[string][]string{
	"max_running": {"7"}, "rate": {"8/1s"}, "max_attempts": {"9"}, "timeout": {"77s"}, "max_length": {"99"},
	"max_wait": {"9m"}, "lease": {"41s"}, "retry.initial": {"7s"}, "retry.factor": {"3"}, "retry.max": {"9m"}, "retry.jitter": {"0.5"},
	"weights": {"9:3:1"}, "key_order": {""}, "per_key.max_running": {"8"}, "per_key.rate": {"3/1s"}, "keys": {`"other" weight 2`},
	"retention.succeeded": {"3h"}, "retention.discarded": {"4h"}, "retention.cancelled": {"5h"}, "retention.dead": {"6h"},
	"retention.poisoned": {"7h"}, "breaker": {}, "breaker.failure_rate": {"33"}, "breaker.min_attempts": {"44"}, "breaker.window": {"2m"},
	"breaker.hold": {"3m"}, "breaker.max_hold": {"20m"}, "breaker.probes": {"2"}, "cron": {"7 7 * * *"}, "every": {"5m"},
	"time_zone": {"Europe/Vienna"}, "missed": {"all"}, "overlap": {"skip"}, "jitter": {"3s"}, "owner": {"me"}, "type": {"other"},
	"queue": {"elsewhere"}, "priority": {"low"}, "payload": {`{"new":1}`}, "key": {"k2"}, "tags": {"x, y"}, "expires_in": {"3h"},
	"retention": {"4h"}, "unique.on_conflict": {"reject"}, "unique.key": {"u2"}, "headers": {"h: 2"}, "run_at": {"2h"},
	"url": {"https://example.org/b"}, "events": {"queue.over"}, "queues": {"mail"}, "depth_over": {"5"}, "wait_over": {"6m"},
	"max_backlog": {"11"}, "max_backlog_bytes": {"12"}, "max_queues": {"14"}, "max_schedules": {"15"}, "max_requests_per_second": {"90000"},
	"max_bytes_per_second": {"1000000"},
}

// TestFormsChangeWhatWasTouched: a form that is sent as it was shown changes nothing, and one with another value in a field only that.
func TestFormsChangeWhatWasTouched(t *testing.T) {
	w := startWorld(t, "")
	walked := map[string]bool{}
	for _, e := range w.editables(t) {
		path := e.reset()
		walked[regexp.MustCompile(`/tasks/[^/]+`).ReplaceAllString(path, "/tasks/ID")] = true
		_, body := w.get(t, path)
		before := filled(body)
		stored := flat(t, e.get())
		w.postAsFilled(t, path, body)
		if diff := differing(stored, flat(t, e.get())); len(diff) > 0 {
			t.Errorf("%s, sent as it was shown, changed %v", path, diff)
		}
		for name := range namesOf(body) {
			if name == "reason" {
				continue
			}
			t.Run(path+" "+name, func(t *testing.T) {
				value, ok := changes[strings.TrimPrefix(name, "task.")]
				if !ok {
					t.Fatalf("no value to change %s to", name)
				}
				path := e.reset()
				_, body := w.get(t, path)
				form := filled(body)
				form[name] = value
				instead := map[string]string{"every": "cron", "overlap": "task.unique.on_conflict"}[name] // which excludes it
				if instead != "" {
					form.Set(instead, "")
				}
				stored := flat(t, e.get())
				if resp, body := w.post(t, path, form); resp.StatusCode != 303 {
					t.Fatalf("status %d: %s", resp.StatusCode, regexp.MustCompile(`(?:class="refused"|id="wrong-).*`).FindAllString(body,
						-1))
				}
				diff := differing(stored, flat(t, e.get()))
				if len(diff) == 0 {
					t.Errorf("%q instead of %q changed nothing", value, before[name])
				}
				field := strings.ReplaceAll(name, "_", "")
				for _, path := range diff {
					if path != field && !strings.HasPrefix(path, field+".") &&
						!(instead != "" && strings.HasPrefix(path, strings.TrimSuffix(instead, ".on_conflict"))) {
						t.Errorf("%q instead of %q changed %s, too", value, before[name], path)
					}
				}
			})
		}
	}
	all := w.editing(t, w.newest(t, admin.Filter{Type: "t "}))
	if slices.Sort(all); !slices.Equal(all, slices.Sorted(maps.Keys(walked))) {
		t.Errorf("the forms that edit something are %q, and those walked %q", all, slices.Sorted(maps.Keys(walked)))
	}
	resp, _ := w.send(t, "POST", "/settings/you", "name=+bob+&theme=dark", "Content-Type", "application/x-www-form-urlencoded",
		"Sec-Fetch-Site", "same-origin", "Cookie", "pawl-name=%20bob%20")
	if cookies := fmt.Sprint(resp.Header["Set-Cookie"]); !strings.Contains(cookies, "pawl-name=+bob+;") {
		t.Errorf("another theme changed the visitor's name: %s", cookies)
	}
}

// editing are the forms that edit what is stored, which carry what they showed. TestFormsChangeWhatWasTouched must know them all.
func (w *world) editing(t *testing.T, task string) (paths []string) {
	names := strings.NewReplacer("{queue}", "mail", "{schedule}", "s", "{task}", task, "{webhook}", "hook", "{namespace}", "default")
	for _, set := range ui.Sets(nil) {
		for _, a := range set.Actions {
			if _, body := w.get(t, names.Replace(a.Path)); filled(body).Has("seen") {
				paths = append(paths, strings.Replace(names.Replace(a.Path), task, "ID", 1))
			}
		}
	}
	return paths
}

// namesOf returns the fields that a form shows.
func namesOf(body string) map[string]bool {
	names := map[string]bool{}
	page, err := html.Parse(strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	for n := range page.Descendants() {
		if id := attr(n, "id"); strings.HasPrefix(id, "f-") {
			names[strings.TrimPrefix(id, "f-")] = true
		}
	}
	return names
}

// flat returns the leaves of a structure by their paths, which are lower-case.
func flat(t *testing.T, of any) map[string]string {
	t.Helper()
	data, err := json.Marshal(of)
	must(t, err)
	var tree any
	must(t, json.Unmarshal(data, &tree))
	leaves := map[string]string{}
	var walk func(path string, node any)
	walk = func(path string, node any) {
		switch node := node.(type) {
		case map[string]any:
			for name, child := range node {
				walk(path+"."+strings.ToLower(name), child)
			}
		case []any:
			for i, child := range node {
				walk(fmt.Sprintf("%s.%d", path, i), child)
			}
		default:
			leaves[strings.TrimPrefix(path, ".")] = fmt.Sprintf("%#v", node)
		}
	}
	walk("", tree)
	return leaves
}

// differing returns the paths at which two structures differ.
func differing(a, b map[string]string) (paths []string) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if a[path] != b[path] {
			paths = append(paths, path)
		}
	}
	return paths
}

// editables returns what can be edited, with values that forms trim, split or round, or have no fields for.
func (w *world) editables(t *testing.T) []editable {
	operator, day := admin.New(w.client), 24*time.Hour
	settings := admin.QueueSettings{
		Weights: &admin.PriorityWeights{High: 6, Normal: 3, Low: 1}, Retry: pawltype.RetryPolicy{Initial: pawltype.NoWait,
			Factor: 1.0000000001, Max: time.Hour, Jitter: pawltype.NoJitter},
		MaxAttempts: 3, Lease: 90*time.Second + 1, Timeout: time.Minute + time.Millisecond, MaxWait: day + time.Second,
		MaxLength: 1_000_000, KeyOrder: admin.KeyOrderStrict, Retention: admin.Retention{Succeeded: time.Nanosecond, Discarded: day,
			Cancelled: day + 1, Dead: 3 * day, Poisoned: 4 * day},
		QueueLimits: admin.QueueLimits{MaxRunning: 5, Rate: admin.RateLimit{Limit: 10, Period: time.Minute, Burst: 10}},
		PerKey:      admin.QueueLimits{MaxRunning: 2, Rate: admin.RateLimit{Limit: 1, Period: 90 * time.Second, Burst: 4}},
		Keys: map[string]admin.KeyLimits{"acme ": {Weight: 3}, "acme": {Weight: 1}, "\"q\" \u2028": {QueueLimits: admin.QueueLimits{
			MaxRunning: 1, Rate: admin.RateLimit{Limit: 2, Period: time.Second}}}},
		Breaker: &admin.Breaker{FailureRate: 20, Window: time.Minute + time.Millisecond, MinAttempts: 7, Hold: time.Minute,
			MaxHold: time.Hour, Probes: 9},
		Breakers: map[string]admin.Breaker{"t ": {FailureRate: 10}, "off": {Off: true}},
	}
	schedule := admin.ScheduleSpec{Name: "s", Cron: "0  3 * * *", Missed: admin.MissedSkip, Jitter: time.Second + time.Millisecond,
		Owner: " a, b ", Task: pawl.RawTask{Type: "t ", Payload: []byte("{\"b\":1,\r\n \"a\": \"<\"}\n")},
		Options: []pawl.Option{pawl.Queue("mail"), pawl.Key(" acme"), pawl.Tags("a,b", "c", " d "), pawl.Header("h", " two\nlines "),
			pawl.Header("a:b", `"q"`), pawl.MaxAttempts(4), pawl.Timeout(time.Second + 1), pawl.ExpiresIn(time.Hour + 1), pawl.Retention(0),
			pawl.Retry(settings.Retry), pawl.Cost(3),
			pawl.Unique(pawltype.UniqueOpts{Key: "u ", States: []pawltype.State{"scheduled", "ready",
				"claimed", "retrying", "succeeded"}}),
			pawl.Then(pawl.RawTask{Type: "next ", Payload: []byte(` {}`)}, pawl.Tags("x,y"), pawl.In(time.Minute))}}
	var task string
	return []editable{
		{func() string {
			_, err := operator.Queues().Put(t.Context(), "mail", settings)
			must(t, err)
			return "/queues/mail/settings"
		}, func() any {
			q, err := operator.Queues().Get(t.Context(), "mail")
			must(t, err)
			return q.Settings
		}},
		{func() string {
			_, err := operator.Schedules().Put(t.Context(), schedule)
			must(t, err)
			return "/schedules/s/edit"
		}, func() any {
			s, err := operator.Schedules().Get(t.Context(), "s")
			must(t, err)
			return admin.Schedule{Cron: s.Cron, Every: s.Every, TimeZone: s.TimeZone, Jitter: s.Jitter, Missed: s.Missed,
				Overlap: s.Overlap, Owner: s.Owner, Task: s.Task}
		}},
		{func() string {
			w.enqueue(t, 1, func(int) pawl.Item {
				return job("t ", "{\"a\":\r 1}", pawl.Key("k "), pawl.Tags("a,b"), pawl.In(time.Hour), pawl.MaxAttempts(5),
					pawl.Priority("high"))
			})
			task = w.newest(t, admin.Filter{Type: "t "})
			return "/tasks/" + task + "/edit"
		}, func() any {
			of, err := w.client.Task(t.Context(), task)
			must(t, err)
			return map[string]any{"runat": of.RunAt, "payload": of.Payload, "maxattempts": of.MaxAttempts, "priority": of.Priority,
				"key": of.Key, "tags": of.Tags, "type": of.Type, "queue": of.Queue}
		}},
		{func() string {
			spec := admin.WebhookSpec{Name: "hook", URL: "https://example.com/%20?a=b&c", Events: []admin.WebhookEvent{
				"task.dead", "breaker.*",
				"queue.*"}, Queues: []string{"mail*", "x"}, DepthOver: 7, WaitOver: 61 * time.Second}
			_, err := operator.Webhooks().Create(t.Context(), spec)
			if errors.Is(err, pawltype.ErrConflict) {
				_, err = operator.Webhooks().Update(t.Context(), "hook", admin.WebhookChange{URL: spec.URL, Events: spec.Events,
					Queues: spec.Queues, DepthOver: &spec.DepthOver, WaitOver: &spec.WaitOver})
			}
			must(t, err)
			return "/webhooks/hook/edit"
		}, func() any {
			h, err := operator.Webhooks().Get(t.Context(), "hook")
			must(t, err)
			return admin.WebhookSpec{URL: h.URL, Events: h.Events, Queues: h.Queues, DepthOver: h.DepthOver, WaitOver: h.WaitOver}
		}},
		{func() string {
			n := func(n int64) *int64 { return &n }
			_, err := operator.Namespaces().SetQuotas(t.Context(), "default", admin.QuotaChange{MaxBacklog: n(1_000_000),
				MaxBacklogBytes: n(1<<30 + 1), MaxRunning: n(1000), MaxQueues: n(300), MaxSchedules: n(10),
				MaxRequestsPerSecond: n(100_000), MaxBytesPerSecond: n(1 << 40)})
			must(t, err)
			return "/namespaces/default/quotas"
		}, func() any {
			n, err := operator.Namespaces().Get(t.Context(), "default")
			must(t, err)
			return n.Quotas
		}},
	}
}

// TestFormsNameTheirSubjectExactly: keys and types that differ in spaces are different ones.
func TestFormsNameTheirSubjectExactly(t *testing.T) {
	w := startWorld(t, "")
	operator := admin.New(w.client).Queues()
	_, err := operator.Put(t.Context(), "mail", admin.QueueSettings{Breaker: &admin.Breaker{MinAttempts: 1, Hold: time.Hour}})
	must(t, err)
	for _, name := range []string{"acme", "acme "} {
		_, err := operator.PauseSubset(t.Context(), "mail", admin.Subset{Key: name})
		must(t, err)
		w.enqueue(t, 1, func(int) pawl.Item { return job(name, `{}`, pawl.Queue("mail")) })
	}
	claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail"}, Max: 2, Worker: "w"})
	must(t, err)
	for _, c := range claimed {
		_, err := claims.New(w.client).Fail(t.Context(), c, errors.New("no"))
		must(t, err)
	}
	submit := func(path string) {
		t.Helper()
		_, body := w.get(t, path)
		w.postAsFilled(t, path, body)
	}
	queue := func() *admin.Queue {
		t.Helper()
		q, err := operator.Get(t.Context(), "mail")
		must(t, err)
		return q
	}
	_, page := w.get(t, "/queues/mail")
	for _, link := range []string{`/queues/mail/resume?what=key&amp;name=acme%20"`, `/queues/mail/close-breaker?type=acme%20"`} {
		if !strings.Contains(page, link) {
			t.Errorf("the page of the queue lacks a link %s", link)
		}
	}
	submit("/queues/mail/resume?what=key&name=acme%20")
	submit("/queues/mail/close-breaker?type=acme%20")
	if q := queue(); len(q.PausedSubsets) != 1 || q.PausedSubsets[0].Key != "acme" || len(q.Breakers) != 1 || q.Breakers[0].Type != "acme" {
		t.Errorf("paused are %+v and the breakers that are not closed %+v, want key and type acme each", q.PausedSubsets, q.Breakers)
	}
	submit("/queues/mail/pause?what=type&name=acme%20")
	if q := queue(); !slices.ContainsFunc(q.PausedSubsets, func(p admin.PausedSubset) bool { return p.Type == "acme " }) {
		t.Errorf("paused are %+v, want type %q among them", q.PausedSubsets, "acme ")
	}
	path := "/enqueue?queue=mail&type=acme%20"
	_, body := w.get(t, path)
	w.postAsFilled(t, path, body)
	if got := w.newest(t, admin.Filter{Queue: "mail", Type: "acme "}); got == "" {
		t.Error("the form to enqueue a type trimmed its name")
	}
}

// TestOperationsApplyToWhatWasCounted: an age in a filter begins when the form is shown, not when it is sent.
func TestOperationsApplyToWhatWasCounted(t *testing.T) {
	w := startWorld(t, "")
	path := "/operations/new?action=run_now&q=" + url.QueryEscape(`before:0s payload.a:" b "`)
	shown := time.Now()
	_, body := w.get(t, path)
	form := filled(body)
	form.Set("check", "yes")
	_, body = w.post(t, path, form)
	resp, _ := w.post(t, path, filled(body))
	_, id, _ := strings.Cut(resp.Header.Get("Location"), "/operations/")
	o, err := admin.New(w.client).Operations().Get(t.Context(), id)
	must(t, err)
	f, err := admin.ParseFilter(form.Get("q"), time.Time{})
	must(t, err)
	if o.Filter.CreatedBefore.Sub(f.CreatedBefore).Abs() >= time.Microsecond || f.CreatedBefore.Before(shown) ||
		!slices.Equal(o.Filter.Payload, []admin.PayloadField{{Path: "a", Value: " b "}}) {
		t.Errorf("the form has the filter %q, the operation %+v", form.Get("q"), o.Filter)
	}
	path = "/operations/new?action=run_now&q=" + url.QueryEscape("payload.a:\"a\rb\"")
	_, body = w.get(t, path)
	resp, _ = w.post(t, path, filled(body))
	_, id, _ = strings.Cut(resp.Header.Get("Location"), "/operations/")
	if o, err = admin.New(w.client).Operations().Get(t.Context(), id); err != nil || o.Filter.Payload[0].Value != "a\rb" {
		t.Errorf("the operation has the filter %+v, %v, want its carriage return", o.Filter, err)
	}
}

// TestEnqueueSentAgain: a form that is sent again, as after a lost answer, adds no task and says so, whatever was changed in it.
func TestEnqueueSentAgain(t *testing.T) {
	w := startWorld(t, "")
	_, body := w.get(t, "/enqueue")
	form := filled(body)
	form.Set("type", "a")
	send := func(name, value string) (status int, to, says string) {
		t.Helper()
		form.Set(name, value)
		resp, body := w.post(t, "/enqueue", form)
		if resp.StatusCode == 422 {
			return resp.StatusCode, "", body
		}
		said, err := url.QueryUnescape(resp.Cookies()[0].Value)
		must(t, err)
		return resp.StatusCode, resp.Header.Get("Location"), said
	}
	_, first, says := send("payload", `{"cents":1}`)
	if says != "Enqueued." {
		t.Errorf("the first time it says %q", says)
	}
	for name, value := range map[string]string{"key": "", "tags": "x", "priority": "high"} {
		if _, to, says := send(name, value); to != first || !strings.Contains(says, "the form was sent before") {
			t.Errorf("with %s %q it led to %s, and says %q", name, value, to, says)
		}
	}
	if status, _, says := send("payload", `{"cents":2}`); status != 422 || !strings.Contains(says, strings.TrimPrefix(first, "/tasks/")) {
		t.Errorf("another payload: status %d, want a refusal that names the first task: %s", status, says)
	}
}
