package history

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
)

// world is clients, a network and queues in simulated time. It records what clients of a correct queue see, whatever happens to
// their calls.
type world struct {
	c       chances
	rng     *rand.Rand
	now     int64 // ns
	began   int64 // shard time at 0, us
	todo    agenda
	made    int // things put on the agenda
	shards  []*host
	clients []*client
	records []Record
	final   []Record
	dead    []string
	left    int // acts before the faults end
	calm    bool

	enqueued int
	flying   int // requests that have not arrived yet
	asking   int // calls other than claims that may be sent again
}

// chances are the probabilities of faults, each between 0 and 1.
type chances struct {
	tasks, clients, shards int
	acts                   int     // of the clients, before the faults end; 0: four for each task
	lost                   float64 // calls without an answer
	retried                float64 // of those: repeated below the recorder
	crashes                int     // of each shard
	unstamped              bool    // answers without an index
}

// host is a queue and the calls that wait for its next round.
type host struct {
	*queue
	waiting []*request
	planned bool
	down    bool
	given   int // claims taken back by the broker
	ended   int // number of the first tasks that have ended for good
}

// request is one transmission of a call.
type request struct {
	run    func(q *queue) []Record // answers, without stamps
	answer func([]Record)          // nil: the answer is lost
	back   bool                    // claims whose answer is lost are taken back at once
}

type client struct {
	id, seq int
	held    []Record // claims that the client believes to hold
	past    []Record // claims that the client held
}

type item struct {
	at   int64
	made int
	do   func()
}

type agenda []item

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].made < a[j].made
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(item)) }
func (a *agenda) Pop() any {
	x := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return x
}

const ms = int64(1_000_000)

// run makes a history: work under faults, then without faults until all tasks have ended, then a read of each.
func run(seed uint64, c chances) *world {
	w := &world{c: c, rng: rand.New(rand.NewPCG(seed, 7)), began: 1_700_000_000_000_000, left: c.acts}
	if w.left == 0 {
		w.left = 4 * c.tasks
	}
	for s := range max(c.shards, 1) {
		w.shards = append(w.shards, &host{queue: newQueue(uint32(s+1), w.rng)})
	}
	for i := range c.clients {
		cl := &client{id: i}
		w.clients = append(w.clients, cl)
		w.in(w.upTo(5*ms), func() { w.act(cl) })
	}
	for _, h := range w.shards {
		for range c.crashes {
			w.in(w.upTo(int64(w.left/c.clients)*20*ms+ms), func() { w.crash(h) })
		}
	}
	for len(w.todo) > 0 {
		next := heap.Pop(&w.todo).(item)
		w.now = next.at
		next.do()
	}
	for _, h := range w.shards {
		for _, t := range h.order {
			w.finish(h, t)
		}
	}
	return w
}

func (w *world) in(d int64, do func()) {
	w.made++
	heap.Push(&w.todo, item{w.now + d, w.made, do})
}

func (w *world) upTo(n int64) int64       { return w.rng.Int64N(n) + 1 }
func (w *world) chance(part float64) bool { return w.rng.Float64() < part }

// finish reads a task at the end.
func (w *world) finish(h *host, t *qTask) {
	w.now += ms
	h.now = w.began + w.now/1000
	r := Record{Client: -1, Seq: len(w.final), CallNS: w.now, ReturnNS: w.now + ms/2, Op: Get, Task: t.id}
	h.run(&r)
	w.stamp(h, &r)
	w.final = append(w.final, r)
	if t.state == "dead" {
		w.dead = append(w.dead, t.id)
	}
}

func (w *world) stamp(h *host, r *Record) {
	if !w.c.unstamped {
		r.Shard, r.Index, r.TimeUS = h.shard, h.index, h.now
	}
}

// arrive puts a request into the next round.
func (w *world) arrive(h *host, q *request) {
	h.waiting = append(h.waiting, q)
	if !h.planned {
		h.planned = true
		w.in(w.upTo(ms), func() { w.round(h) })
	}
}

// round runs the waiting requests, in any order, as one entry of the log.
func (w *world) round(h *host) {
	h.planned = false
	waiting := h.waiting
	h.waiting = nil
	if h.down {
		return
	}
	h.now, h.wrote = max(h.now, w.began+w.now/1000), false
	if w.chance(0.3) {
		h.tick()
	}
	w.rng.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
	answers := make([][]Record, len(waiting))
	for i, q := range waiting {
		answers[i] = q.run(h.queue)
	}
	if h.wrote {
		h.index += qIndexStep
	}
	for i, q := range waiting {
		for j := range answers[i] {
			w.stamp(h, &answers[i][j])
		}
		switch {
		case q.answer != nil:
			w.in(w.upTo(ms), func() { q.answer(answers[i]) })
		case q.back && len(answers[i]) > 0 && answers[i][0].Op == Claim && answers[i][0].Task != "":
			h.given += len(answers[i])
			w.arrive(h, &request{run: func(q *queue) []Record { q.takeBack(answers[i]); return nil }, answer: func([]Record) {}})
		}
	}
}

// crash stops a shard for a while. Requests that wait for a round are lost.
func (w *world) crash(h *host) {
	if h.down || w.calm {
		return
	}
	h.down, h.waiting = true, nil
	w.in(w.upTo(2000*ms), func() {
		h.down = false
		h.index += qIndexStep // the new leader's own entry
		h.led = w.began + w.now/1000
	})
}

// call sends a call and records what its client sees. It then calls then with the answers, which are empty if there were none.
func (w *world) call(c *client, h *host, r Record, exec func(*queue) []Record, then func([]Record)) {
	c.seq++
	r.Client, r.Seq, r.CallNS = c.id, c.seq, w.now
	if r.Op == Claim {
		w.send(h, r, exec, then)
		return
	}
	w.asking++
	w.send(h, r, exec, func(got []Record) { w.asking--; then(got) })
}

const timeout = 500 * ms

func (w *world) send(h *host, r Record, exec func(*queue) []Record, then func([]Record)) {
	delay := w.upTo(ms)
	if h.down && w.chance(0.3) {
		w.in(delay, func() { w.note(r, []Record{{Answer: Answer{Code: Nope}}}, then) }) // connection refused
		return
	}
	lost := !w.calm && w.chance(w.c.lost)
	delivery := w.rng.IntN(3)
	answered := false
	q := &request{run: exec, back: w.chance(0.5)}
	if !lost {
		q.answer = func(answers []Record) {
			if !answered && !h.down {
				answered = true
				w.note(r, answers, then)
			}
		}
	}
	if lost && delivery == 1 {
		delay = w.upTo(4 * timeout) // it may arrive after its client has given up
	}
	if !lost || delivery != 0 { // otherwise it never arrives
		w.flying++
		w.in(delay, func() {
			w.flying--
			if !h.down {
				w.arrive(h, q)
			}
		})
	}
	w.in(timeout, func() {
		if answered {
			return
		}
		answered = true
		if w.chance(w.c.retried) {
			r.Retried = true
			w.send(h, r, exec, then)
			return
		}
		w.note(r, []Record{{Answer: Answer{Code: Unknown}}}, then)
	})
}

// note records a call.
func (w *world) note(r Record, answers []Record, then func([]Record)) {
	for i := range answers {
		a := &answers[i]
		switch {
		case a.Code == Nope && r.Retried:
			a.Code = Unknown // the first transmission may have had an effect
			fallthrough
		case a.Code == Unknown || a.Code == Nope:
			code := a.Code
			*a = r
			a.Code = code
		}
		a.Client, a.Seq, a.CallNS, a.ReturnNS, a.Retried = r.Client, r.Seq, r.CallNS, w.now, r.Retried
		w.records = append(w.records, *a)
	}
	then(answers)
}

// one makes the exec function of a call on one task.
func one(r Record) func(*queue) []Record {
	return func(q *queue) []Record {
		r := r
		q.run(&r)
		return []Record{r}
	}
}

// act makes a client's next call.
func (w *world) act(c *client) {
	again := func() { w.in(w.upTo(20*ms), func() { w.act(c) }) }
	w.calm = w.left <= 0
	if w.calm {
		if w.worked() {
			return
		}
		w.work(c, again)
		return
	}
	w.left--
	switch p := w.rng.Float64(); {
	case p < 0.25 && w.enqueued < w.c.tasks:
		w.enqueued++
		w.produce(c, again)
	case p < 0.85:
		w.work(c, again)
	default:
		w.disrupt(c, again)
	}
}

// worked reports whether every task has ended, and no request in transit could change that.
func (w *world) worked() bool {
	if w.flying > 0 || w.asking > 0 {
		return false
	}
	for _, h := range w.shards {
		if len(h.waiting) > 0 {
			return false
		}
		for ; h.ended < len(h.order); h.ended++ {
			if !h.order[h.ended].ended() {
				return false
			}
		}
	}
	return true
}

func (w *world) hostOf(task string) *host {
	for _, h := range w.shards {
		if h.tasks[task] != nil {
			return h
		}
	}
	return w.shards[0]
}

func (w *world) anyHost() *host { return w.shards[w.rng.IntN(len(w.shards))] }

// produce enqueues a task, sometimes with a delay, with a key, or twice.
func (w *world) produce(c *client, then func()) {
	h := w.anyHost()
	n := w.made*64 + c.id
	r := Record{Op: Enqueue, Queue: "q", Payload: uint64(n)*2654435761 + 1, Args: Args{RequestID: fmt.Sprint("r", n),
		MaxAttempts: 1 + w.rng.IntN(4)}}
	if w.chance(0.3) {
		r.DelayUS = w.upTo(300_000)
	}
	if w.chance(0.1) {
		r.Key = fmt.Sprint("key", n)
	}
	w.call(c, h, r, one(r), func(got []Record) {
		if got[0].Code == Unknown && w.chance(0.7) || w.chance(0.1) {
			w.call(c, h, r, one(r), func([]Record) { then() })
			return
		}
		if w.chance(0.03) {
			r.Payload++
			w.call(c, h, r, one(r), func([]Record) { then() })
			return
		}
		then()
	})
}

// work claims, or continues with the claims that it has.
func (w *world) work(c *client, then func()) {
	if len(c.held) > 0 {
		held := c.held[0]
		c.held = c.held[1:]
		w.settle(c, held, then)
		return
	}
	h := w.anyHost()
	r := Record{Op: Claim, Queue: "q", Args: Args{ClaimKey: fmt.Sprint("c", c.id, ".", c.seq)}}
	n, lease := 1+w.rng.IntN(4), 50_000+w.upTo(400_000)
	exec := func(q *queue) []Record {
		q.tick()
		if got := q.claim(&r, n, lease); len(got) > 0 {
			return got
		}
		r := r
		r.Code = OK
		return []Record{r}
	}
	done := func(got []Record) {
		for _, g := range got {
			if g.Task != "" {
				c.held = append(c.held, g)
				c.past = append(c.past, g)
			}
		}
		then()
	}
	w.call(c, h, r, exec, func(got []Record) {
		if got[0].Code == Unknown && w.chance(0.5) || w.chance(0.02) {
			w.call(c, h, r, exec, done)
			return
		}
		done(got)
	})
}

// settle ends a claim in one of several ways.
func (w *world) settle(c *client, g Record, then func()) {
	h := w.hostOf(g.Task)
	r := Record{Op: Ack, Task: g.Task, Token: g.Token, Fence: g.Fence}
	switch p := w.rng.Float64(); {
	case w.calm || p < 0.60:
	case p < 0.80:
		r.Op = Fail
		r.Fall = []Fall{FallRetry, FallRetry, FallRetry, FallRetry, FallDead, FallDiscard}[w.rng.IntN(6)]
	case p < 0.85:
		r.Op = Release
		r.DelayUS = int64(w.rng.IntN(2)) * w.upTo(100_000)
	case p < 0.93:
		r.Op = Extend
		c.held = append(c.held, g)
	default: // the worker vanished
		then()
		return
	}
	send := func() {
		w.call(c, h, r, one(r), func(got []Record) {
			if got[0].Code == Unknown && w.chance(0.6) || w.chance(0.03) {
				w.call(c, h, r, one(r), func([]Record) { then() })
				return
			}
			then()
		})
	}
	if !w.calm && w.chance(0.15) {
		w.in(w.upTo(800*ms), send) // perhaps after the lease
		return
	}
	send()
}

// disrupt makes the calls of operators and confused workers.
func (w *world) disrupt(c *client, then func()) {
	h := w.anyHost()
	if len(h.order) == 0 {
		then()
		return
	}
	recent := h.order[max(0, len(h.order)-30):]
	t := recent[w.rng.IntN(len(recent))]
	r := Record{Op: Get, Task: t.id}
	switch p := w.rng.Float64(); {
	case p < 0.45:
	case p < 0.55:
		r.Op = Cancel
	case p < 0.65:
		r.Op = Retry
	case p < 0.68:
		r.Op = RunNow
	case p < 0.70:
		r.Op = Discard
	case len(c.past) > 0:
		g := c.past[w.rng.IntN(len(c.past))]
		r = Record{Op: []Op{Ack, Fail, Release, Extend}[w.rng.IntN(4)], Task: g.Task, Token: g.Token, Fence: g.Fence}
		h = w.hostOf(g.Task)
	}
	w.call(c, h, r, one(r), func([]Record) { then() })
}

// options are the options for checking a whole history.
func (w *world) options() Options {
	return Options{Final: w.final, Drained: true, DeadLetters: append([]string{}, w.dead...)}
}

func (w *world) clone() *world {
	c := *w
	c.records, c.final, c.dead = slices.Clone(w.records), slices.Clone(w.final), append([]string{}, w.dead...)
	return &c
}
