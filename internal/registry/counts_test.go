package registry

import (
	"fmt"
	"testing"
	"testing/synctest"
)

func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		a := r.Join(helloOf("a", "mail", "sms"), "A", 0, nil)
		a.Slots(3)
		r.Join(helloOf("b", "mail"), "B", 0, nil).Slots(5)
		quiet := r.Join(helloOf("c", "mail"), "C", 0, nil)
		quiet.Slots(7)
		quiet.setQuiet(&Quiet{Version: 1})
		other := helloOf("d", "mail")
		other.Namespace = "other"
		r.Join(other, "D", 0, nil)
		all := r.Counts()
		c := all["default"]
		is(t, "the counts", fmt.Sprint(len(all), c.Workers, c.Busy, c.Free, c.Quiet, all["other"].Workers),
			"2 map[mail:2 sms:1] 0 8 1 map[mail:1]")
		for i := range maxCountedQueues + 5 {
			r.Join(helloOf("x", fmt.Sprintf("q%d", i)), fmt.Sprint(i), 0, nil)
		}
		c = r.Counts()["default"]
		h := helloOf("z", "mail")
		for i := range maxCountedQueues {
			h.Queues = append(h.Queues, Share{Queue: fmt.Sprint(i)})
		}
		h.Namespace, h.Queues = "last", append(h.Queues, Share{Queue: "mail"})
		r.Join(h, "Z", 0, nil)
		is(t, "of one that has a name", fmt.Sprint(r.Counts()["last"].Workers["mail"]), "2")
		is(t, "of many queues", fmt.Sprint(len(c.Workers), c.Workers[Other]), fmt.Sprint(maxCountedQueues+1, 7))
	})
}
