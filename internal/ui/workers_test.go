package ui

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/ui/web"
)

// rendered renders a part of a page, and returns its text without tags and its source.
func rendered(t *testing.T, page string, data any) (text, source string) {
	t.Helper()
	var b strings.Builder
	if err := web.NewTemplates("", web.NewFiles(""), sets(nil)...).Execute(&b, page, "live", data); err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(b.String(), " ")
	return strings.Join(strings.Fields(text), " "), b.String()
}

// A lost worker is shown with the time of its loss and the tasks it held. It is not counted and can't be made quiet.
func TestLostWorkersOnPages(t *testing.T) {
	at := time.Now().Add(-20 * time.Minute)
	lost := &admin.Worker{ID: "L", Name: "w1", Running: 3, Slots: 5, Queues: pawl.Strict{"mail"}, SeenAt: at, LostAt: at,
		LostReason: "disconnected", Tasks: []admin.RunningTask{{ID: "t1", Type: "mail.welcome", Queue: "mail", Since: at}}}
	there := &admin.Worker{ID: "T", Name: "w2", Running: 1, Slots: 2, Connected: true, Queues: pawl.Strict{"mail"}}
	text, source := rendered(t, "workers", workersView{Rows: []workerRow{workerRowOf(lost), workerRowOf(there)}, Slots: 2, Busy: 1})
	for _, want := range []string{"w1 lost 20 min ago – held 3 mail mail.welcome 20 min ago and 2 more", "w2 connected 1 / 2",
		"1 of 2 slots on this page in use"} {
		if !strings.Contains(text, want) {
			t.Errorf("the list lacks %q: %s", want, text)
		}
	}
	if strings.Contains(source, "/workers/L/quiet") || !strings.Contains(source, "/workers/T/quiet") {
		t.Error("the list has a quiet button for a lost worker, or none for a connected one")
	}
	if text, _ := rendered(t, "workers", workersView{Lost: "true"}); text != "No worker was lost in the last hour." {
		t.Errorf("the list without lost workers has the text %q", text)
	}

	text, source = rendered(t, "worker", workerView{workerRow: workerRowOf(lost), Why: lostWhy[lost.LostReason], Shown: lost.Tasks, Cut: 2})
	for _, want := range []string{"lost 20 min ago . Its connection broke, and the worker did not reconnect.", "3 held", "Held tasks",
		"mail.welcome", "2 more tasks"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page of a lost worker lacks %q: %s", want, text)
		}
	}
	if strings.Contains(source, "/workers/L/quiet") || strings.Contains(text, "running") {
		t.Errorf("the page of a lost worker has a quiet button, or shows running tasks: %s", text)
	}
}
