package trail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// collector is where records are exported to.
type collector struct {
	mu      sync.Mutex
	err     error
	rejects bool
	takes   time.Duration
	records []string
}

func (c *collector) export(ctx context.Context, records []slog.Record) (rejected int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	if pause(ctx, c.takes); ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if c.rejects {
		return len(records), nil
	}
	for _, r := range records {
		line := r.Message
		r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
		c.records = append(c.records, line)
	}
	return 0, nil
}

func (c *collector) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// pass lets time pass, until what is due has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// logLines is what was logged.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logLines) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

func newTrail(c *collector, kinds ...Kind) (*Trail, *logLines) {
	var lines logLines
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	cfg := Config{Kinds: kinds, Log: slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{ReplaceAttr: withoutTime}))}
	if c != nil {
		cfg.Export = c.export
	}
	return New(cfg), &lines
}

// An event is one line, with what is known of it, in one form for the log and the collector. Only the kinds that were
// asked for are recorded.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		tr, lines := newTrail(c, Refusal)
		tr.Record(Event{Kind: Login})
		tr.cfg.Kinds = Usual()
		tr.Record(Event{Kind: Login, Actor: "lena", Token: "team/lena", Namespace: "team", Interface: "ui", Address: "192.0.2.1",
			Outcome: "ok"})
		tr.Record(Event{Kind: Refusal, Actor: "x\ny", Address: strings.Repeat("é", maxText), Outcome: "unauthenticated",
			Reason: "bad\xff"})
		(*Trail)(nil).Record(Event{Kind: Login})
		want := `level=INFO msg="a visitor logged in" event=logins code=ok actor=lena namespace=team interface=ui address=192.0.2.1
level=WARN msg="a caller was refused" event=refusals code=unauthenticated reason="bad` + "\uFFFD" + `" actor="x\ny" unverified=true address=` + strings.Repeat("é", maxText/2) + "\n"
		if lines.String() != want {
			t.Errorf("log:\n%s\nwant\n%s", lines, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go tr.Run(ctx)
		pass(2 * gatherFor)
		const login = "a visitor logged in event=logins code=ok actor=lena namespace=team interface=ui address=192.0.2.1"
		if len(c.records) != 2 || c.records[0] != login {
			t.Errorf("exported: %q", c.records)
		}
		if n := tr.Counts(); len(n) != 2 || n["logins"] != (Counts{1, 0}) || n["refusals"] != (Counts{1, 0}) {
			t.Errorf("counts: %v", n)
		}
		cancel()
		synctest.Wait()
	})
}

// A caller who causes too many events is recorded at a rate, with the number of those left out, and hides nobody
// else's. Those left out last are told of even if the caller stops.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, lines := newTrail(nil, Login, Refusal)
		flood := Event{Kind: Refusal, Outcome: "unauthenticated"}
		for range atOnce + 5 {
			tr.Record(flood)
		}
		if n := strings.Count(lines.String(), "\n"); n != atOnce {
			t.Errorf("%d lines at once, want %d", n, atOnce)
		}
		lines.Reset()
		for _, e := range []Event{{Kind: Login, Actor: "lena", Token: "team/lena"}, {Kind: Refusal, Actor: "lena", Token: "team/lena"},
			{Kind: Refusal, Actor: "lena", Token: "other/lena"}, {Kind: Login, Actor: "lena"}} {
			if tr.Record(e); strings.Count(lines.String(), "\n") != 1 || strings.Contains(lines.String(), "left_out") {
				t.Errorf("beside a flood, %+v is logged as %q", e, lines)
			}
			lines.Reset()
		}
		pass(time.Second / perSecond)
		tr.Record(flood)
		if !strings.Contains(lines.String(), "left_out=5") {
			t.Errorf("the line after those left out is %q", lines)
		}
		lines.Reset()
		tr.Record(flood)
		tr.Record(flood)
		pass(summaryAfter)
		if want := "level=WARN msg=\"audit events were left out\" event=refusals left_out=2\n"; lines.String() != want {
			t.Errorf("after a flood: %q, want %q", lines, want)
		}
		if n := tr.Counts()["refusals"]; n != (Counts{atOnce + 3, 7}) {
			t.Errorf("counts: %+v", n)
		}
		lines.Reset()
		for who, want := range map[Event]string{
			{Actor: "n3", Token: "/n3"}:                            "actor=n3",
			{Actor: "lena", Token: "team/lena"}:                    "actor=lena namespace=team",
			{Actor: "*/oncall", Token: "*/oncall"}:                 "actor=*/oncall",
			{Actor: "x", Token: "team/x", Method: "of a few more"}: "namespace=team",
		} {
			if who.Kind = Refusal; who.Method != "" { // more callers than are tracked
				for i := range maxCallers {
					tr.Record(Event{Kind: Refusal, Token: fmt.Sprint("full/", i)})
				}
			}
			for range atOnce + 1 {
				tr.Record(who)
			}
			lines.Reset()
			pass(summaryAfter)
			if want := "level=WARN msg=\"audit events were left out\" event=refusals " + want + " left_out=1\n"; lines.String() != want {
				t.Errorf("after a flood: %q, want %q", lines, want)
			}
			pass(time.Minute)
		}
		lines.Reset()
		pass(2 * summaryAfter)
		if lines.String() != "" {
			t.Errorf("later: %q", lines)
		}
	})
}

// The callers whose rates are tracked are bounded. The others share a rate, and idle ones make room.
func TestCallersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, lines := newTrail(nil, Refusal)
		for i := range 3 * maxCallers {
			tr.Record(Event{Kind: Refusal, Actor: "a", Token: fmt.Sprint("team/", i)})
		}
		if n := strings.Count(lines.String(), "\n"); len(tr.callers) > maxCallers+1 || n != maxCallers+atOnce {
			t.Errorf("%d callers are tracked, %d lines", len(tr.callers), n)
		}
		lines.Reset()
		tr.Record(Event{Kind: Refusal, Actor: "b", Token: "other/b"})
		tr.Record(Event{Kind: Refusal})
		if n := strings.Count(lines.String(), "\n"); n != 2 {
			t.Errorf("beside the flood of a namespace, %d of 2 events were recorded", n)
		}
		pass(time.Minute)
		lines.Reset()
		for i := range maxCallers {
			tr.Record(Event{Kind: Refusal, Actor: "a", Token: fmt.Sprint("later/", i)})
		}
		if n := strings.Count(lines.String(), "\n"); n != maxCallers {
			t.Errorf("%d of %d events of new callers were recorded later", n, maxCallers)
		}
	})
}

// A flood by more callers than are tracked does not look through all of them for each event.
func TestFloodOfManyCallersIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _ := newTrail(nil, Refusal)
		another := 0
		callers := func() int {
			another++
			tr.Record(Event{Kind: Refusal, Token: fmt.Sprint("team/", another)})
			return len(tr.callers)
		}
		for callers() <= maxCallers { // until some share a rate
		}
		pass(forgetEvery / 2) // all are idle
		if n := callers(); n <= maxCallers {
			t.Errorf("idle callers were looked for again after %v", forgetEvery/2)
		}
		pass(forgetEvery / 2)
		if n := callers(); n != 1 {
			t.Errorf("after %v, %d callers are tracked, want the last one only", forgetEvery, n)
		}
	})
}

// While the collector is down, events wait, as many as there is room for; what strangers cause leaves half of it. Lost ones are counted.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{err: errors.New("down")}
		tr, lines := newTrail(c, Refusal)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan bool)
		go func() { tr.Run(ctx); close(done) }()
		flood := func(token string) {
			for range 2 * maxQueued {
				tr.Record(Event{Kind: Refusal, Token: token})
				time.Sleep(time.Second / perSecond)
			}
		}
		flood("")
		if lost := tr.Lost(); lost < maxQueued || len(tr.queue.records) > maxQueued/2 {
			t.Errorf("%d were lost, %d wait", lost, len(tr.queue.records))
		}
		before, waiting := tr.Lost(), len(tr.queue.records)
		for range 100 {
			tr.Record(Event{Kind: Refusal, Actor: "lena", Token: "team/lena"})
		}
		if tr.Lost() != before || len(tr.queue.records) != waiting+100 {
			t.Errorf("beside those of strangers, %d of 100 events were lost", tr.Lost()-before)
		}
		c.fail(nil)
		pass(time.Minute)
		logged := uint64(strings.Count(lines.String(), "a caller was refused"))
		if got := uint64(len(c.records)); got+tr.Lost() != logged || tr.Lost() != before {
			t.Errorf("%d were exported and %d lost, of %d", got, tr.Lost(), logged)
		}
		c.fail(errors.New("down"))
		flood("team/lena")
		tr.Record(Event{Kind: Refusal, Token: "team/lena"})
		waiting = maxQueued // and a batch
		before = tr.Lost()
		cancel()
		<-done
		if lost := tr.Lost() - before; lost != uint64(waiting)+maxSent {
			t.Errorf("%d were lost at the end, want %d", lost, waiting+maxSent)
		}
		if !strings.Contains(lines.String(), `msg="the last audit events were not exported"`) {
			t.Error("the loss was not logged")
		}
	})
}

// What is queued when the process ends is still exported.
func TestFlush(t *testing.T) {
	c := &collector{}
	tr, _ := newTrail(c, Login)
	for range 2 * maxSent {
		tr.queue.add(slog.Record{}, false)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if tr.Run(ctx); len(c.records) != 2*maxSent || tr.Lost() != 0 {
		t.Errorf("%d were exported, %d lost", len(c.records), tr.Lost())
	}
}

// A collector that takes its time does not hold up the end of the process: what it has not taken by then is lost, and counted.
func TestSlowCollectorAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{takes: flushFor * 2 / 3}
		tr, _ := newTrail(c, Login)
		for range maxQueued {
			tr.queue.add(slog.Record{}, false)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		tr.Run(ctx)
		if took := time.Since(began); took != flushFor || len(c.records) != maxSent || tr.Lost() != maxQueued-maxSent {
			t.Errorf("after %v, %d were exported and %d lost", took, len(c.records), tr.Lost())
		}
	})
}

// What the collector rejects is lost, and what comes after it is sent.
func TestRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{rejects: true}
		tr, _ := newTrail(c, Login)
		ctx, cancel := context.WithCancel(t.Context())
		go tr.Run(ctx)
		for range 3 {
			tr.Record(Event{Kind: Login, Token: "team/lena"})
		}
		pass(2 * gatherFor)
		c.rejects = false
		tr.Record(Event{Kind: Login, Token: "team/lena"})
		pass(2 * gatherFor)
		if len(c.records) != 1 || tr.Lost() != 3 {
			t.Errorf("%d were exported and %d lost, want 1 and 3", len(c.records), tr.Lost())
		}
		cancel()
		synctest.Wait()
	})
}

// A queue that has filled is sent as fast as the collector takes it.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		tr, _ := newTrail(c, Login)
		for range maxQueued {
			tr.queue.add(slog.Record{}, false)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go tr.Run(ctx)
		pass(gatherFor + time.Millisecond)
		if len(c.records) != maxQueued {
			t.Errorf("%d of %d were sent", len(c.records), maxQueued)
		}
		cancel()
		synctest.Wait()
	})
}

func TestParseKinds(t *testing.T) {
	if all, err := ParseKinds([]string{"logins", " refusals"}); err != nil || len(all) != 2 || all[0] != Login || all[1] != Refusal {
		t.Errorf("got %v, %v", all, err)
	}
	if all, err := ParseKinds(nil); err != nil || len(all) != 0 {
		t.Errorf("none: %v, %v", all, err)
	}
	for _, bad := range []string{"", "login", "Refusals"} {
		if _, err := ParseKinds([]string{bad}); err == nil || err.Error() != fmt.Sprintf("%q is not one of logins, refusals, reads", bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
