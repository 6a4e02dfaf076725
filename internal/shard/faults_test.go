package shard

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// troubles are the faults that may happen to a group, with their weights. A fault lasts until the next one, or until "healed".
var troubles = []struct {
	weight int
	make   func(*world, *node)
}{
	{4, (*world).powerLoss}, {2, (*world).someLosePower}, {1, func(w *world, _ *node) { w.allLosePower() }},
	{3, (*world).stop}, {2, (*world).suspend},
	{2, (*world).cutOff}, {2, (*world).cutOneWay}, {2, (*world).cutLinks}, {2, (*world).bridgeCut}, {2, (*world).flap},
	{3, func(w *world, _ *node) { w.heal() }},
	{2, (*world).slowDisk}, {2, (*world).stuckDisk}, {3, (*world).sickDisk}, {4, (*world).clockJump},
}

// whatHappens lists what a batch of seeds must see of troubles.
var whatHappens = []string{
	"restart from a state", "torn writes", "power loss in a write", "some lose power", "all lose power", "paused", "suspended",
	"isolated", "cut one way", "links cut", "bridge", "link flaps", "slow disk", "disk fails", "disk hangs", "clock jump",
	"message repeated", "message repeated late",
	"round of several writes", "unknown outcome", "unknown outcome that happened", "refusal", "round without writes", "sent to the leader",
}

// rareSeeds is enough to also see "unknown outcome that did not happen", which one seed in three or four does.
const rareSeeds = 50

// disturb disturbs a node, its disk, its clock or the network; half of the time it picks the leader. All nodes are up
// afterwards.
func (w *world) disturb() {
	n := w.nodes[w.intn(len(w.nodes))]
	if leader, _ := n.alive().shard.Leader(); leader != 0 && w.intn(2) == 0 {
		n = w.nodes[uint32(leader)-1]
	}
	w.nextTrouble()(w, n)
}

// nextTrouble deals troubles from decks in which each occurs as often as its weight. A seed continues where the previous one ended,
// so that a few consecutive seeds see all of them.
func (w *world) nextTrouble() func(*world, *node) {
	var deck []func(*world, *node)
	for _, t := range troubles {
		deck = append(deck, slices.Repeat([]func(*world, *node){t.make}, t.weight)...)
	}
	at := int(w.seed)*fireSteps + w.dealt
	w.dealt++
	shuffle := rand.New(rand.NewPCG(uint64(at/len(deck)), 5))
	shuffle.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck[at%len(deck)]
}

// powerLoss cuts the power of a node in the middle of a write, for a while.
func (w *world) powerLoss(n *node) {
	l := n.alive()
	l.fuse.Store(int64(1 + w.intn(200)))
	l.untilPowerGoes(w.ms(2000))
	n.end(false)
	w.wait(w.ms(3000))
	n.start(0)
}

// someLosePower cuts the power of several nodes at the same time. They restart one after the other.
func (w *world) someLosePower(*node) {
	w.some.hit("some lose power")
	var down []*node
	for _, n := range w.nodes {
		if w.intn(2) == 0 {
			n.end(false)
			down = append(down, n)
		}
	}
	for _, n := range down {
		w.wait(w.ms(1500))
		n.start(0)
	}
}

func (w *world) allLosePower() {
	w.some.hit("all lose power")
	for _, n := range w.nodes {
		n.end(false)
	}
	for _, n := range w.nodes {
		n.start(0)
	}
}

// stop pauses a replica in the middle of a round, if it leads.
func (w *world) stop(n *node) {
	w.some.hit("paused")
	w.pause(n.alive(), w.ms(6000))
}

// suspend pauses a replica between two turns, like a machine that is suspended: messages and calls wait for it, and its
// clocks continue.
func (w *world) suspend(n *node) {
	w.some.hit("suspended")
	d := w.ms(6000)
	_ = n.alive().shard.runOnLoop(context.Background(), func(*loop) { w.wait(d) })
	w.wait(d)
}

func (w *world) cutOff(n *node) {
	w.some.hit("isolated")
	w.isolate(n.num, true, true)
}

func (w *world) cutOneWay(n *node) {
	w.some.hit("cut one way")
	in := w.intn(2) == 0
	w.isolate(n.num, in, !in)
}

func (w *world) cutLinks(*node) {
	w.some.hit("links cut")
	w.cutSome(10 + w.intn(50))
}

func (w *world) bridgeCut(*node) {
	w.some.hit("bridge")
	w.heal()
	w.bridge()
}

// flap isolates and reconnects a node many times.
func (w *world) flap(n *node) {
	w.some.hit("link flaps")
	for range 10 {
		w.isolate(n.num, true, true)
		w.wait(50*time.Millisecond + w.ms(450))
		w.isolate(n.num, false, false)
		w.wait(50*time.Millisecond + w.ms(450))
	}
}

// slowDisk makes each sync of a disk slow, for a while.
func (w *world) slowDisk(n *node) {
	w.some.hit("slow disk")
	l := n.alive()
	l.delay.Store(int64(50*time.Millisecond + w.ms(1500)))
	w.wait(w.ms(10_000))
	l.delay.Store(0)
}

// sickDisk makes a disk fail, stuckDisk makes it hang. The replica must end itself; then the machine loses power, and restarts.
func (w *world) sickDisk(n *node) { w.loseDisk(n, n.alive().failure()) }

func (w *world) stuckDisk(n *node) { w.loseDisk(n, &fault{hangs: true}) }

func (w *world) loseDisk(n *node, f *fault) {
	w.breakDisk(n.alive(), f)
	n.end(false)
	w.wait(w.ms(1000))
	n.start(0)
}

// clockJump sets a node's wall clock wrong, or right again.
func (w *world) clockJump(n *node) {
	w.some.hit("clock jump")
	most := []time.Duration{0, time.Second, time.Minute, 2 * time.Hour}[w.intn(4)]
	n.wall.Store(int64(time.Duration(w.intn(2001)-1000) * most / 1000))
}

// underFire lets faults happen while clients work, then heals everything, and checks that all data is there and identical everywhere.
func (w *world) underFire(clients, steps int) {
	for _, n := range w.nodes {
		n.start(0)
	}
	cs := w.clients(clients)
	stop := make(chan struct{})
	wg := runAll(cs, stop)
	for range steps {
		w.disturb()
		w.wait(w.ms(2000))
	}
	close(stop)
	wg.Wait()
	w.heal()
	w.settle(cs)
	w.compare()
	w.endAll()
}

// Three nodes lose power, messages, disks and contact with each other, and their clocks jump.
func TestThreeReplicas(t *testing.T) {
	eachSeed(t, threeSeeds, seenBy(threeSeeds), func(t *testing.T, seed uint64, some *sometimes) {
		newWorld(t, seed, 3, some).underFire(6, fireSteps)
	})
}

// The same with five nodes, of which two may be down.
func TestFiveReplicas(t *testing.T) {
	eachSeed(t, fiveSeeds, seenBy(fiveSeeds), func(t *testing.T, seed uint64, some *sometimes) {
		newWorld(t, seed, 5, some).underFire(6, fireSteps)
	})
}

// seenBy returns what that many seeds must have seen: a few can't see everything.
func seenBy(seeds int) []string {
	switch n := seedCount(seeds); {
	case n < 4:
		return nil
	case n < rareSeeds:
		return whatHappens
	}
	return append(slices.Clip(whatHappens), "unknown outcome that did not happen")
}

// Two halves that only one node connects still have a leader that a majority hears from, and keep it.
func TestBridge(t *testing.T) {
	eachSeed(t, bridgeSeeds, nil, func(t *testing.T, seed uint64, some *sometimes) {
		w := newWorld(t, seed, 3+2*int(seed%2), some)
		for _, n := range w.nodes {
			n.start(0)
		}
		cs := w.clients(1)
		stop := make(chan struct{})
		wg := runAll(cs, stop)
		w.leader()
		w.bridge()
		before := w.newest.Load()
		w.wait(settleLimit)
		led, answered := w.terms.count(), w.newest.Load()
		if answered == before {
			w.errorf("no answer for %v after the cut", settleLimit)
		}
		w.wait(30 * time.Second)
		if changes := w.terms.count() - led; changes > 3 {
			w.errorf("the leader changed %d times in 30 s", changes)
		}
		if w.newest.Load() < answered+100 {
			w.errorf("only %d entries in 30 s", w.newest.Load()-answered)
		}
		close(stop)
		wg.Wait()
		w.heal()
		w.settle(cs)
		w.compare()
		w.endAll()
	})
}
