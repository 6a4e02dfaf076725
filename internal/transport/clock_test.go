package transport

import (
	"sync/atomic"
	"testing"
	"time"
)

// TestOffset: each node knows the offset of the others' clocks from its own, and soon notices when one is set.
func TestOffset(t *testing.T) {
	bubble(t, func(t *testing.T, net *network) {
		var ahead atomic.Int64
		b := start(t, net, member(2), func(c *Config) {
			c.Wall = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
		a := start(t, net, member(1))
		a.SetPeers(map[uint32]Address{2: {"n2", "n2"}, 3: {"nowhere", "n3"}})
		b.SetPeers(map[uint32]Address{1: {"n1", "n1"}})
		for _, set := range []time.Duration{700 * time.Millisecond, -time.Hour, 0} {
			ahead.Store(int64(set))
			pass(pingEvery + time.Millisecond)
			for n, want := range map[*node]time.Duration{a: set, b: -set} {
				if got, roundTrip, ok := n.Offset(3 - n.self.Number); !ok || got != want || roundTrip > time.Millisecond {
					t.Errorf("%s: offset %v, round trip %v, ok %t, want %v", n.name, got, roundTrip, ok, want)
				}
			}
		}
		for _, number := range []uint32{3, 9} {
			if _, _, ok := a.Offset(number); ok {
				t.Errorf("Offset returned a value for node %d, which never answered", number)
			}
		}
		net.cable("n2").silence(true)
		pass(clockFresh - pingEvery - time.Millisecond)
		if _, _, ok := a.Offset(2); !ok {
			t.Error("Offset returned no value although the last answer is younger than 10s")
		}
		pass(pingEvery + 2*time.Millisecond)
		if _, _, ok := a.Offset(2); ok {
			t.Error("Offset returned a value although the last answer is older than 10s")
		}
	})
}

func TestClock(t *testing.T) {
	const ms = time.Millisecond
	now := time.Now()
	for name, c := range map[string]struct {
		add         []sample
		offset, rtt time.Duration
	}{
		"the quickest":         {[]sample{{50 * ms, 100 * ms}, {3 * ms, 8 * ms}, {-30 * ms, 80 * ms}}, 3 * ms, 8 * ms},
		"of equals the latest": {[]sample{{1 * ms, 4 * ms}, {2 * ms, 4 * ms}}, 2 * ms, 4 * ms},
		"a clock that was set": {[]sample{{0, 2 * ms}, {500 * ms, 90 * ms}}, 500 * ms, 90 * ms},
		"of the last eight":    {append([]sample{{0, ms}}, repeat(sample{ms, 20 * ms}, 8)...), ms, 20 * ms},
		"the eighth from last": {append([]sample{{0, ms}}, repeat(sample{ms, 20 * ms}, 7)...), 0, ms},
	} {
		var k clock
		for _, s := range c.add {
			k.add(now, s)
		}
		if offset, rtt, ok := k.estimate(now.Add(clockFresh)); offset != c.offset || rtt != c.rtt || !ok {
			t.Errorf("%s: %v, %v, %t, want %v, %v", name, offset, rtt, ok, c.offset, c.rtt)
		}
		if _, _, ok := k.estimate(now.Add(clockFresh + 1)); ok {
			t.Errorf("%s: estimate returned a value from old answers", name)
		}
	}
}

func repeat(s sample, n int) (out []sample) {
	for range n {
		out = append(out, s)
	}
	return out
}
