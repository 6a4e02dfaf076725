package top

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
	"github.com/pawlq/pawl/cmd/internal/text"
)

// shot is what pawl top shows: the broker's answers of one moment.
type shot struct {
	at       time.Time
	sums     sums
	queues   []queue
	workers  []worker
	failures []failure
	notes    []note   // the most severe first
	away     []string // nodes that didn't answer: their part is missing
	// The lists were cut off at topLimit.
	moreQueues, moreWorkers bool
}

// sums are totals over all queues, including those not listed.
type sums struct {
	queues, scheduled, ready, claimed, retrying, dead, poisoned int64
	in, out, failing                                            float64 // per second
	oldest                                                      time.Duration
}

type queue struct {
	name                             string
	ready, held, scheduled, retrying int64
	claimed, dead, poisoned          int64
	in, out, failing                 float64 // per second, over the last minute
	wait95, run95, oldest, drain     time.Duration
	drains                           bool // drain is known: the queue is shrinking
	workers                          int
	note                             string // what keeps it from running
}

type worker struct {
	id, host, node, queues string
	slots, claimed         int
	longest                time.Duration // run so far of any of its tasks
	lastClaim              time.Time
	note                   string // quiet, draining, lost
	lost                   bool   // the server counts it as lost
}

type failure struct {
	queue, typ, last string
	failures         int64 // in the last hour
	lastAt           time.Time
}

type note struct {
	grave bool
	text  string
}

// tab is a list in the lower part of the screen.
type tab int

const (
	tabQueues tab = iota
	tabWorkers
	tabFailures
	tabCount
)

var tabNames = [tabCount]string{"Queues", "Workers", "Failures"}

// style is the appearance of a piece of text.
type style int

const (
	stylePlain style = iota
	styleDim
	styleBold
	styleHead // of a table
	styleGood
	styleWarn
	styleBad
	styleSelected
)

// A piece is text in one style, and a line is a line of the screen.
type (
	piece struct {
		text  string
		style style
	}
	line []piece
)

// model is the state of the screen: the last answers, and what the user has chosen. It doesn't know the terminal.
type model struct {
	server string
	every  time.Duration
	now    func() time.Time

	last   shot
	err    error // why there is no newer shot
	paused bool
	help   bool

	tab    tab
	sorted [tabCount]int // sort column
	chosen [tabCount]int // selected row
	top    [tabCount]int // first visible row
	rows   int           // visible, as of the last draw
}

// take shows an answer, unless the user has paused the screen.
func (v *model) take(a answer) {
	if v.paused {
		return
	}
	if v.err = a.err; a.err == nil {
		v.last = a.shot
	}
}

// column is a column of a table: its heading, minimum width and cell contents.
type column[T any] struct {
	head  string
	left  bool // for text; numbers are aligned right
	show  func(T) (string, style)
	order func(a, b T) int // sort order of the rows; nil: can't be sorted by this column
	rank  int              // on a narrow screen the highest ranks are dropped first; 0: never
}

func counted(n int64) string {
	if n == 0 {
		return "·"
	}
	return text.Grouped(n)
}

// perSecond formats a rate in as few characters as it needs.
func perSecond(r float64) string {
	switch {
	case r == 0:
		return "·"
	case r < 0.095:
		return strconv.FormatFloat(r, 'f', 2, 64)
	case r < 99.95:
		return strconv.FormatFloat(r, 'f', 1, 64)
	}
	return text.Grouped(int64(r + 0.5))
}

func some(d time.Duration) string {
	if d <= 0 {
		return "·"
	}
	return text.Span(d)
}

func plainNumber(n int64) (string, style) {
	if n == 0 {
		return "·", styleDim
	}
	return counted(n), stylePlain
}

func worse(n int64, l style) (string, style) {
	if n == 0 {
		return "·", styleDim
	}
	return counted(n), l
}

// falling returns a descending order.
func falling[T any, N cmp.Ordered](of func(T) N) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(of(b), of(a)) }
}

var queueColumns = []column[queue]{
	{"QUEUE", true, func(q queue) (string, style) { return q.name, styleBold }, func(a, b queue) int {
		return strings.Compare(a.name, b.name)
	}, 0},
	{"READY", false, func(q queue) (string, style) { return plainNumber(q.ready) }, falling(func(q queue) int64 { return q.ready }), 0},
	{"HELD", false, func(q queue) (string, style) { return worse(q.held, styleWarn) }, falling(func(q queue) int64 { return q.held }), 6},
	{"SCHEDULED", false, func(q queue) (string, style) { return plainNumber(q.scheduled) }, falling(func(q queue) int64 {
		return q.scheduled
	}), 10},
	{"RETRYING", false, func(q queue) (string, style) { return worse(q.retrying, styleWarn) }, falling(func(q queue) int64 {
		return q.retrying
	}), 7},
	{"CLAIMED", false, func(q queue) (string, style) { return plainNumber(q.claimed) }, falling(func(q queue) int64 { return q.claimed }),
		2},
	{"DEAD", false, func(q queue) (string, style) { return worse(q.dead, styleBad) }, falling(func(q queue) int64 { return q.dead }), 0},
	{"POISONED", false, func(q queue) (string, style) { return worse(q.poisoned, styleBad) }, falling(func(q queue) int64 {
		return q.poisoned
	}), 4},
	{"IN/S", false, func(q queue) (string, style) { return perSecond(q.in), stylePlain }, falling(func(q queue) float64 { return q.in }),
		8},
	{"OUT/S", false, func(q queue) (string, style) { return perSecond(q.out), styleGood }, falling(func(q queue) float64 { return q.out }),
		5},
	{"FAIL/S", false, func(q queue) (string, style) {
		if q.failing == 0 {
			return "·", styleDim
		}
		return perSecond(q.failing), styleBad
	}, falling(func(q queue) float64 { return q.failing }), 9},
	{"WAIT95", false, func(q queue) (string, style) { return some(q.wait95), stylePlain }, falling(func(q queue) time.Duration {
		return q.wait95
	}), 11},
	{"RUN95", false, func(q queue) (string, style) { return some(q.run95), stylePlain }, falling(func(q queue) time.Duration {
		return q.run95
	}), 12},
	{"OLDEST", false, func(q queue) (string, style) { return some(q.oldest), stylePlain }, falling(func(q queue) time.Duration {
		return q.oldest
	}), 3},
	{"DRAINS", false, func(q queue) (string, style) {
		switch {
		case q.ready == 0:
			return "·", styleDim
		case !q.drains:
			return "never", styleWarn
		}
		return text.Span(q.drain), stylePlain
	}, nil, 13},
	{"WORKERS", false, func(q queue) (string, style) {
		if q.workers == 0 && q.ready > 0 {
			return "none", styleBad
		}
		return plainNumber(int64(q.workers))
	}, falling(func(q queue) int { return q.workers }), 1},
	{"NOTE", true, func(q queue) (string, style) { return q.note, styleWarn }, nil, 0},
}

func (v *model) workerColumns() []column[worker] {
	return []column[worker]{
		{"WORKER", true, func(w worker) (string, style) { return w.id, styleBold }, func(a, b worker) int {
			return strings.Compare(a.id, b.id)
		},
			0},
		{"HOST", true, func(w worker) (string, style) { return w.host, stylePlain }, func(a, b worker) int {
			return strings.Compare(a.host, b.host)
		}, 5},
		{"NODE", true, func(w worker) (string, style) { return w.node, stylePlain }, func(a, b worker) int {
			return strings.Compare(a.node, b.node)
		}, 4},
		{"CLAIMED", false, func(w worker) (string, style) { return plainNumber(int64(w.claimed)) }, falling(func(w worker) int {
			return w.claimed
		}), 0},
		{"SLOTS", false, func(w worker) (string, style) { return plainNumber(int64(w.slots)) },
			falling(func(w worker) int { return w.slots }), 1},
		{"LONGEST", false, func(w worker) (string, style) { return some(w.longest), stylePlain }, falling(func(w worker) time.Duration {
			return w.longest
		}), 3},
		{"LAST CLAIM", false, func(w worker) (string, style) {
			if w.lastClaim.IsZero() {
				return "never", styleDim
			}
			return text.Ago(w.lastClaim, v.last.at), stylePlain
		}, falling(func(w worker) int64 { return w.lastClaim.UnixNano() }), 2},
		{"QUEUES", true, func(w worker) (string, style) { return w.queues, styleDim }, nil, 6},
		{"NOTE", true, func(w worker) (string, style) { return w.note, styleWarn }, nil, 0},
	}
}

func (v *model) failureColumns() []column[failure] {
	return []column[failure]{
		{"TYPE", true, func(f failure) (string, style) { return f.typ, styleBold }, func(a, b failure) int {
			return strings.Compare(a.typ, b.typ)
		}, 0},
		{"QUEUE", true, func(f failure) (string, style) { return f.queue, stylePlain }, func(a, b failure) int {
			return strings.Compare(a.queue, b.queue)
		}, 0},
		{"FAILURES", false, func(f failure) (string, style) { return worse(f.failures, styleBad) }, falling(func(f failure) int64 {
			return f.failures
		}), 0},
		{"LAST", false, func(f failure) (string, style) { return text.Ago(f.lastAt, v.last.at), stylePlain },
			falling(func(f failure) int64 {
				return f.lastAt.UnixNano()
			}), 1},
		{"LAST ERROR", true, func(f failure) (string, style) { return f.last, stylePlain }, nil, 0},
	}
}

// draw returns the lines of a screen of the given size.
func (v *model) draw(width, height int) []line {
	if v.help {
		return v.drawHelp(width, height)
	}
	lines := append([]line{v.title(width)}, v.sums(width)...)
	lines = append(lines, nil)
	lines = append(lines, v.attention(width, height)...)
	lines = append(lines, v.tabs(), nil)
	v.rows = max(height-len(lines)-2, 1) // heading and foot
	switch v.tab {
	case tabQueues:
		lines = append(lines, table(v, width, v.last.queues, queueColumns, "no queues yet: pawl enqueue TYPE PAYLOAD creates one")...)
	case tabWorkers:
		lines = append(lines, table(v, width, v.last.workers, v.workerColumns(),
			"no workers are connected: pawl work --type TYPE --exec CMD starts one")...)
	case tabFailures:
		lines = append(lines, table(v, width, v.last.failures, v.failureColumns(), "nothing has failed in the last hour")...)
	}
	for len(lines) < height-1 {
		lines = append(lines, nil)
	}
	lines = lines[:max(height-1, 0)]
	return append(lines, line{{"tab 1 2 3", styleBold}, {" page  ", styleDim}, {"↑ ↓", styleBold}, {" row  ", styleDim}, {"< >", styleBold},
		{" sort  ", styleDim}, {"p", styleBold}, {" pause  ", styleDim}, {"?", styleBold}, {" help  ", styleDim}, {"q", styleBold},
		{" quit", styleDim}})
}

func (v *model) title(width int) line {
	state, l := "every "+text.Period(v.every), styleDim
	switch {
	case v.paused:
		state, l = "paused", styleWarn
	case v.err != nil && v.last.at.IsZero():
		state, l = "no answer: "+v.err.Error(), styleBad
	case v.err != nil:
		state, l = fmt.Sprintf("no answer for %s: %v", text.Span(v.now().Sub(v.last.at)), v.err), styleBad
	}
	at := ""
	if !v.last.at.IsZero() {
		at = v.last.at.Local().Format("15:04:05")
	}
	return line{{"pawl top", styleBold}, {"  " + v.server + "  ", styleDim}, {at, stylePlain}, {"  ", stylePlain},
		{text.Short(state, max(width-len(v.server)-22, 20)), l}}
}

// sums renders the totals over all queues, in as many lines as they need.
func (v *model) sums(width int) []line {
	s := &v.last.sums
	there, slots, busy := 0, 0, 0
	for _, w := range v.last.workers {
		if !w.lost {
			there, slots, busy = there+1, slots+w.slots, busy+w.claimed
		}
	}
	bad := func(n float64) style {
		if n > 0 {
			return styleBad
		}
		return styleDim
	}
	workers := fmt.Sprintf("%s, %s of %s slots busy", text.Grouped(int64(there)), text.Grouped(int64(busy)), text.Grouped(int64(slots)))
	if v.last.moreWorkers {
		workers = "first " + workers
	}
	groups := []line{
		{{"in ", styleDim}, {perSecond(s.in) + "/s", styleBold}}, {{"done ", styleDim}, {perSecond(s.out) + "/s", styleGood}},
		{{"failing ", styleDim}, {perSecond(s.failing) + "/s", bad(s.failing)}}, {{"ready ", styleDim}, {text.Grouped(s.ready), styleBold}},
		{{"oldest ", styleDim}, {some(s.oldest), styleBold}}, {{"claimed ", styleDim}, {text.Grouped(s.claimed), styleBold}},
		{{"dead ", styleDim}, {text.Grouped(s.dead), bad(float64(s.dead))}}, {{"poisoned ", styleDim}, {text.Grouped(s.poisoned),
			bad(float64(s.poisoned))}},
		{{"workers ", styleDim}, {workers, styleBold}},
	}
	if len(v.last.away) > 0 {
		groups = append(groups, line{{"figures are incomplete: no answer from " + strings.Join(v.last.away, ", "), styleBad}})
	}
	return wrapped(groups, width)
}

// wrapped lays out groups of pieces side by side, in as many lines as they need.
func wrapped(groups []line, width int) (lines []line) {
	used := 0
	for _, g := range groups {
		wide := 0
		for _, p := range g {
			wide += displaywidth.String(p.text)
		}
		if last := len(lines) - 1; last >= 0 && used+2+wide <= width {
			lines[last] = append(append(lines[last], piece{"  ", stylePlain}), g...)
			used += 2 + wide
			continue
		}
		lines, used = append(lines, g), wide
	}
	return lines
}

// maxNotes is the maximum number of notes: the tables need room too.
const maxNotes = 6

func (v *model) attention(width, height int) (lines []line) {
	notes := v.last.notes
	room := min(maxNotes, max(height/4, 1))
	for i, n := range notes {
		if i == room-1 && len(notes) > room {
			lines = append(lines, line{{fmt.Sprintf("  and %d more: pawl stats", len(notes)-i), styleDim}})
			break
		}
		mark, l := "! ", styleWarn
		if n.grave {
			mark, l = "‼ ", styleBad
		}
		lines = append(lines, line{{mark + text.Short(n.text, max(width-2, 10)), l}})
	}
	if len(lines) > 0 {
		lines = append(lines, nil)
	}
	return lines
}

// drawHelp explains the keys and terms in lines as wide as the screen. What doesn't fit is cut off at the end.
func (v *model) drawHelp(width, height int) []line {
	text := [][2]string{{"tab, 1, 2, 3", "queues, workers, failures"}, {"↑ ↓ k j", "previous and next row; also PgUp, PgDn, Home, End"},
		{"< >", "sort by the previous or next column"}, {"p, space", "pause: the screen is frozen until you press it again"},
		{"r", "refresh now"}, {"q, Esc, Ctrl-C", "quit"}}
	const keys = 18 // in columns
	lines := []line{{{"pawl top", styleBold}, {"  " + v.server, styleDim}}, nil}
	for _, t := range text {
		key := t[0]
		for _, part := range folded(t[1], width-keys) {
			lines = append(lines, line{{pad(key, keys-2, true), styleBold}, {part, stylePlain}})
			key = ""
		}
	}
	for _, t := range []string{
		"The figures above cover all queues; IN, OUT, FAIL are tasks per second over the last minute. WAIT95, RUN95: 95 % of " +
			"tasks waited and ran no longer.",
		"HELD: ready, but can't run now: pawl queue explain QUEUE says why. DRAINS: time until the queue is empty at this rate.",
		"press any key to go back",
	} {
		lines = append(lines, nil)
		for _, part := range folded(t, width) {
			lines = append(lines, line{{part, styleDim}})
		}
	}
	return lines[:min(len(lines), max(height, 1))]
}

// folded wraps a text between words to lines of at most width, unless a single word is longer.
func folded(text string, width int) (lines []string) {
	for word := range strings.FieldsSeq(text) {
		last := len(lines) - 1
		if last >= 0 && displaywidth.String(lines[last])+1+displaywidth.String(word) <= width {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

// key is a key by its name: "q", "up", "pgdn".
type key string

// press handles a key.
func (v *model) press(k key) (quit, ask bool) {
	if v.help && k != "q" && k != "ctrl-c" {
		v.help = false
		return false, false
	}
	switch k {
	case "q", "esc", "ctrl-c":
		return true, false
	case "?", "h":
		v.help = true
	case "tab":
		v.tab = (v.tab + 1) % tabCount
	case "backtab":
		v.tab = (v.tab + tabCount - 1) % tabCount
	case "1", "2", "3":
		v.tab = tab(k[0] - '1')
	case "p", "space":
		v.paused = !v.paused
		return false, !v.paused
	case "r":
		return false, true
	case "<", "left", ",":
		v.sorted[v.tab] = v.sortable(-1)
	case ">", "right", ".":
		v.sorted[v.tab] = v.sortable(+1)
	default:
		v.walk(k)
	}
	return false, false
}

// walk moves the selection; draw keeps it within the rows.
func (v *model) walk(k key) {
	c := &v.chosen[v.tab]
	switch k {
	case "up", "k":
		*c = max(*c-1, 0)
	case "down", "j":
		*c++
	case "pgup":
		*c = max(*c-v.rows, 0)
	case "pgdn":
		*c += v.rows
	case "home":
		*c = 0
	case "end":
		*c = len(v.last.queues) + len(v.last.workers) + len(v.last.failures)
	}
}

// sortable returns the next sortable column in a direction, or the current one if there is none.
func (v *model) sortable(step int) int {
	var can []bool
	switch v.tab {
	case tabQueues:
		can = sortables(queueColumns)
	case tabWorkers:
		can = sortables(v.workerColumns())
	case tabFailures:
		can = sortables(v.failureColumns())
	}
	for c := v.sorted[v.tab] + step; c >= 0 && c < len(can); c += step {
		if can[c] {
			return c
		}
	}
	return v.sorted[v.tab]
}

func sortables[T any](columns []column[T]) (can []bool) {
	for _, c := range columns {
		can = append(can, c.order != nil)
	}
	return can
}
