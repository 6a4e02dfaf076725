package forward_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
)

// outside is a group in which node 1 has no replica of shard 1, so it asks the others.
func outside(t *testing.T, n int, test func(g *group, p *peer)) {
	t.Helper()
	inGroup(t, n, func(g *group) {
		for _, p := range g.nodes {
			p.replicas[1] = p.replicas[1][1:]
		}
		test(g, g.nodes[1])
	})
}

// sinceOf returns since when, according to an error, no leader was found.
func sinceOf(t *testing.T, err error) time.Time {
	t.Helper()
	var none *forward.NoLeader
	if !errors.As(err, &none) {
		t.Errorf("got %v, want an error about a missing leader", err)
		return time.Time{}
	}
	return none.Reason().Since.Time()
}

// A search asks the leader by the last hint, by this node's replica and by what was last seen, then this node's own replica, then the
// others in turn; no node twice between two pauses.
func TestSearchOrder(t *testing.T) {
	inGroup(t, 4, func(g *group) {
		p := g.nodes[1]
		for n := range uint32(4) {
			g.fails(n+1, &broker.NotLeader{Shard: 1})
		}
		ctx, cancel := context.WithTimeout(bg, 30*time.Millisecond) // no time for a second round
		defer cancel()
		search := func() string {
			_, err := p.once.Call(ctx, one)
			refusedWith(t, "call without a leader", err, task.ErrUnavailable, "within the caller's deadline")
			g.messages()
			return strings.ReplaceAll(g.jobs(), "once@", "")
		}
		same(t, "with nothing known", search(), "1 2 3 4")
		g.with(func() { p.replicas[1] = []uint32{4, 2, 1, 3} })
		same(t, "with the own replica among the others", search(), "1 4 2 3")
		g.with(func() { p.replicas[1] = []uint32{1, 2, 3, 4} })
		g.knows(1, 3)
		same(t, "with a leader by the replica", search(), "3 1 2 4")
		p.LeadsNoMore(9, broker.NotLeader{Shard: 1, Node: 4})
		same(t, "with another one by hearsay", search(), "3 4 1 2")
		g.fails(3, &broker.NotLeader{Shard: 1, Node: 2})
		same(t, "with a hint", search(), "3 2 1 4") // node 4 has said that it does not lead
		g.fails(2, &broker.NotLeader{Shard: 1, Node: 3})
		same(t, "with hints in a circle", search(), "3 2 1 4")
		g.with(func() { p.replicas[1] = []uint32{2, 4} })
		same(t, "without a replica", search(), "3 2 4")
		g.with(func() { p.replicas[1], p.leads[1] = nil, 0 })
		same(t, "without a map", search(), "1")
	})
}

// A node that ran a call, or refused it, is asked first the next time. One that no longer leads is forgotten, if it was the one.
func TestLeaderIsRemembered(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		after string // messages of the next call
	}{
		{"an answer", nil, "once>4"},
		{"a refusal", task.Invalid("id", "is odd"), "once>4"},
		{"an internal error", errors.New("disk broke"), "once>4"},
		{"an unknown outcome", broker.Unknown("lost"), "once>2 once>3 once>4"},
	} {
		outside(t, 4, func(g *group, p *peer) {
			g.fails(4, c.err)
			_, _ = p.once.Call(bg, one)
			same(t, c.name+", first", g.messages(), "once>2 once>3 once>4")
			g.fails(4, nil)
			_, err := p.once.Call(bg, one)
			same(t, c.name+", error", text(err), "")
			same(t, c.name+", next", g.messages(), c.after)

			// The leader moves to node 2, then to node 3.
			g.fails(4, &broker.NotLeader{Shard: 1, Node: 2})
			g.knows(2, 2)
			for _, want := range []string{"once>4 once>2", "once>2"} {
				_, _ = p.once.Call(bg, one)
				same(t, c.name+", moved", g.messages(), want)
			}
			same(t, "leader", p.LeaderOf(1), 2)
			g.knows(2, 0)
			g.fails(3, nil)
			for _, want := range []string{"once>2 once>3", "once>3"} {
				_, _ = p.once.Call(bg, one)
				same(t, c.name+", forgotten", g.messages(), want)
			}
		})
	}
}

// Between rounds a search pauses: for 5 to 10 ms at first, twice as long each time, up to 250 ms. It ends after 10 seconds.
func TestSearchPauses(t *testing.T) {
	outside(t, 3, func(g *group, p *peer) {
		var asked []time.Time
		g.network = func(_ context.Context, to uint32, deliver func() ([]byte, error)) ([]byte, error) {
			if to == 2 {
				asked = append(asked, time.Now())
			}
			return deliver()
		}
		began := time.Now()
		_, err := p.once.Call(bg, one)
		refusedWith(t, "call without a leader", err, task.ErrUnavailable,
			`shard 1 has no leader that answered: node "n2" knows no leader; node "n3" knows no leader`)
		same(t, "time", time.Since(began), forward.SearchTime)
		most, shorter := 10*time.Millisecond, false
		for i := range asked[1:] {
			pause, last := asked[i+1].Sub(asked[i]), i+2 == len(asked)
			if pause >= most || pause < most/2 && !last {
				t.Errorf("pause %d lasted %s, want %s to %s", i, pause, most/2, most)
			}
			shorter = shorter || pause < most*3/4
			most = min(2*most, 250*time.Millisecond)
		}
		if !shorter || len(asked) < 40 || len(asked) > 90 {
			t.Errorf("%d rounds, with pauses in the lower half of their range: %v", len(asked), shorter)
		}
		same(t, "messages", len(strings.Fields(g.messages())), 2*len(asked))
	})
}

// A search ends while there is time to say so, or at once if the caller or the node gives up.
func TestSearchEnds(t *testing.T) {
	const round = "once>2 once>3"
	for _, c := range []struct {
		deadline time.Duration
		messages string
	}{{60 * time.Millisecond, round + " " + round}, {60*time.Millisecond - 1, round}, {time.Millisecond, round}} {
		outside(t, 3, func(g *group, p *peer) {
			began := time.Now()
			ctx, cancel := context.WithTimeout(bg, c.deadline)
			defer cancel()
			_, err := p.once.Call(ctx, one)
			refusedWith(t, "call with a deadline", err, task.ErrUnavailable,
				`shard 1 has no leader that answered within the caller's deadline: node "n2" `)
			same(t, fmt.Sprintf("messages within %s", c.deadline), g.messages(), c.messages)
			if time.Since(began) > 10*time.Millisecond || ctx.Err() != nil {
				t.Errorf("a call with %s of time ended after %s", c.deadline, time.Since(began))
			}
			same(t, "leaderless", p.LeaderOf(1), 0)
		})
	}
	outside(t, 3, func(_ *group, p *peer) { // long enough for many rounds
		began := time.Now()
		ctx, cancel := context.WithTimeout(bg, 3*time.Second)
		defer cancel()
		_, err := p.once.Call(ctx, one)
		refusedWith(t, "call with a deadline", err, task.ErrUnavailable, "within the caller's deadline")
		if took := time.Since(began); took < 3*time.Second-300*time.Millisecond || took > 3*time.Second-50*time.Millisecond {
			t.Errorf("a call with 3s of time ended after %s", took)
		}
	})
	outside(t, 3, func(g *group, p *peer) {
		began := time.Now()
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(2*time.Second, cancel)
		_, err := p.once.Call(ctx, one)
		refusedWith(t, "cancelled call", err, task.ErrUnavailable, "within the caller's deadline")
		same(t, "time until a cancelled call ends", time.Since(began), 2*time.Second)
		g.messages()
		_, err = p.once.Call(ctx, one)
		same(t, "call that is over", text(err), "shard 1 has no known leader, and no node could be asked within the caller's deadline")
		_, err = p.once.Call(ctx, job{})
		same(t, "call that is over", text(err), "the system shard has no known leader, and no node could be asked within the "+
			"caller's deadline")
		same(t, "messages", g.messages(), "")
	})
	outside(t, 3, func(g *group, p *peer) {
		began := time.Now()
		time.AfterFunc(2*time.Second, p.Close)
		_, err := p.once.Call(bg, one)
		refusedWith(t, "call at a node that stops", err, task.ErrUnavailable,
			`no leader that answered, and this node is stopping: node "n2" `)
		same(t, "time until the node stops", time.Since(began), 2*time.Second)
		g.messages()
		_, err = p.once.Call(bg, one)
		same(t, "call at a node that has stopped", text(err),
			"shard 1 has no known leader, and no node could be asked, and this node is stopping")
		same(t, "messages", g.messages(), "")
	})
}

// A caller whose deadline allows another round is not told that it was too short.
func TestErrorWithTimeLeft(t *testing.T) {
	for _, c := range []struct {
		left  time.Duration
		blame bool
	}{{300 * time.Millisecond, true}, {301 * time.Millisecond, false}} {
		outside(t, 2, func(_ *group, p *peer) {
			ctx, cancel := context.WithTimeout(bg, forward.LeaderlessTime+c.left)
			defer cancel()
			_, err := p.once.WithPatience(forward.LeaderlessTime).Call(ctx, one)
			if err == nil || strings.Contains(err.Error(), "within the caller's deadline") != c.blame {
				t.Errorf("with %s left: %v; blames the deadline: want %v", c.left, err, c.blame)
			}
		})
	}
}

// Once a call has looked for 10 seconds in vain, the next ones look for half a second each, until a leader is seen. They say since when
// there is none.
func TestCallsWithoutLeaderAreShort(t *testing.T) {
	outside(t, 3, func(g *group, p *peer) {
		search := func(caller caller, want time.Duration, since time.Time) {
			t.Helper()
			began := time.Now()
			_, err := caller.Call(bg, one)
			refusedWith(t, "call without a leader", err, task.ErrUnavailable)
			same(t, "time of the search", time.Since(began), want)
			same(t, "no leader since", sinceOf(t, err).Sub(since), 0)
		}
		brief := p.once.WithPatience(2 * time.Second)
		search(brief, 2*time.Second, time.Now()) // which does not shorten the others
		routertest.Pass(time.Minute)
		first := time.Now()
		search(p.once, forward.SearchTime, first)
		routertest.Pass(time.Minute)
		search(p.once, forward.LeaderlessTime, first)
		search(brief, forward.LeaderlessTime, first)
		search(p.once.WithPatience(time.Millisecond), time.Millisecond, first)
		p.LeadsNoMore(3, broker.NotLeader{Shard: 1, Node: 2}) // hearsay is no leader
		search(p.once, forward.LeaderlessTime, first)

		g.with(func() { p.leads[2] = 0; p.replicas[2] = []uint32{2} })
		_, err := p.once.WithPatience(time.Second).Call(bg, job{Shard: 2}) // another shard
		if since := time.Since(sinceOf(t, err)); since != time.Second {
			t.Errorf("shard 2 has no leader since %s ago, want 1s", since)
		}
		g.knows(3, 3)
		for range 2 {
			_, err := p.once.Call(bg, one)
			same(t, "error", text(err), "")
		}
		g.knows(3, 0)
		search(p.once, forward.SearchTime, time.Now())

		// The leader is back where it was when it was last seen.
		p.LeadsNoMore(9, broker.NotLeader{Shard: 1, Node: 3})
		g.knows(3, 3)
		_, err = p.once.Call(bg, one)
		same(t, "error", text(err), "")
		g.knows(3, 0)
		search(p.once, forward.SearchTime, time.Now())
	})
}

// A node that has kept a call for a second was the leader: the search starts over.
func TestSearchRestarts(t *testing.T) {
	for _, kept := range []time.Duration{time.Second, time.Second - 1} {
		outside(t, 3, func(g *group, p *peer) {
			began := time.Now()
			ends := forward.SearchTime
			g.runs(2, func(context.Context, job) (string, error) {
				if time.Since(began) >= 5*time.Second {
					routertest.Pass(kept)
					g.fails(2, &broker.NotLeader{Shard: 1})
					g.messages()
					if kept >= time.Second {
						ends = time.Since(began) + forward.SearchTime
					}
					time.AfterFunc(5*time.Millisecond-1, func() {
						again := "once>3"
						if kept >= time.Second {
							again = "once>2 once>3"
						}
						same(t, "messages after it answered", g.messages(), again)
					})
				}
				return "", &broker.NotLeader{Shard: 1}
			})
			_, err := p.once.Call(bg, one)
			refusedWith(t, "call without a leader", err, task.ErrUnavailable)
			same(t, fmt.Sprintf("time of a search in which a node kept the call for %s", kept), time.Since(began), ends)
			if kept >= time.Second && len(strings.Fields(g.messages())) < 2*40 {
				t.Error("the pauses did not start over")
			}
		})
	}
}

// A call that finds no leader on a node that has not heard from its cluster for a while is refused as by a node that is
// not ready, so that its client goes to another one.
func TestNoLeaderAtANodeThatIsCutOff(t *testing.T) {
	for age, want := range map[time.Duration]string{0: "", forward.CutOffAfter: "", forward.CutOffAfter + 1: task.ReasonNotReady} {
		outside(t, 3, func(g *group, p *peer) {
			g.with(func() { p.age = age })
			g.network = refuse(errNotSent, 2, 3)
			_, err := p.once.Call(bg, one)
			if e, ok := task.AsError(err); !ok || e.Code != task.CodeUnavailable || e.Reason != want ||
				e.RetryAfter != forward.NoLeaderRetry {
				t.Errorf("with a map that is %s old: %#v, want reason %q", age, err, want)
			}
			sinceOf(t, err)
			g.with(func() { g.network = nil })
			g.lead(1, 3)
			got, err := p.once.Call(bg, one)
			same(t, "with a leader", got+text(err), "done by 3")
		})
	}
}

// The error names each node that answered once, with its last answer.
func TestErrorListsAnswers(t *testing.T) {
	inGroup(t, 4, func(g *group) {
		p := g.nodes[1]
		g.fails(2, &broker.NotLeader{Shard: 1, Node: 9})
		g.fails(3, &broker.NotLeader{Shard: 1, Node: 4})
		g.network = refuse(fmt.Errorf("call node 4: tls: %w", fmt.Errorf("%w: %s", errNotSent, strings.Repeat("x", 300))), 4)
		_, err := p.once.Call(bg, one)
		long := `node "n4" does not answer (` + strings.Repeat("x", 200-len("does not answer ("))
		refusedWith(t, "call without a leader", err, task.ErrUnavailable, "shard 1 has no leader that answered: ",
			`node "n1" knows no leader`, `node "n2" says node number 9 leads`, `node "n3" says node "n4" leads`,
			"node number 9 does not answer (refused)", long)
		same(t, "answers", strings.Count(err.Error(), "; "), 4)
		same(t, "the long one is cut", strings.Contains(err.Error(), long+"x"), false)
		var none *forward.NoLeader
		if e, ok := task.AsError(err); !ok || e.RetryAfter != forward.NoLeaderRetry || !errors.As(err, &none) {
			t.Fatalf("call without a leader: %#v", err)
		}
		why := none.Reason()
		if why.Code != task.WhyNoLeader || why.Change == "" || !strings.HasPrefix(why.Detail, err.Error()+"; none was found since "+
			why.Since.Time().Format(time.RFC3339)) {
			t.Errorf("reason %+v", why)
		}

		ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
		defer cancel()
		p.system = 2
		g.network = refuse(errNotSent, 2, 3, 4)
		g.fails(1, &broker.NotLeader{})
		_, err = p.once.Call(ctx, job{})
		refusedWith(t, "call without a system shard", err, task.ErrUnavailable,
			`the system shard has no leader that answered within the caller's deadline: node "n2" does not answer (refused); node "n1" `)
	})
}
