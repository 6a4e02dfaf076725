package ui_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/ui/web"
	"github.com/pawlq/pawl/pawltype"
)

// An unfinished search says how far it got, whether or not it found anything, and links to the rest.
func TestUnfinishedSearchShowsProgress(t *testing.T) {
	old := web.SearchTime
	web.SearchTime = 0
	t.Cleanup(func() { web.SearchTime = old })
	w := startWorld(t, "")
	w.enqueue(t, 10_500, func(i int) pawl.Item {
		opts := []pawl.Option{pawl.Queue("mail")}
		if i == 0 || i == 10_499 {
			opts = append(opts, pawl.Tags("vip"))
		}
		return job("a", `{}`, opts...)
	})
	_, body := w.get(t, "/tasks?q=tag:none")
	for _, want := range []string{"No match so far", "Searched 10,000 rows, back to ", "Search older tasks", "cursor="} {
		if !strings.Contains(body, want) {
			t.Errorf("the page of a search without a match so far lacks %q", want)
		}
	}
	if _, body = w.get(t, "/tasks?q=tag:vip"); !strings.Contains(body, "Searched 10,000 rows, back to ") ||
		!strings.Contains(body, "Older tasks may match too") || strings.Contains(body, "No match so far") {
		t.Error("the page of a search that found one of two tasks does not say how far it got")
	}
	if _, body = w.get(t, "/tasks?q=type:none"); !strings.Contains(body, "No task matches") || strings.Contains(body, "Searched") {
		t.Error("the page of a completed search does not say that no task matches")
	}
	if _, body = w.get(t, "/tasks?q=type:a"); strings.Contains(body, "Searched") {
		t.Error("a full page says how far the search got")
	}
}

// TestTimelineShowsOperators: a task's page says who replayed, edited and moved it, between its attempts.
func TestTimelineShowsOperators(t *testing.T) {
	w := startWorld(t, "")
	operator := admin.New(w.client).WithActor("alice").WithReason("the bank is back")
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail"), pawl.MaxAttempts(1)) })
	id := w.newest(t, admin.Filter{Queue: "mail"})
	fail := func() {
		t.Helper()
		claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail"}, Max: 1, Worker: "w",
			Wait: time.Minute})
		must(t, err)
		_, err = claims.New(w.client).Fail(t.Context(), claimed[0], errors.New("no"))
		must(t, err)
	}
	fail()
	_, err := operator.Tasks().Retry(t.Context(), id)
	must(t, err)
	_, err = operator.Tasks().Update(t.Context(), id, admin.TaskUpdate{Priority: pawltype.High})
	must(t, err)
	fail()
	o, err := operator.Operations().Start(t.Context(), admin.OperationSpec{Action: admin.ActionReplay,
		Filter: &admin.Filter{Queue: "mail"}})
	must(t, err)
	_, err = operator.Operations().Wait(t.Context(), o.ID, nil)
	must(t, err)
	fail()
	_, body := w.get(t, "/tasks/"+id)
	_, timeline, _ := strings.Cut(body, `<ol class="timeline">`)
	timeline, _, _ = strings.Cut(timeline, "</ol>")
	at := 0
	for _, want := range []string{"<b>Attempt 3", "<b>replayed</b>", "by an operation", "<b>Attempt 2", "<b>edited</b>", "priority",
		"by alice: the bank is back", "<b>replayed</b>", "by alice", "<b>Attempt 1", "<b>created"} {
		next := strings.Index(timeline[at:], want)
		if next < 0 {
			t.Fatalf("the timeline lacks %q after %q: %s", want, timeline[:at], timeline[at:])
		}
		at += next + len(want)
	}
}

// TestQueueShowsWhatHeldTasksWaitFor: the pages of queues show for how long tasks have waited for one before them with the same key, and
// link to it.
func TestQueueShowsWhatHeldTasksWaitFor(t *testing.T) {
	w := startWorld(t, "")
	_, err := admin.New(w.client).Queues().Put(t.Context(), "mail", admin.QueueSettings{KeyOrder: admin.KeyOrderStrict})
	must(t, err)
	w.enqueue(t, 3, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail"), pawl.Key("k")) })
	claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail"}, Max: 3, Worker: "w"})
	must(t, err)
	if len(claimed) != 1 {
		t.Fatalf("%d tasks were claimed, want the first of the key", len(claimed))
	}
	_, list := w.get(t, "/queues")
	_, page := w.get(t, "/queues/mail")
	age := regexp.MustCompile(`<span title="[^"]+">\d[^<]*s</span>(</b><span>oldest wait|</td>)`)
	if !age.MatchString(list) || !age.MatchString(page) {
		t.Errorf("the oldest wait of held tasks is missing in the list, %t, or on the page, %t", !age.MatchString(list),
			!age.MatchString(page))
	}
	behind := w.newest(t, admin.Filter{Queue: "mail", States: []pawltype.State{pawltype.StateReady}})
	_, waiting := w.get(t, "/tasks/"+behind)
	if want := `<a href="/tasks/` + claimed[0].ID + `">Show that task</a>`; !strings.Contains(page, want) ||
		!strings.Contains(waiting, want) {
		t.Errorf("the page of the queue, or of a task that waits, lacks %s: %s", want,
			regexp.MustCompile(`(?s)why-detail.{0,400}`).FindString(page))
	}
}
