package ui

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

// TestFieldsReadWhatTheyHold: a form that nobody changes submits the values it was filled with.
func TestFieldsReadWhatTheyHold(t *testing.T) {
	for _, d := range []time.Duration{time.Millisecond, 90 * time.Second, 20 * time.Minute, 2 * time.Hour, 3*time.Hour + time.Minute, 36 * time.Hour, 14 * 24 * time.Hour, 1500 * time.Millisecond} {
		if got, err := humanize.Duration(fieldDuration(d)); err != nil || got != d {
			t.Errorf("%v is held as %q, which reads as %v %v", d, fieldDuration(d), got, err)
		}
	}
	if fieldDuration(0) != "" || fieldDuration(pawltype.NoWait) != "0s" {
		t.Errorf("none is held as %q, no wait as %q", fieldDuration(0), fieldDuration(pawltype.NoWait))
	}
}

func TestWhenAQueueIsEmpty(t *testing.T) {
	for _, c := range []struct {
		ready int64
		rates *admin.QueueRates
		want  string
	}{
		{0, nil, "now"},
		{0, &admin.QueueRates{In: 2, Out: 1}, "now"},
		{1, nil, "unknown"},
		{1, &admin.QueueRates{In: 2, Out: 2}, "never at this rate"},
		{1, &admin.QueueRates{In: 3, Out: 2}, "never at this rate"},
		{600, &admin.QueueRates{In: 2, Out: 12}, "about 1 min"},
		{50, &admin.QueueRates{Out: 10}, "about 5 s"},
	} {
		q := &admin.Queue{Rates: c.rates}
		q.Depth.Ready = c.ready
		if got := drainText(q); got != c.want {
			t.Errorf("%d ready, %+v: %q, want %q", c.ready, c.rates, got, c.want)
		}
	}
}
