package audit

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Whatever a namespace does, it removes no entries of others that are within their equal share, nor those of the cluster within its
// reserve.
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
	if n, err := CountsOf(s.state); err != nil || n.Evicted == 0 ||
		n.Evicted != uint64(80+60+1000-s.count("")-s.count("quiet")-s.count("loud")) {
		t.Errorf("%d entries count as removed early, %v", n, err)
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
	evicted, err := CountsOf(s.state)
	if err != nil {
		t.Fatal(err)
	}
	s.now = s.now.Add(DefaultKeep + time.Hour)
	for range 10 {
		s.log(b, (*Log).Expire)
	}
	if now, _ := CountsOf(s.state); now.Evicted != evicted.Evicted {
		t.Errorf("%d entries that have expired count as removed early", now.Evicted-evicted.Evicted)
	}
	if all := s.sum(); all.Bytes != 0 || all.Due != 0 {
		t.Errorf("after all have expired: %+v", all)
	}
}

// Among as many namespaces as a cluster may have, each still keeps its equal share but for an entry, regardless of what another adds.
func TestSharesOfManyNamespaces(t *testing.T) {
	s := newShard(t)
	const namespaces, each = 1000, 7
	s.round(func(tx *store.Tx) {
		l, err := Open(tx, 0)
		if err != nil {
			t.Fatal(err)
		}
		add := func(ns string) {
			if _, err := l.Append(Entry{Action: task.QueuePut, Namespace: ns}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range each * namespaces {
			add(fmt.Sprintf("ns%04d", i%namespaces))
		}
		one := l.sum.Bytes / each / namespaces
		l.bounds = bounds{keep: DefaultKeep, bytes: l.sum.Bytes}
		for range 5 {
			add("loud")
		}
		for i := range namespaces {
			if c, err := readChain(tx, fmt.Sprintf("ns%04d", i)); err != nil || c.Bytes < (each-1)*one-10 {
				t.Errorf("namespace %d has %d bytes left of %d, %v: an entry has %d", i, c.Bytes, each*one, err, one)
			}
		}
	})
	s.sound("a flood")
}

// One round removes a bounded number of entries, regardless of how many namespaces they belong to.
func TestExpireIsBounded(t *testing.T) {
	s := newShard(t)
	const namespaces, each = 3, expireTrim/2 + 100
	s.round(func(tx *store.Tx) {
		l, err := Open(tx, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range namespaces * each {
			if _, err := l.Append(Entry{Action: task.QueuePut, Namespace: fmt.Sprint("ns", i%namespaces)}); err != nil {
				t.Fatal(err)
			}
		}
	})
	s.now = s.now.Add(DefaultKeep)
	for left := namespaces * each; left > 0; {
		left = max(left-expireTrim, 0)
		due := s.log(usual, (*Log).Expire)
		if n := s.count("ns0") + s.count("ns1") + s.count("ns2"); n != left || (due == 0) != (left == 0) || due > s.now+1 {
			t.Fatalf("%d entries are left, want %d; the next round is due at %d, now is %d", n, left, due, s.now)
		}
		s.sound("some have gone")
		s.now++
	}
}

// What namespaces leave that come and go is removed with their entries.
func TestNamespacesThatComeAndGo(t *testing.T) {
	s := newShard(t)
	for i := range 100 {
		s.append(Entry{Action: task.QueuePut, Namespace: fmt.Sprint("ns", i)})
	}
	s.now = s.now.Add(DefaultKeep / 2)
	s.append(Entry{Action: task.QueuePut, Namespace: "ns7"})
	s.now = s.now.Add(DefaultKeep / 2)
	s.log(usual, (*Log).Expire)
	s.sound("most have gone")
	if chains, err := readChains(s.state); err != nil || len(chains) != 1 || chains[0].ns != "ns7" {
		t.Errorf("there are %d chains, %v, want that of the namespace with an entry", len(chains), err)
	}
	s.append(Entry{Action: task.QueuePut, Namespace: "ns8"})
	s.sound("one is back")
	if c := s.chainOf("ns8"); c.Newest != 102 {
		t.Errorf("its entry has number %d, want 102", c.Newest)
	}
}
