package queues

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
)

func TestWhenAQueueIsEmpty(t *testing.T) {
	rates := &admin.QueueRates{Out: 10}
	for _, c := range []struct {
		ready, claimed int64
		rates          *admin.QueueRates
		drain          *time.Duration // the server's, as the command line shows it
		want           string
	}{
		{0, 0, nil, nil, "now"},
		{0, 0, rates, new(time.Duration(0)), "now"},
		{1, 0, nil, nil, "unknown"},
		{1, 0, rates, nil, "never at this rate"},
		{0, 5, rates, new(time.Minute), "about 1 min"},
		{50, 5, rates, new(5 * time.Second), "about 5 s"},
	} {
		q := &admin.Queue{Rates: c.rates, Drain: c.drain}
		q.Depth.Ready, q.Depth.Claimed = c.ready, c.claimed
		if got := drainText(q); got != c.want {
			t.Errorf("drainText with %d ready and %d claimed tasks, rates %+v and drain %v = %q, want %q", c.ready, c.claimed, c.rates, c.drain, got, c.want)
		}
	}
}
