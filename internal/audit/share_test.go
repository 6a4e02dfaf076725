package audit

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Whatever a namespace does, it removes no entries of others that are within their equal share, nor those of the cluster within its reserve.
func TestShares(t *testing.T) {
	s := newShard(t)
	b := bounds{keep: DefaultKeep, bytes: 100_000, reserved: 25_000}
	add := func(ns string, n int) {
		t.Helper()
		for range n {
			s.now = s.now.Add(time.Second)
			s.appendIn(b, Entry{Action: task.QueuePut, Namespace: ns, By: task.Author{Name: fmt.Sprint("someone of ", ns)}})
		}
	}
	add("", 80)
	add("quiet", 60)
	add("loud", 1000)
	s.sound("a flood")
	if n := s.count(""); n != 80 || s.chain().Bytes > b.reserved {
		t.Errorf("the cluster has %d entries of %d bytes left, want all 80 of its reserve", n, s.chain().Bytes)
	}
	if n := s.count("quiet"); n != 60 {
		t.Errorf("the quiet namespace has %d entries left, want all 60", n)
	}
	if all := s.sum(); all.Bytes > b.bytes || all.Bytes < b.bytes*9/10 {
		t.Errorf("there are %d bytes in all, want nearly %d", all.Bytes, b.bytes)
	}
	add("quiet", 1000)
	s.sound("two floods")
	if x, y := s.chainOf("quiet").Bytes, s.chainOf("loud").Bytes; x < y*9/10 || y < x*9/10 {
		t.Errorf("two that have too many keep %d and %d bytes, want the same", x, y)
	}
	add("", 1000) // those beyond its reserve count like anyone's
	s.sound("a flood of the cluster")
	if x, y := s.chainOf("quiet").Bytes, s.chain().Bytes-b.reserved; x < y*9/10 || y < x*9/10 {
		t.Errorf("a namespace keeps %d bytes, and the cluster %d beyond its reserve, want the same", x, y)
	}
	p, err := Read(s.state, 1, Query{Namespace: "loud", Own: true}, nil, 1000)
	if err != nil || len(p.Entries) != s.count("loud") || p.Entries[0].Prev != p.Entries[1].Hash {
		t.Errorf("%d of %d entries are read, %v", len(p.Entries), s.count("loud"), err)
	}
	s.now = s.now.Add(DefaultKeep + time.Hour)
	for range 10 {
		s.log(b, (*Log).Expire)
	}
	if all := s.sum(); all.Bytes != 0 || all.Due != 0 {
		t.Errorf("after all have expired: %+v", all)
	}
}
