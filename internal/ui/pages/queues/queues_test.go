package queues

import (
	"testing"

	"github.com/pawlq/pawl/admin"
)

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
			t.Errorf("drainText with %d ready tasks and rates %+v = %q, want %q", c.ready, c.rates, got, c.want)
		}
	}
}
