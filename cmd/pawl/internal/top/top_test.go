package top

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"
	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

var topTime = time.Date(2026, 11, 22, 10, 30, 0, 0, time.Local)

func example() *model {
	return &model{server: "127.0.0.1:7295", every: 2 * time.Second, now: func() time.Time { return topTime.Add(time.Minute) }, last: shot{
		at: topTime,
		sums: sums{queues: 3, scheduled: 8, ready: 1_234_570, claimed: 41, retrying: 2, dead: 12, poisoned: 4, in: 1200.45, out: 900.5,
			failing: 0.2, oldest: 10 * time.Minute},
		queues: []queue{
			{name: "billing", ready: 1, claimed: 1, dead: 12, poisoned: 4, in: 0.05, out: 0.5, failing: 0.2, wait95: 40 * time.Millisecond,
				run95: 3 * time.Second, oldest: time.Second, drain: 5 * time.Second, drains: true, workers: 1},
			{name: "mail", ready: 1_234_567, held: 3, scheduled: 8, retrying: 2, claimed: 40, in: 1200.4, out: 900,
				oldest: 10 * time.Minute, workers: 2, note: "paused: the provider is down"},
			{name: "\x1b[31mred\nqueue", ready: 2},
		},
		workers: []worker{
			{id: "w1", host: "host-1", node: "n1", queues: "mail=7,billing=3", slots: 50, claimed: 41, longest: 90 * time.Second,
				lastClaim: topTime.Add(-time.Second)},
			{id: "w2", host: "host-2", node: "n2", queues: "mail", slots: 10, note: "quiet: deploy"},
		},
		failures: []failure{{queue: "billing", typ: "card.charge", last: "gateway answered 502", failures: 17,
			lastAt: topTime.Add(-3 * time.Second)}},
		notes: []note{{true, "queue billing: 12 dead letters in the last hour"},
			{false, "queue mail is paused, and 1234567 tasks are ready"}},
		away: []string{"n3"},
	}}
}

func screenText(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		var row strings.Builder
		for _, p := range l {
			row.WriteString(p.text)
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	return b.String()
}

// TestTopShows: the screen shows everything that was reported, in columns, and no content moves the cursor.
func TestTopShows(t *testing.T) {
	v := example()
	got := screenText(v.draw(160, 24))
	want := `pawl top  127.0.0.1:7295  10:30:00  every 2s
in 1,200/s  done 901/s  failing 0.2/s  ready 1,234,570  oldest 10m  claimed 41  dead 12  poisoned 4  workers 2, 41 of 60 slots busy
figures are incomplete: no answer from n3

‼ queue billing: 12 dead letters in the last hour
! queue mail is paused, and 1234567 tasks are ready

 1 Queues 3   2 Workers 2   3 Failures 1

QUEUE▾              READY  HELD  SCHEDULED  RETRYING  CLAIMED  DEAD  POISONED   IN/S  OUT/S  FAIL/S  WAIT95  OLDEST  WORKERS  NOTE
 [31mred queue          2     ·          ·         ·        ·     ·         ·      ·      ·       ·       ·       ·     none
billing                 1     ·          ·         ·        1    12         4   0.05    0.5     0.2    40ms      1s        1
mail            1,234,567     3          8         2       40     ·         ·  1,200    900       ·       ·     10m        2  paused: the provider is down
`
	if !strings.HasPrefix(got, want) {
		t.Errorf("the screen is\n%s\nwant\n%s", got, want)
	}
	if strings.Contains(got, "\x1b") {
		t.Error("a queue's name can move the cursor")
	}
	if n := strings.Count(got, "\n"); n != 24 {
		t.Errorf("got %d lines on a screen of 24", n)
	}
	v.press("2")
	if got := screenText(v.draw(160, 24)); !strings.Contains(got,
		"w1       host-1  n1         41     50      90s      1s ago  mail=7,billing=3") {
		t.Errorf("the workers are shown as\n%s", got)
	}
	v.press("tab")
	if got := screenText(v.draw(160, 24)); !strings.Contains(got, "card.charge  billing        17  3s ago  gateway answered 502") {
		t.Errorf("the failures are shown as\n%s", got)
	}
	v.err = errors.New("connection refused")
	if got := screenText(v.draw(160, 24)); !strings.Contains(got, "no answer for 60s: connection refused") {
		t.Errorf("the screen without an answer is\n%s", got)
	}
	if got := screenText((&model{server: "x", every: time.Second}).draw(80, 10)); !strings.Contains(got, "waiting for the first answer") {
		t.Errorf("the screen before the first answer is\n%s", got)
	}
}

// TestTopKeys: the selection moves and stays visible, and rows can be sorted by any column that has an order.
func TestTopKeys(t *testing.T) {
	v := example()
	for i := range 100 {
		v.last.queues = append(v.last.queues, queue{name: fmt.Sprintf("q%03d", i), ready: int64(i)})
	}
	see := func() string { return screenText(v.draw(160, 24)) }
	see()
	v.press("end")
	if got := see(); !strings.Contains(got, "q099") || strings.Contains(got, "q000") {
		t.Errorf("the screen at the end of the list is\n%s", got)
	}
	v.press("home")
	for range 2 {
		v.press("pgdn")
		see()
	}
	if v.chosen[tabQueues] != 2*v.rows || v.top[tabQueues] == 0 {
		t.Errorf("after two pages down the selected row is %d, the first row %d, and %d rows fit", v.chosen[tabQueues],
			v.top[tabQueues], v.rows)
	}
	v.press("up")
	if see(); v.chosen[tabQueues] != 2*v.rows-1 {
		t.Errorf("after one row up the selected row is %d", v.chosen[tabQueues])
	}
	v.press("home")
	v.press(">")
	if got := see(); !strings.Contains(got, "READY▾") || strings.Index(got, "mail") > strings.Index(got, "q099") {
		t.Errorf("sorted by READY:\n%s", got)
	}
	for range 50 { // the last column, NOTE, has no order
		v.press(">")
	}
	if got := see(); !strings.Contains(got, "WORKERS▾") {
		t.Errorf("sorted by the last column that has an order:\n%s", got)
	}
	for range 50 {
		v.press("<")
	}
	if got := see(); !strings.Contains(got, "QUEUE▾") {
		t.Errorf("sorted by the first column:\n%s", got)
	}
	v.press("p")
	v.take(answer{shot: shot{at: topTime.Add(time.Hour)}})
	if v.last.at != topTime || !strings.Contains(see(), "paused") {
		t.Error("a paused screen changed")
	}
	if _, ask := v.press("p"); !ask {
		t.Error("resuming did not request a refresh")
	}
	v.take(answer{err: errors.New("gone")})
	v.take(answer{shot: shot{at: topTime.Add(time.Hour)}})
	if v.err != nil || v.last.at == topTime || !strings.Contains(see(), "no queues yet") {
		t.Errorf("after an answer without queues: %v\n%s", v.err, see())
	}
	v.press("?")
	if got := see(); !strings.Contains(got, "press any key to go back") {
		t.Errorf("the help is\n%s", got)
	}
	if quit, _ := v.press("x"); quit || v.help {
		t.Error("a key does not close the help")
	}
	for _, k := range []key{"q", "esc", "ctrl-c"} {
		if quit, _ := v.press(k); !quit {
			t.Errorf("%s does not quit", k)
		}
	}
}

// TestTopOnSmallScreens: the screen can be of any size, and never gets more lines than it has.
func TestTopOnSmallScreens(t *testing.T) {
	for height := range 30 {
		for _, width := range []int{0, 1, 10, 80} {
			for tab := range tabCount {
				v := example()
				v.tab = tab
				if n := len(v.draw(width, height)); n > max(height, 1) {
					t.Errorf("got %d lines on a screen of %d", n, height)
				}
			}
		}
	}
}

// TestTopOnATerminal: keys reach the model, answers reach the screen, and q quits.
func TestTopOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := vt.NewMockTerm(vt.MockOptSize{X: 160, Y: 30})
		screen, err := tcell.NewTerminfoScreenFromTty(term)
		if err == nil {
			err = screen.Init()
		}
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			run(t.Context(), screen, &model{server: "x", every: time.Second, now: time.Now}, func(context.Context) (shot, error) {
				asked++
				return example().last, nil
			})
		}()
		time.Sleep(2500 * time.Millisecond)
		if row := termRow(term, 7); !strings.Contains(row, "1 Queues 3") {
			t.Errorf("row 7 of the terminal is %q", row)
		}
		if asked != 3 {
			t.Errorf("got %d refreshes in 2.5 s, want 3", asked)
		}
		term.KeyTap(vt.KeyP)
		time.Sleep(10 * time.Second)
		if row := termRow(term, 0); asked != 3 || !strings.Contains(row, "paused") {
			t.Errorf("after a pause, got %d refreshes in all, want 3, and row 0 is %q", asked, row)
		}
		term.KeyTap(vt.KeyQ)
		<-ended
		screen.Fini()
	})
}

func termRow(term vt.MockTerm, y int) string {
	var b strings.Builder
	for x := range 160 {
		b.WriteString(term.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)}).C)
	}
	return b.String()
}

// TestTopOnNarrowScreens: the most important columns are visible at any width, and no value is cut off.
func TestTopOnNarrowScreens(t *testing.T) {
	v := example()
	for _, c := range []struct {
		width int
		want  string
	}{
		{200, "QUEUE▾              READY  HELD  SCHEDULED  RETRYING  CLAIMED  DEAD  POISONED   IN/S  OUT/S  FAIL/S  WAIT95  " +
			"RUN95  OLDEST  DRAINS  WORKERS  NOTE"},
		{80, "QUEUE▾              READY  CLAIMED  DEAD  WORKERS  NOTE"},
		{60, "QUEUE▾              READY  DEAD  NOTE"},
	} {
		text := screenText(v.draw(c.width, 30))
		if !strings.Contains(text, c.want+"\n") {
			t.Errorf("on %d columns: got\n%swant the columns %s", c.width, text, c.want)
		}
		for _, figure := range []string{"ready 1,234,570", "dead 12", "poisoned 4", "workers 2, 41 of 60 slots busy", "no answer from n3"} {
			if !strings.Contains(text, figure) {
				t.Errorf("on %d columns: %q is missing in\n%s", c.width, figure, text)
			}
		}
		for row := range strings.SplitSeq(text, "\n") {
			if n := utf8.RuneCountInString(row); n > c.width {
				t.Errorf("on %d columns: a line has %d: %q", c.width, n, row)
			}
		}
	}
}

// TestTopListsFailuresByQueue: failures of one type in two queues are two rows, each with its queue, also on a narrow screen.
func TestTopListsFailuresByQueue(t *testing.T) {
	v := example()
	v.tab = tabFailures
	long := strings.Repeat("long", 20)
	v.last.failures = []failure{{queue: "a", typ: "load", failures: 1}, {queue: "b", typ: "load", failures: 1},
		{queue: long, typ: long, failures: 1_234}}
	for _, width := range []int{60, 80} {
		text := screenText(v.draw(width, 24))
		if !strings.Contains(text, "QUEUE") || !strings.Contains(text, "1,234") {
			t.Errorf("on %d columns: QUEUE or FAILURES is missing in\n%s", width, text)
		}
		for row := range strings.SplitSeq(text, "\n") {
			if n := utf8.RuneCountInString(row); n > width {
				t.Errorf("on %d columns: a line has %d: %q", width, n, row)
			}
		}
	}
}

// TestTopHelpFits: no line of the help is cut off, and it has no more lines than the screen.
func TestTopHelpFits(t *testing.T) {
	v := example()
	v.press("?")
	words := strings.Fields(screenText(v.draw(500, 100)))
	for _, width := range []int{40, 60, 80, 200} {
		text := screenText(v.draw(width, 100))
		if got := strings.Fields(text); !slices.Equal(got, words) {
			t.Errorf("on %d columns: the words are\n%s\nwant\n%s", width, got, words)
		}
		for row := range strings.SplitSeq(text, "\n") {
			if n := utf8.RuneCountInString(row); n > width {
				t.Errorf("on %d columns: a line has %d: %q", width, n, row)
			}
		}
	}
	if n := len(v.draw(60, 10)); n != 10 {
		t.Errorf("got %d lines on a screen of 10", n)
	}
}

// TestTopTotalsCoverAllQueues: the totals cover all queues although only the first ones are listed, and it is always
// visible that there are more.
func TestTopTotalsCoverAllQueues(t *testing.T) {
	v := example()
	s := &admin.NamespaceStats{Queues: admin.QueueTotals{Queues: 10_000, Ready: 113_000, Dead: 2_000, Poisoned: 7,
		OldestReady: time.Minute}}
	s.Step = 10 * time.Second
	s.Series = make([]admin.EventCounts, 30)
	for i := 23; i < 29; i++ {
		s.Series[i] = admin.EventCounts{Enqueued: 90, Replayed: 10, Succeeded: 40, Dead: 10, Failed: 4, Crashed: 1}
	}
	s.Series[29] = admin.EventCounts{Enqueued: 1_000_000} // this step is not complete
	s.Series[22] = s.Series[29]                           // and this one is more than a minute old
	v.last.sums, v.last.moreQueues, v.last.moreWorkers = sumsOf(s), true, true
	for range 20 {
		v.last.notes = append(v.last.notes, note{true, "something is amiss"})
	}
	text := screenText(v.draw(160, 24))
	for _, want := range []string{"in 10.0/s  done 5.0/s  failing 0.5/s  ready 113,000  oldest 60s  claimed ·", "dead 2,000  poisoned 7",
		"workers first 2", "1 Queues first 3 of 10,000", "2 Workers first 2", "and 17 more: pawl stats"} {
		if !strings.Contains(strings.ReplaceAll(text, "claimed 0", "claimed ·"), want) {
			t.Errorf("%q is missing on the screen:\n%s", want, text)
		}
	}
}

// The totals' rates are those of the queues, unless there are more than are listed: just after the start, the totals
// are over too long a time.
func TestTotalsAreThoseOfTheQueues(t *testing.T) {
	for more, want := range map[bool]sums{false: {in: 7, out: 3, failing: 1}, true: {in: 0.5, out: 0.25, failing: 0.1}} {
		s := shot{sums: sums{in: 0.5, out: 0.25, failing: 0.1}, moreQueues: more, queues: []queue{{in: 5, out: 2},
			{in: 2, out: 1, failing: 1}}}
		if s.addRates(); s.sums != want {
			t.Errorf("more queues: %t: the totals are %+v, want %+v", more, s.sums, want)
		}
	}
}

// A lost worker is listed among the workers, but not counted.
func TestTopOfLostWorkers(t *testing.T) {
	lost := &admin.Worker{Name: "gone", Queues: pawl.Strict{"mail"}, Slots: 10, Running: 4, LostAt: topTime.Add(-3 * time.Minute),
		LostReason: "disconnected"}
	there := &admin.Worker{Name: "w1", Queues: pawl.Strict{"mail"}, Slots: 5, Running: 1, Connected: true}
	v := example()
	v.last.workers, v.last.queues = nil, nil
	v.last.list([]*admin.Queue{{Name: "mail"}}, []*admin.Worker{lost, there})
	if got := v.last.queues[0].workers; got != 1 {
		t.Errorf("mail has %d workers, want 1", got)
	}
	v.tab = tabWorkers
	text := screenText(v.draw(160, 24))
	for _, want := range []string{"workers 1, 1 of 5 slots busy", "gone", "lost 3m ago"} {
		if !strings.Contains(text, want) {
			t.Errorf("the screen lacks %q:\n%s", want, text)
		}
	}
}

// A queue without ready tasks has nothing to drain. What comes in may be due tomorrow, so it is the server that says
// whether the ready tasks become fewer.
func TestDrains(t *testing.T) {
	at := slices.IndexFunc(queueColumns, func(c column[queue]) bool { return c.head == "DRAINS" })
	for want, q := range map[string]queue{"·": {in: 1}, "never": {ready: 1, in: 2, out: 1}, "5s": {ready: 1, in: 1, out: 2, drains: true,
		drain: 5 * time.Second}} {
		if got, _ := queueColumns[at].show(q); got != want {
			t.Errorf("%+v drains %q, want %q", q, got, want)
		}
	}
}

// A queue's workers are those that the server counts: the listed ones may be the first of many.
func TestWorkersOfAllPages(t *testing.T) {
	many := 1500
	var s shot
	s.list([]*admin.Queue{{Name: "mail", Workers: &many}, {Name: "sms"}}, []*admin.Worker{{Name: "w", Queues: pawl.Strict{"mail", "sms"}}})
	if s.queues[0].workers != many || s.queues[1].workers != 1 {
		t.Errorf("mail has %d workers and sms %d, want %d and 1", s.queues[0].workers, s.queues[1].workers, many)
	}
}
