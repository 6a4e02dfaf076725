package outbox

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		name     string
		passes   [][2]int // start and end of those that found rows
		now      int
		on, want bool
	}{
		{"no rows yet", nil, 0, false, true},
		{"no rows yet, and they are on", nil, 0, true, true},
		{"a pass", [][2]int{{0, 5}}, 5, true, true},
		{"passes for 199 ms", [][2]int{{0, 100}, {110, 199}}, 199, true, true},
		{"passes for 200 ms", [][2]int{{0, 100}, {110, 200}}, 200, true, false},
		{"pauses of 50 ms", [][2]int{{0, 10}, {60, 90}, {140, 200}}, 200, true, false},
		{"one pause of 51 ms", [][2]int{{0, 10}, {61, 90}, {140, 200}}, 200, true, true},
		{"passes for 200 ms, a while ago", [][2]int{{0, 100}, {110, 200}}, 251, true, true},
		{"99 ms without rows", [][2]int{{0, 100}, {110, 200}}, 299, false, false},
		{"100 ms without rows", [][2]int{{0, 100}, {110, 200}}, 300, false, true},
		{"a pass after a backlog", [][2]int{{0, 900}, {2000, 2001}}, 2001, true, true},
	} {
		var p pace
		for _, pass := range c.passes {
			p.found(at(pass[0]), at(pass[1]))
		}
		if got := p.wantsNotifications(c.on, at(c.now)); got != c.want {
			t.Errorf("%s: wantsNotifications = %t", c.name, got)
		}
	}
}
