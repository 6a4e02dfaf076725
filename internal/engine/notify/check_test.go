package notify

import (
	"testing"

	"github.com/pawlq/pawl/internal/engine/checktest"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

func TestCheck(t *testing.T) {
	sent := task.ID{1}
	for _, c := range []struct {
		name  string
		tally tally
		want  string
	}{
		{"gathered", tally{count: 1, first: 3, last: 3, samples: make([]task.NotificationSample, task.NotificationSamples)}, ""},
		{"at rest", tally{sent: sent}, ""},
		{"less than nothing", tally{count: -1, sent: sent}, "-1 from 0 to 0"},
		{"without a begin", tally{count: 1, last: 3}, "1 from 0 to 3"},
		{"without an end", tally{count: 1, first: 3}, "1 from 3 to 0"},
		{"ends before its begin", tally{first: 4, last: 3, sent: sent}, "0 from 4 to 3"},
		{"nothing, and nothing was sent", tally{}, "0 from 0 to 0"},
		{"too many samples", tally{sent: sent, samples: make([]task.NotificationSample, task.NotificationSamples+1)}, "6 samples"},
	} {
		w := checktest.New()
		c.tally.closes = 5
		w.Set(subject{checktest.NS, task.NotifyDead, "q"}.key(), c.tally.encode())
		w.Set(watchKey(checktest.NS), []byte{schema.RowVersion, '{', '}'})
		check(w)
		t.Log(c.name)
		w.Expect(t, c.want, 1)
	}
	for _, c := range []struct {
		name       string
		key, value []byte
		want       string
	}{
		{"no queue", append(schema.Table(checktest.NS, schema.TableNotification), "task.dead\x00"...), (&tally{sent: sent}).encode(),
			"can't be read"},
		{"no row", subject{checktest.NS, task.NotifyDead, "q"}.key(), []byte{0xff}, "can't be read"},
		{"no sample", subject{checktest.NS, task.NotifyDead, "q"}.key(), withSample("{"), "can't be read"},
		{"an empty watch", watchKey(checktest.NS), nil, "watch"},
		{"a watch of another form", watchKey(checktest.NS), []byte{schema.RowVersion + 1, '{', '}'}, "watch"},
		{"no watch", watchKey(checktest.NS), []byte{schema.RowVersion, '{'}, "watch"},
	} {
		w := checktest.New()
		w.Set(c.key, c.value)
		check(w)
		t.Log(c.name)
		w.Expect(t, c.want, 0)
	}
}

// withSample returns a row with this sample, followed by a valid one.
func withSample(says string) []byte {
	f := schema.Encoding(nil)
	f.ID(2, &task.ID{1})
	f.Put(7, []byte(says))
	f.Put(7, []byte("{}"))
	return f.Row()
}
