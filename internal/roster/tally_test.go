package roster

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Who claims through two nodes is one; who is quiet, drains, or is of another namespace is none.
func TestTally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n1, n2 := New(), New()
		n1.Join(helloOf("a", "mail", "sms"), "A", 0, nil)
		n2.Join(helloOf("b", "mail"), "B", 0, nil)
		n2.Join(helloOf("c", "mail"), "C", 0, nil).Drains()
		n2.Join(helloOf("d", "mail"), "D", 0, nil).hush(&Quiet{Version: 1})
		other := helloOf("e", "mail")
		other.Namespace = "other"
		n1.Join(other, "E", 0, nil)
		for _, n := range []*Roster{n1, n2} {
			n.Begin(helloOf("f", "mail")).Done()
		}
		n2.Begin(helloOf("g", "video")).Done()
		queues := []string{"mail", "none", "sms", "video"}
		both := []Tally{n1.Tally("default", queues), n2.Tally("default", queues)}
		is(t, "of both nodes", fmt.Sprint(Sum(both, len(queues))), "[3 0 1 1]")
		is(t, "of one", fmt.Sprint(Sum(both[:1], len(queues))), "[2 0 1 0]")
		is(t, "of none", fmt.Sprint(Sum(nil, len(queues))), "[0 0 0 0]")
		n1.Begin(helloOf("h", "sms")) // waits on
		time.Sleep(KeptFor + time.Second)
		is(t, "when those who claimed by single calls have gone, and nobody has swept", fmt.Sprint(Sum([]Tally{n1.Tally("default", queues), n2.Tally("default", queues)}, len(queues))), "[2 0 2 0]")
	})
}

// Beyond maxTallied claimers are still counted.
func TestTallyOfMany(t *testing.T) {
	r := New()
	var queues []string
	for i := range maxTallied/1000 + 5 {
		queues = append(queues, fmt.Sprint("q", i))
	}
	for i := range 1000 {
		r.Begin(helloOf(fmt.Sprint("w", i), queues...)).Done()
	}
	tally := r.Tally("default", queues)
	told := 0
	for _, ids := range tally.Claimers {
		told += len(ids)
	}
	is(t, "told apart", fmt.Sprint(told), fmt.Sprint(maxTallied))
	for i, n := range Sum([]Tally{tally}, len(queues)) {
		is(t, queues[i], fmt.Sprint(n), "1000")
	}
}

func BenchmarkTally(b *testing.B) {
	r := New()
	var queues []string
	for i := range 1000 {
		queues = append(queues, fmt.Sprint("q", i))
	}
	for i := range 10_000 {
		r.Join(helloOf(fmt.Sprint("w", i), queues[i%995:i%995+5]...), fmt.Sprint(i), 0, nil)
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Tally("default", queues)
	}
}
