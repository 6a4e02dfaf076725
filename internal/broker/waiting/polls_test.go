package waiting

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/store"
)

// ask returns a claim for polls to record.
func ask(queue, types, worker string) *Claim {
	return &Claim{Call: engine.ClaimRequest{Namespace: ns, Queues: []engine.Share{{Queue: queue}}, Worker: worker}, types: types}
}

// The memory of polls is bounded: old ones are dropped first, and if all are dropped it is recorded since when polls are known.
func TestPollsAreBounded(t *testing.T) {
	var a Polls
	var claims Claims
	at := func(d time.Duration) store.Time { return store.Time(0).Add(time.Hour + d) }
	a.Begin(at(0))
	stream, single := ask("s", "", "w1"), ask("s", "", "w2")
	stream.Call.Stream = true
	a.Note(single, at(1))
	a.Note(stream, at(2))
	if got := a.Of(ns, "s", &claims).Polls; len(got) != 1 || got[0].Last != at(2) || got[0].Worker != "w1" || got[0].Called != at(1) ||
		got[0].Caller != "w2" {
		t.Errorf("polls of a stream after a single call: %+v", got)
	}
	a.Note(ask("q", "old", "w0"), at(0))
	for i := range maxPolledTypes - 1 {
		a.Note(ask("q", fmt.Sprintf("type-%03d", i), "w1"), at(pollKept))
	}
	if n := len(a.Of(ns, "q", &claims).Polls); n != maxPolledTypes {
		t.Fatalf("%d sets of types are recorded, want %d", n, maxPolledTypes)
	}
	later := at(pollKept + time.Second)
	a.Note(ask("q", "new", "w2"), later)
	if got := a.Of(ns, "q", &claims); len(got.Polls) != maxPolledTypes || got.Polls[0].Types[0] != "new" || got.Since != at(0) {
		t.Errorf("after an old poll made room, %d are recorded since %v, the first is %+v", len(got.Polls), got.Since, got.Polls[0])
	}
	a.Note(ask("q", "newer", "w3"), later)
	if got := a.Of(ns, "q", &claims); len(got.Polls) != 1 || got.Polls[0].Worker != "w3" || got.Since != later {
		t.Errorf("over the limit of types, %+v are recorded since %v", got.Polls, got.Since)
	}

	for i := range maxPolledQueues - 2 {
		a.Note(ask(fmt.Sprintf("queue-%d", i), "", "w"), later)
	}
	a.Note(ask("new", "", "w"), later) // only polls more than an hour old are dropped
	if _, known := a.queues[queueKey{ns, "s"}]; known || len(a.queues) != maxPolledQueues || a.since != at(0) {
		t.Errorf("%d queues are recorded since %v, the old one among them: %v", len(a.queues), a.since, known)
	}
	if n := len(a.queues); n != maxPolledQueues {
		t.Fatalf("%d queues are recorded, want %d", n, maxPolledQueues)
	}
	evenLater := later.Add(time.Minute)
	a.Note(ask("last", "", "w"), evenLater)
	if got := a.Of(ns, "q", &claims); len(a.queues) != 1 || len(got.Polls) != 0 || got.Since != evenLater {
		t.Errorf("%d queues are recorded, the polls of the first are %+v", len(a.queues), got)
	}
	a.Begin(at(0)) // the same term: a round was dropped
	if n := len(a.Of(ns, "last", &claims).Polls); n != 1 {
		t.Errorf("a dropped round removed the recorded polls")
	}
	a.Begin(evenLater + 1)
	if n := len(a.Of(ns, "last", &claims).Polls); n != 0 {
		t.Errorf("polls of an earlier term were kept")
	}
}

// checkBytes checks that the bytes of types are counted, and within their bounds.
func checkBytes(t *testing.T, a *Polls) {
	t.Helper()
	sum := 0
	for name, q := range a.queues {
		of := 0
		for types := range q.byTypes {
			of += len(types)
		}
		if sum += of; of != q.bytes || of > maxQueueBytes {
			t.Errorf("the polls of %v have %d bytes of types, counted %d", name, of, q.bytes)
		}
	}
	if sum != a.bytes || sum > maxPolledBytes {
		t.Errorf("polls have %d bytes of types, counted %d", sum, a.bytes)
	}
}

// The types of polls are bounded by their bytes: of a queue, and of all.
func TestPolledTypesAreBounded(t *testing.T) {
	var a Polls
	now := store.Time(0).Add(time.Hour)
	a.Begin(now)
	note := func(queue, types string, at store.Time) {
		defer checkBytes(t, &a)
		a.Note(&Claim{Call: engine.ClaimRequest{Namespace: ns, Queues: []engine.Share{{Queue: queue}}}, types: types}, at)
	}
	long := strings.Repeat("x", maxQueueBytes/4-1)
	note("q", "0"+long, now)
	for i := range 3 {
		note("q", fmt.Sprint(i+1)+long, now+1)
	}
	later := now.Add(pollKept) + 1
	if note("q", "4"+long, later); len(a.queues[queueKey{ns, "q"}].byTypes) != 4 {
		t.Errorf("an old poll made room, and %d are recorded", len(a.queues[queueKey{ns, "q"}].byTypes))
	}
	note("q", "5"+long, later)
	if q := a.queues[queueKey{ns, "q"}]; len(q.byTypes) != 1 || q.since != later || a.bytes != maxQueueBytes/4 || q.bytes != a.bytes {
		t.Errorf("beyond the bytes of a queue, %d polls of %d bytes are recorded since %v, %d bytes in all", len(q.byTypes),
			q.bytes, q.since, a.bytes)
	}
	for i := range maxPolledBytes/(maxQueueBytes/4) - 1 {
		note(fmt.Sprint("full", i), "0"+long, later)
	}
	if a.bytes != maxPolledBytes || a.since != now {
		t.Errorf("%d bytes are recorded since %v", a.bytes, a.since)
	}
	evenLater := later.Add(pollKept) + 1
	note("full0", "0"+long, evenLater)
	if note("new", "0"+long, evenLater); len(a.queues) != 2 || a.bytes != 2*(maxQueueBytes/4) || a.since != now {
		t.Errorf("when old queues made room, %d are recorded, of %d bytes since %v", len(a.queues), a.bytes, a.since)
	}
	for i := range maxPolledBytes/(maxQueueBytes/4) - 1 {
		note(fmt.Sprint("again", i), "0"+long, evenLater)
	}
	if len(a.queues) != 1 || a.bytes != maxQueueBytes/4 || a.since != evenLater {
		t.Errorf("beyond the bytes of all, %d queues are recorded, of %d bytes since %v", len(a.queues), a.bytes, a.since)
	}
}

// BenchmarkNote measures the cost of recording a claim of one queue.
func BenchmarkNote(b *testing.B) {
	var a Polls
	w := ask("default", "mail\x00report", "worker-1")
	b.ReportAllocs()
	for now := store.Time(1); b.Loop(); now++ {
		a.Note(w, now)
	}
}
