package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
)

func TestEventLine(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.Local)
	for want, e := range map[string]admin.Event{
		"task.failed      mail  welcome  t1  worker=\"w1\"  error=\"no route\"  attempt=2": {Kind: "task.failed",
			Queue: "mail", Type: "welcome", TaskID: "t1", Worker: "w1", Error: "no route", Attempt: 2},
		"queue.paused     mail  reason=\"deploy\"": {Kind: "queue.paused",
			Queue: "mail", Reason: "deploy"},
		"queue.paused     mail  welcome": {Kind: "queue.paused",
			Queue: "mail", Type: "welcome"},
		"queue.resumed    mail  key=\"a b\"": {Kind: "queue.resumed", Queue: "mail", Key: "a b"},
		"schedule.missed  nightly  reason=\"missed\"  ticks=3": {Kind: "schedule.missed", Name: "nightly",
			Reason: "missed", Count: 3},
	} {
		e.Time = at
		got, ok := strings.CutPrefix(eventLine(&e), "03:04:05.678  ")
		if !ok || got != want {
			t.Errorf("an event is printed as\n%s, want\n%s", got, want)
		}
	}
}
