package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
)

// Each client increments its own counter, and adds to a sum shared by all, in one call. It knows the bounds of its counter:
// answered calls took effect, refused ones did not, unknown ones may have.

var sumKey = []byte("sum")

type client struct {
	w      *world
	key    []byte
	lo, hi uint64
	node   int        // tried first
	last   Stamp      // of the last answer
	wrote  store.Time // of the last answered write
}

var errRefused = errors.New("refused")

func (w *world) clients(n int) []*client {
	var cs []*client
	for i := range n {
		cs = append(cs, &client{w: w, key: fmt.Appendf(nil, "counter %d", i)})
	}
	return cs
}

// runAll runs all clients until stop is closed.
func runAll(cs []*client, stop chan struct{}) *sync.WaitGroup {
	var wg sync.WaitGroup
	for _, c := range cs {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(c.w.ms(20)):
					c.act()
				}
			}
		})
	}
	return &wg
}

// act makes one call on the node that led last, or on any other.
func (c *client) act() {
	if c.w.intn(4) == 0 {
		c.node = c.w.intn(len(c.w.nodes)) // perhaps a former leader that still believes it leads
	}
	n := c.w.nodes[c.node]
	l := n.alive()
	if l == nil {
		c.node = c.w.intn(len(c.w.nodes))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if c.w.intn(20) == 0 { // a caller in a hurry
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), c.w.ms(3)+time.Microsecond)
		defer cancel()
	}
	switch k := c.w.intn(20); {
	case k < 12:
		c.count(ctx, l, 0)
	case k < 13:
		c.count(ctx, l, 3000) // exceeds what a round gathers
	case k < 16:
		c.look(ctx, l)
	case k < 18:
		c.beRefused(ctx, l)
	case k < 19:
		c.misbehave(ctx, l)
	default:
		c.writeTooMuch(ctx, l)
	}
}

// host returns the machine that the client tries, or another one if that is down. One must be up.
func (c *client) host() *life {
	for c.w.nodes[c.node].alive() == nil {
		c.node = c.w.intn(len(c.w.nodes))
	}
	return c.w.nodes[c.node].alive()
}

// outcome interprets an error of a write. It switches the client to another node if there is a better one.
func (c *client) outcome(l *life, err error) (done, maybe bool) {
	var no *NotLeader
	if errors.Is(err, context.DeadlineExceeded) {
		c.node = c.w.intn(len(c.w.nodes)) // this one may hang
	}
	switch {
	case errors.As(err, &no) || errors.Is(err, ErrStopped):
		c.node = c.w.intn(len(c.w.nodes))
		if no != nil && no.Leader != 0 {
			c.node = int(uint32(no.Leader) - 1)
			c.w.some.hit("sent to the leader")
		}
		return false, false
	case errors.Is(err, ErrUnknown):
		c.w.some.hit("unknown outcome")
		return false, true
	case errors.Is(err, context.DeadlineExceeded):
		c.w.some.hit("left while waiting")
		return false, false
	case err != nil:
		c.w.errorf("%s: %v", c.key, err)
		return false, true
	case l.dead.Load():
		return false, true // the answer may have come after the power loss
	}
	return true, false
}

// count increments the client's counter and the sum.
func (c *client) count(ctx context.Context, l *life, ballast int) {
	before := c.w.moment()
	c.hi++
	got, at, err := Update(ctx, l.shard, func(tx *store.Tx) (uint64, error) {
		v := number(tx, c.key) + 1
		tx.Set(c.key, fmt.Appendf(nil, "%d%s", v, strings.Repeat(" ", ballast)))
		tx.Set(fmt.Appendf(nil, "past %s %d", c.key, v%256), fmt.Appendf(nil, "%d", v)) // a row that is not soon overwritten
		tx.Set(sumKey, fmt.Appendf(nil, "%d", number(tx, sumKey)+1))
		n, _ := tx.Local.(uint64)
		tx.Local = n + 1
		return v, nil
	})
	done, maybe := c.outcome(l, err)
	switch {
	case done:
		if got <= c.lo || got > c.hi {
			c.w.errorf("%s: counted to %d, which must be in (%d, %d]", c.key, got, c.lo, c.hi)
		}
		c.lo, c.hi = got, got
		c.seen(at, before, true)
	case !maybe:
		c.hi--
	}
}

// moment is the start of a call, and the highest index that was answered before.
type moment struct {
	index uint64
	at    time.Time
}

func (w *world) moment() moment { return moment{w.newest.Load(), time.Now()} }

// seen checks that answers arrive in the order of the log, and that the shard's time passes like true time.
func (c *client) seen(at Stamp, before moment, wrote bool) {
	if at.Index < before.index || wrote && at.Index == before.index {
		c.w.errorf("%s: answer at index %d, though %d was answered before the call", c.key, at.Index, before.index)
	}
	c.w.terms.saw(c.w, at, before.at)
	last := c.wrote // a new leader doesn't know times that no entry has
	if at.Term == c.last.Term {
		last = c.last.Time
	}
	if at.Time < last {
		c.w.errorf("%s: time fell from %d to %d", c.key, last, at.Time)
	}
	c.last = at
	if wrote {
		c.wrote = at.Time
		if t, ok := c.w.history.LoadOrStore(at.Index, at.Time); ok && t != at.Time {
			c.w.errorf("index %d has times %v and %v", at.Index, t, at.Time)
		}
	}
	for {
		old := c.w.newest.Load()
		if at.Index <= old || c.w.newest.CompareAndSwap(old, at.Index) {
			return
		}
	}
}

type picture struct{ mine, sum, counters uint64 }

func (c *client) look(ctx context.Context, l *life) {
	before := c.w.moment()
	got, at, err := View(ctx, l.shard, func(r store.Reader) (picture, error) { return c.picture(r), nil })
	if done, _ := c.outcome(l, err); done {
		c.check(got)
		c.seen(at, before, false)
	}
}

func (c *client) picture(r store.Reader) (p picture) {
	p.mine, p.sum = number(r, c.key), number(r, sumKey)
	r.Scan([]byte("counter"), []byte("counter~"), func(k, _ []byte) bool {
		p.counters += number(r, k)
		return true
	})
	return p
}

func (c *client) check(got picture) {
	if got.mine < c.lo || got.mine > c.hi {
		c.w.errorf("%s: is %d, must be in [%d, %d]", c.key, got.mine, c.lo, c.hi)
	}
	if got.sum != got.counters {
		c.w.errorf("the sum is %d, the counters make %d", got.sum, got.counters)
	}
	if got.mine > c.lo {
		c.w.some.hit("unknown outcome that happened")
	} else if c.hi > c.lo {
		c.w.some.hit("unknown outcome that did not happen")
	}
	c.lo = got.mine
}

// beRefused reads in a refused update: the refusal must be as fresh as a view.
func (c *client) beRefused(ctx context.Context, l *life) {
	before := c.w.moment()
	var got picture
	p := make(chan picture, 8)
	_, at, err := Update(ctx, l.shard, func(tx *store.Tx) (struct{}, error) {
		p <- picture{mine: number(tx, c.key)}
		return struct{}{}, errRefused
	})
	if !errors.Is(err, errRefused) {
		c.outcome(l, err)
		return
	}
	for len(p) > 0 {
		got = <-p
	}
	if l.dead.Load() {
		return
	}
	c.w.some.hit("refusal")
	if got.mine < c.lo || got.mine > c.hi {
		c.w.errorf("%s: refused on %d, must be in [%d, %d]", c.key, got.mine, c.lo, c.hi)
	}
	c.seen(at, before, false)
}

// misbehave breaks the rules for calls. None of it may be kept or noticed by others.
func (c *client) misbehave(ctx context.Context, l *life) {
	panics := c.w.intn(2) == 0
	_, _, err := Update(ctx, l.shard, func(tx *store.Tx) (struct{}, error) {
		tx.Set(c.key, []byte("999999999"))
		if panics {
			panic("on purpose")
		}
		return struct{}{}, errRefused
	})
	var p *PanicError
	if errors.As(err, &p) {
		c.w.some.hit("misbehaving call")
		return
	}
	if done, _ := c.outcome(l, err); done {
		c.w.errorf("a call that misbehaves was answered")
	}
}

func (c *client) writeTooMuch(ctx context.Context, l *life) {
	_, _, err := Update(ctx, l.shard, func(tx *store.Tx) (struct{}, error) {
		tx.Set(c.key, make([]byte, 7000))
		return struct{}{}, nil
	})
	if errors.Is(err, ErrTooLarge) {
		c.w.some.hit("call too large")
		return
	}
	if done, _ := c.outcome(l, err); done {
		c.w.errorf("a call that writes too much was answered")
	}
}

// settleLimit is how long a group may take to answer every client once everything is healed: ten election timeouts.
const settleLimit = 20 * time.Second

// settle waits until the group answers, and checks every counter. If it is a single node that loses power meanwhile, settle gives up:
// no answer would count.
func (w *world) settle(cs []*client) {
	healed := time.Now()
	for _, c := range cs {
		for {
			if since := time.Since(healed); since > settleLimit {
				w.errorf("no answer for %v after all was healed", since)
				return
			}
			l := c.host()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			got, _, err := View(ctx, l.shard, func(r store.Reader) (picture, error) { return c.picture(r), nil })
			cancel()
			if done, _ := c.outcome(l, err); done {
				c.check(got)
				break
			}
			if len(w.nodes) == 1 && l.dead.Load() {
				return
			}
			w.wait(100 * time.Millisecond)
		}
	}
	w.checkTimes()
}

// checkTimes checks that the shard's time never decreases from one index to a later one.
func (w *world) checkTimes() {
	last := store.Time(0)
	for i := range w.newest.Load() + 1 {
		if t, ok := w.history.Load(i); ok {
			if t.(store.Time) < last {
				w.errorf("time falls to %d at index %d, from %d", t, i, last)
			}
			last = t.(store.Time)
		}
	}
}

// One node loses power again and again, at any moment.
func TestPowerLoss(t *testing.T) {
	whats := []string{
		"restart from a state", "torn writes", "power loss at rest", "power loss in a write", "round of several writes",
		"unknown outcome that happened", "unknown outcome that did not happen", "refusal", "misbehaving call",
		"call too large", "clean stop", "log cut", "entries replayed", "disk fails", "disk hangs",
	}
	eachSeed(t, powerSeeds, whats, func(t *testing.T, seed uint64, some *sometimes) {
		w := newWorld(t, seed, 1, some)
		n := w.nodes[0]
		cs := w.clients(8)
		for life := range 12 {
			quiet := life == int(seed%12) // a clean stop
			fuse := 1 + w.intn(60)
			if w.intn(2) == 0 {
				fuse = 1 + w.intn(1500)
			}
			sick := w.intn(6) == 0 && !quiet
			if sick || quiet {
				fuse = 0
			}
			n.start(fuse)
			l := n.alive()
			w.noteRestart(l)
			if !l.dead.Load() {
				w.settle(cs)
			}
			stop := make(chan struct{})
			wg := runAll(cs, stop)
			clean := false
			if sick {
				w.wait(w.ms(2000))
				w.breakDisk(l, l.someFault())
			} else {
				l.untilPowerGoes(w.ms(8000))
				if clean = !l.dead.Load() && (quiet || w.intn(4) == 0); clean {
					some.hit("clean stop")
					l.fuse.Store(0)
				}
			}
			n.end(clean)
			close(stop)
			wg.Wait()
		}
		n.start(0)
		w.settle(cs)
		n.end(true)
	})
}

func (w *world) noteRestart(l *life) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, at, err := View(ctx, l.shard, func(store.Reader) (struct{}, error) { return struct{}{}, nil })
	if err != nil {
		return
	}
	durable, err := l.state.Durable()
	if err != nil {
		w.errorf("%v", err)
	}
	if at.Index > durable.Index+1 {
		w.some.hit("entries replayed")
	}
	if durable.Index > 1 {
		w.some.hit("log cut")
	}
}

// A leader that was paused while the others elected another still believes that it leads when it resumes. Calls that waited for it
// meanwhile must not be answered from its old state, neither views nor refusals.
func TestPausedLeaderAnswersNothingStale(t *testing.T) {
	eachSeed(t, 10, []string{"old leader asked"}, func(t *testing.T, seed uint64, some *sometimes) {
		w := newWorld(t, seed, 3, some)
		for _, n := range w.nodes {
			n.start(0)
		}
		c := w.clients(1)[0]
		w.countOnce(c)
		old := w.nodes[c.node].alive()
		var wg sync.WaitGroup
		wg.Go(func() { w.pause(old, 8*time.Second) })
		w.wait(5 * time.Second)
		c.node = int(old.id) % 3 // another
		w.countOnce(c)
		if w.nodes[c.node] != old.node {
			some.hit("old leader asked")
		}
		for range 3 {
			wg.Go(func() { (&client{w: w, key: c.key, lo: c.lo, hi: c.hi}).look(context.Background(), old) })
			wg.Go(func() { (&client{w: w, key: c.key, lo: c.lo, hi: c.hi}).beRefused(context.Background(), old) })
		}
		wg.Wait()
		for _, n := range w.nodes {
			n.end(true)
		}
	})
}

// countOnce retries until a count is answered.
func (w *world) countOnce(c *client) {
	for was := c.lo; c.lo == was; w.wait(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		c.count(ctx, c.host(), 0)
		cancel()
	}
}

// pause holds a replica like a stopped process, and lets clients queue up meanwhile: when it resumes, it may still
// believe that it is the leader.
func (w *world) pause(l *life, d time.Duration) {
	_, _, _ = Update(context.Background(), l.shard, func(*store.Tx) (struct{}, error) {
		w.wait(d)
		return struct{}{}, errRefused
	})
}

// compare waits until all replicas have applied the same entries, and checks that they hold the same rows. The network is calm
// meanwhile: a snapshot that is cut again and again would come maxResend later each time.
func (w *world) compare() {
	defer w.setCalm(w.setCalm(true))
	const limit = maxResend + 5*time.Second
	for range limit / (100 * time.Millisecond) {
		w.wait(100 * time.Millisecond)
		first := w.nodes[0].alive().state.Applied()
		same := true
		for _, n := range w.nodes {
			same = same && n.alive().state.Applied().Index == first.Index
		}
		if !same {
			continue
		}
		want := w.nodes[0].dump()
		for _, n := range w.nodes[1:] {
			if got := n.dump(); got != want {
				w.errorf("at index %d, node %d holds\n%s, node 1 holds\n%s", first.Index, n.id, got, want)
			}
		}
		return
	}
	all := ""
	for _, later := range []time.Duration{0, 5 * time.Minute} { // to see who is slow, and who stands still
		w.wait(later)
		for _, n := range w.nodes {
			is, err := n.alive().shard.Status(context.Background())
			all += fmt.Sprintf("\nafter another %v, node %d: %+v, %v", later, n.num, is, err)
		}
	}
	w.errorf("the replicas did not come to the same index in %v:%s", limit, all)
}

// dump returns all rows, and the position.
func (n *node) dump() string {
	var b strings.Builder
	state := n.alive().state
	pos := state.Applied()
	fmt.Fprintf(&b, "%d %d %d %x\n", pos.Index, pos.Term, pos.Time, pos.Conf)
	state.Scan([]byte{0x01}, []byte{0xff}, func(k, v []byte) bool {
		fmt.Fprintf(&b, "%q=%q\n", k, v)
		return true
	})
	return b.String()
}
