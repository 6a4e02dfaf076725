package tasks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/pawltype"
)

// TestStepsBetweenAttempts: a timeline has what operators did where it happened, and replays that no entry of the audit log is about.
func TestStepsBetweenAttempts(t *testing.T) {
	at := func(minutes int) time.Time { return time.Date(2026, 11, 22, 12, minutes, 0, 0, time.UTC) }
	log := []pawltype.Attempt{
		{Fence: 1, StartedAt: at(10), Outcome: pawltype.OutcomeFailed, NextRunAt: at(12)},
		{Fence: 2, StartedAt: at(20), Outcome: pawltype.OutcomeFailed},
		{Fence: 3, StartedAt: at(30), Outcome: pawltype.OutcomeDead},
		{Fence: 4, StartedAt: at(40), Outcome: pawltype.OutcomeLeaseLost},
		{Fence: 5, StartedAt: at(50), Outcome: pawltype.OutcomeFailed},
	}
	steps := []step{{Word: "cancelled", At: at(51)}, {Word: "replayed", At: at(25)}, {Word: "edited", At: at(20)},
		{Word: "edited", At: at(5)}}
	words := func(steps []step) string {
		var all []string
		for _, s := range steps {
			word := s.Word
			if s.Many {
				word += " with others"
			}
			if !s.At.IsZero() {
				word += fmt.Sprint(" ", s.At.Minute())
			}
			all = append(all, word)
		}
		return strings.Join(all, ", ")
	}
	for shown, want := range map[int]string{5: "cancelled 51 | | replayed with others | replayed 25, edited 20 | | edited 5",
		2: "cancelled 51 | | "} {
		view := attemptsView{Rows: attemptRows(log[len(log)-shown:], at(59))}
		if shown < len(log) {
			view.Older = "/older"
		}
		view.addSteps(steps, true, log)
		var got []string
		for _, r := range view.Rows {
			got = append(got, words(r.After))
		}
		if text := strings.Join(append(got, words(view.Before)), " | "); strings.ReplaceAll(text, "|  |", "| |") != want {
			t.Errorf("with %d attempts the timeline has %q, want %q", shown, text, want)
		}
	}
	some := attemptsView{Rows: attemptRows(log, at(59))}
	if some.addSteps(nil, false, log); words(some.Rows[2].After) != "replayed" || words(some.Rows[3].After) != "replayed" {
		t.Errorf("without the audit log the timeline has %q and %q, want replays of which nothing is known", words(some.Rows[2].After),
			words(some.Rows[3].After))
	}
	var none attemptsView
	if none.addSteps(steps, true, nil); words(none.Before) != words(steps) {
		t.Errorf("before the first attempt there are %q, want all steps", words(none.Before))
	}
}
