package forward_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
)

// A call that hangs at a node ends when this node's replica has named a third one as leader for a while.
func TestCallAtDeposedLeaderEnds(t *testing.T) {
	const check, grace = forward.RemoteCheckEvery, forward.DeposedGrace
	for _, c := range []struct {
		name   string
		before uint32         // the leader according to this node's replica when the call begins
		then   map[int]uint32 // and later, by the number of checks since
		ends   int            // by the number of checks; 0: it does not
		reads  string         // messages of a call that may be repeated
	}{
		{"nothing changes", 2, nil, 0, ""},
		{"a new leader", 2, map[int]uint32{3: 3}, 5, "safe>2 safe>3"},
		{"none for a while", 2, map[int]uint32{1: 0, 5: 3}, 7, "safe>2 safe>3"},
		{"none", 2, map[int]uint32{1: 0}, 0, ""},
		{"back in time", 2, map[int]uint32{1: 3, 3: 2}, 0, ""},
		{"back, and gone again", 2, map[int]uint32{1: 3, 2: 2, 3: 3}, 5, "safe>2 safe>3"},
		{"an outdated replica", 3, nil, 0, ""},
		{"an outdated replica that learns", 3, map[int]uint32{2: 2}, 0, ""},
		{"from one to another", 2, map[int]uint32{1: 3, 2: 4}, 3, ""},
		{"an outdated replica that learns of a third", 3, map[int]uint32{2: 4}, 4, ""},
	} {
		inGroup(t, 4, func(g *group) {
			p := g.nodes[1]
			g.lead(1, 3)
			g.network = hang(2)
			g.knows(1, 2)
			began := time.Now()
			for at, leader := range c.then {
				time.AfterFunc(time.Duration(at)*check-1, func() { g.knows(1, leader) })
			}
			ctx, cancel := context.WithTimeout(bg, time.Hour)
			defer cancel()
			ended, read := make(chan error, 1), make(chan error, 1)
			if c.before == 3 { // by hearsay node 2 leads, and node 3 can't be reached
				g.fails(3, &broker.NotLeader{Shard: 1, Node: 2})
			}
			g.knows(1, c.before)
			g.fails(4, nil)
			call := func(caller caller, ended chan error) {
				_, err := caller.Call(ctx, one)
				ended <- err
			}
			go call(p.once, ended)
			synctest.Wait()
			g.messages()
			if c.ends == 0 {
				time.Sleep(time.Minute)
				select {
				case err := <-ended:
					t.Errorf("%s: the call ended: %v", c.name, err)
				default:
				}
				cancel()
				refusedWith(t, c.name+", cancelled", <-ended, broker.ErrUnknown, "shard 1: node 2 did not answer: context canceled")
				return
			}
			go call(p.safe, read)
			refusedWith(t, c.name, <-ended, broker.ErrUnknown, "shard 1: node 2 did not answer: another node leads the shard meanwhile")
			same(t, c.name+": it ended after", time.Since(began), time.Duration(c.ends)*check)
			same(t, c.name+": the read", text(<-read), "")
			same(t, c.name+": the read ended after", time.Since(began), time.Duration(c.ends)*check)
			if c.reads != "" {
				same(t, c.name+": messages", g.messages(), c.reads)
			}
		})
	}
	same(t, "checks of a grace", int(grace/check), 2)
}

// A node without a replica asks those of others while a node that leads does not answer, and leaves it once they agree on another.
func TestCallAtDeposedLeaderWithoutReplica(t *testing.T) {
	for _, c := range []struct {
		name string
		says map[uint32]uint32 // who leads, by other node
		ends time.Duration     // 0: it does not
	}{
		{"both name another", map[uint32]uint32{3: 3, 4: 3}, 2 * time.Second},
		{"one does not know", map[uint32]uint32{3: 3, 4: 0}, 2 * time.Second},
		{"one is behind", map[uint32]uint32{3: 3, 4: 2}, 0},
		{"the other is behind", map[uint32]uint32{3: 2, 4: 4}, 0},
		{"none knows", map[uint32]uint32{3: 0, 4: 0}, 0},
	} {
		inGroup(t, 4, func(g *group) {
			p := g.nodes[1]
			g.lead(1, 2)
			g.with(func() { p.replicas[1] = []uint32{2, 3, 4}; p.leads[1] = 0 })
			_, err := p.once.Call(bg, one) // so that it knows the leader
			same(t, c.name+": first call", text(err), "")
			g.network = hang(2)
			began := time.Now()
			ctx, cancel := context.WithTimeout(bg, time.Minute-1)
			defer cancel()
			time.AfterFunc(2*time.Second-1, func() { // the first time they are asked, node 2 still leads
				for n, leader := range c.says {
					g.knows(n, leader)
				}
			})
			g.messages()
			_, err = p.once.Call(ctx, one)
			if c.ends == 0 {
				refusedWith(t, c.name, err, broker.ErrUnknown, "context deadline exceeded")
				same(t, c.name+": asked", strings.Count(g.messages(), "known-leader>3"), 59)
				return
			}
			refusedWith(t, c.name, err, broker.ErrUnknown, "another node leads the shard meanwhile")
			same(t, c.name+": it ended after", time.Since(began), c.ends)
			g.messages()
			got, err := p.once.Call(ctx, one)
			same(t, c.name+": the next call", got+text(err), "done by 3")
			same(t, c.name+": its messages", g.messages(), "once>3")
		})
	}
	// As long as calls are answered, nobody is asked.
	inGroup(t, 4, func(g *group) {
		p := g.nodes[1]
		g.lead(1, 2)
		g.with(func() { p.replicas[1] = []uint32{2, 3, 4}; p.leads[1] = 0 })
		g.runs(2, func(_ context.Context, j job) (string, error) { time.Sleep(j.Wait); return "done", nil })
		slow := make(chan error, 1)
		go func() { _, err := p.safe.Call(bg, job{Shard: 1, Wait: 20100 * time.Millisecond}); slow <- err }()
		for range 40 {
			if _, err := p.once.Call(bg, job{Shard: 1, Wait: 400 * time.Millisecond}); err != nil {
				t.Error(err)
			}
		}
		same(t, "others asked", strings.Count(g.messages(), "known-leader"), 0)
		same(t, "the slow call", text(<-slow), "")

		// An answer that arrives while they are asked shows that the node lives, whatever they say.
		g.lead(1, 3)
		g.knows(1, 0)
		g.network = func(ctx context.Context, _ uint32, deliver func() ([]byte, error)) ([]byte, error) {
			answer, err := deliver()
			select {
			case <-time.After(400 * time.Millisecond):
				return answer, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		go func() { _, err := p.safe.Call(bg, job{Shard: 1, Wait: 20100 * time.Millisecond}); slow <- err }()
		for range 10 {
			got, err := p.once.Call(bg, job{Shard: 1, Wait: 900 * time.Millisecond})
			same(t, "call while others are asked", got+text(err), "done")
		}
		if n := strings.Count(g.messages(), "known-leader>3"); n < 9 {
			t.Errorf("others were asked %d times", n)
		}
		g.lead(1, 2)
		g.knows(1, 0)
		same(t, "the slow call", text(<-slow), "")

		// Nor is anybody asked about a call to a node that is not known as the leader: it may be for the node.
		g.messages()
		g.network = hang(3)
		forward.AskNodes(bg, p.Forwarder, 5*time.Second, g.names[2:3], safeAt, at(g.names[2]))
		same(t, "others asked", g.messages(), "safe-at>3")
	})
}

// Checks that come late end a call late, but they do end it.
func TestLateChecks(t *testing.T) {
	inGroup(t, 3, func(g *group) {
		p := g.nodes[1]
		g.lead(1, 2)
		g.network = hang(2)
		time.AfterFunc(time.Second, func() { g.knows(1, 3) })
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		p.slow = time.Millisecond
		_, err := p.once.Call(ctx, one)
		refusedWith(t, "call at a deposed leader", err, broker.ErrUnknown, "another node leads the shard meanwhile")
	})
}

// A call at a node ends for those on its shard only, and an answer that arrives as it ends counts.
func TestOtherCallsContinue(t *testing.T) {
	inGroup(t, 3, func(g *group) {
		p := g.nodes[1]
		g.with(func() { p.shards = []uint32{1, 2}; p.replicas[2] = p.replicas[1] })
		g.lead(1, 2)
		g.lead(2, 2)
		g.runs(2, func(ctx context.Context, j job) (string, error) {
			if j.Shard == 2 {
				time.Sleep(10 * time.Second)
			} else {
				<-ctx.Done()
			}
			return "late", nil
		})
		time.AfterFunc(time.Second-1, func() { g.knows(1, 3) })
		other := make(chan error, 1)
		go func() { _, err := p.once.Call(bg, job{Shard: 2}); other <- err }()
		got, err := p.once.Call(bg, one)
		same(t, "answer as the call ends", got, "late")
		same(t, "error", text(err), "")
		same(t, "call on another shard", text(<-other), "")

		// A later call at the same node is another one, and the first that returns does not end the others.
		g.knows(1, 2)
		g.runs(2, func(_ context.Context, j job) (string, error) {
			time.Sleep(j.Wait)
			return "slow", nil
		})
		results := make(chan error, 3)
		for _, wait := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
			go func() { _, err := p.safe.Call(bg, job{Shard: 1, Wait: wait}); results <- err }()
		}
		for range 3 {
			same(t, "one of several calls", text(<-results), "")
		}
	})
}

// A call that was ended and returns late leaves those alone that were made at the same node since.
func TestLateReturnOfEndedCall(t *testing.T) {
	inGroup(t, 3, func(g *group) {
		p := g.nodes[1]
		g.lead(1, 2)
		late := 3 * time.Second
		g.network = func(ctx context.Context, _ uint32, _ func() ([]byte, error)) ([]byte, error) {
			<-ctx.Done()
			pause := locked(g, func() time.Duration { defer func() { late = 0 }(); return late })
			time.Sleep(pause)
			return nil, ctx.Err()
		}
		began := time.Now()
		ended := make(chan error, 2)
		call := func() { _, err := p.once.Call(bg, one); ended <- err }
		go call()
		time.Sleep(time.Second - 1)
		g.knows(1, 3)
		time.Sleep(time.Second)
		g.knows(1, 2)
		go call()
		refusedWith(t, "call that returned late", <-ended, broker.ErrUnknown, "another node leads the shard meanwhile")
		same(t, "time", time.Since(began), 4500*time.Millisecond)
		g.knows(1, 3)
		refusedWith(t, "later call", <-ended, broker.ErrUnknown, "another node leads the shard meanwhile")
		if took := time.Since(began); took > 4500*time.Millisecond+forward.DeposedGrace+2*forward.RemoteCheckEvery {
			t.Errorf("the later call ended after %s", took)
		}
	})
}

// The checks end with the last call, and begin again with the next: Close waits for nothing.
func TestChecksEndWithCalls(t *testing.T) {
	inGroup(t, 3, func(g *group) {
		p := g.nodes[1]
		g.lead(1, 2)
		for range 2 {
			g.knows(1, 2)
			_, err := p.once.Call(bg, one)
			same(t, "error", text(err), "")
			time.Sleep(1100 * time.Millisecond) // the checks have ended, so the next ones come at other times
			g.network = hang(2)
			began := time.Now()
			time.AfterFunc(10*time.Second-1, func() { g.knows(1, 3) })
			_, err = p.once.Call(bg, one)
			refusedWith(t, "call at a deposed leader", err, broker.ErrUnknown, "another node leads the shard meanwhile")
			same(t, "time", time.Since(began), 10*time.Second+forward.DeposedGrace)
			g.network = nil
			time.Sleep(time.Second)
		}
		// Calls that begin between two checks cause no others.
		g.network = hang(2)
		g.knows(1, 2)
		began := time.Now()
		ends := make(chan time.Duration, 2)
		for range 2 {
			go func() { _, _ = p.once.Call(bg, one); ends <- time.Since(began) }()
			time.Sleep(100 * time.Millisecond)
		}
		time.AfterFunc(850*time.Millisecond, func() { g.knows(1, 3) }) // 1050 ms after the first
		for range 2 {
			same(t, "end of a call", <-ends, 1250*time.Millisecond+forward.DeposedGrace)
		}
		// The node stops: calls at other nodes end with an unknown outcome, and Close returns at once.
		g.network = hang(2)
		g.knows(1, 2)
		ended := make(chan error, 1)
		go func() { _, err := p.once.Call(bg, one); ended <- err }()
		time.Sleep(time.Second)
		began = time.Now()
		p.Close()
		refusedWith(t, "call at a node that stops", <-ended, broker.ErrUnknown)
		same(t, "time of Close", time.Since(began), 0)
	})
}

// A node that is asked for itself answers without the network here, and fails where it can't be reached.
func TestCallsOnNodes(t *testing.T) {
	inGroup(t, 4, func(g *group) {
		p := g.nodes[1]
		for n := range uint32(4) {
			g.runs(n+1, func(context.Context, job) (string, error) { return "n", nil })
		}
		for n, want := range []string{"", "safe-at>2"} {
			got, err := safeAt.Call(bg, p, at(g.names[n]))
			same(t, "at a node", got+text(err), "n")
			same(t, "messages", g.messages(), want)
		}
		g.fails(1, errors.New("here"))
		g.fails(2, task.Invalid("id", "is odd"))
		g.network = refuse(errNotSent, 3)
		_, err := safeAt.Call(bg, p, at(g.names[0]))
		same(t, "at a node here", text(err), "here")
		_, err = safeAt.Call(bg, p, at(g.names[1]))
		refusedWith(t, "at a node that refuses", err, task.ErrInvalidArgument)
		_, err = safeAt.Call(bg, p, at(g.names[2]))
		refusedWith(t, "at a node that is away", err, task.ErrUnavailable, `node "n3" did not answer: refused`)
		g.network = refuse(errors.New("read: connection reset"), 3)
		_, err = safeAt.Call(bg, p, at(g.names[2]))
		same(t, "at a node that was asked", text(err), `node "n3" did not answer: connection reset`)
		g.network = refuse(errNotSent, 3)

		g.messages()
		g.runs(1, func(context.Context, job) (string, error) { panic("here") })
		got, _ := safeEach.Call(bg, p, one)
		same(t, "each node", fmt.Sprint(got.Value, got.Missing), `[n] [node "n1" node "n2" node "n3"]`)
		same(t, "why", got.Missing[0].Why+"; "+got.Missing[1].Why+"; "+got.Missing[2].Why,
			`failed with an internal error; id: is odd; did not answer: refused`)
		same(t, "messages", len(strings.Fields(g.messages())), 3)
		g.runs(1, nil)
		g.lead(1, 1)
		g.network = hang(3)
		began := time.Now()
		got, _ = safeEach.Call(bg, p, one)
		same(t, "each node", fmt.Sprint(got.Value, got.Missing), `[done by 1 n] [node "n2" node "n3"]`)
		same(t, "patience", time.Since(began), 3*time.Second)
		same(t, "why", got.Missing[1].Why, "did not answer in time")
		began = time.Now()
		some := forward.AskNodes(bg, p.Forwarder, 2*time.Second, g.names[1:], safeAt, at(g.names[1]))
		same(t, "AskNodes", fmt.Sprint(some.Value, some.Missing), `[  n] [node "n2" node "n3"]`)
		same(t, "patience", time.Since(began), 2*time.Second)
	})
}

// A call for any replica runs here if there is one, otherwise at the first node that answers, even if it refuses.
func TestCallsOnReplicas(t *testing.T) {
	odd, internal := task.Invalid("id", "is odd"), errors.New("disk broke")
	elsewhere, unknown := &broker.NotLeader{Shard: 1}, broker.Unknown("lost")
	for _, c := range []struct {
		name     string
		replicas []uint32
		fails    []error // of nodes 1 to 3
		answer   string
		err      string
		messages string
	}{
		{"here", []uint32{2, 1, 3}, []error{nil, nil, nil}, "from 1", "", ""},
		{"refused here", []uint32{2, 1, 3}, []error{odd, nil, nil}, "from 1", "is odd", ""},
		{"failed here", []uint32{2, 1, 3}, []error{internal, nil, nil}, "from 1", "disk broke", ""},
		{"not here", []uint32{2, 1, 3}, []error{elsewhere, nil, nil}, "from 2", "", "safe-any>2"},
		{"unknown here", []uint32{1, 2, 3}, []error{unknown, nil, nil}, "from 2", "", "safe-any>2"},
		{"no replica", []uint32{3, 2}, []error{nil, nil, nil}, "from 3", "", "safe-any>3"},
		{"refused there", []uint32{3, 2}, []error{nil, nil, odd}, "from 3", "is odd", "safe-any>3"},
		{"failed there", []uint32{3, 2}, []error{nil, nil, internal}, "from 3", "shard 1: node 3: disk broke", "safe-any>3"},
		{"not there", []uint32{3, 2}, []error{nil, nil, elsewhere}, "from 2", "", "safe-any>3 safe-any>2"},
		{"unknown there", []uint32{3, 2}, []error{nil, nil, unknown}, "from 2", "", "safe-any>3 safe-any>2"},
		{"nowhere", []uint32{1, 2, 3}, []error{elsewhere, elsewhere, elsewhere}, "",
			"shard 1: none of its replicas answers: shard 1 is not led here", "safe-any>2 safe-any>3"},
	} {
		inGroup(t, 3, func(g *group) {
			g.with(func() { g.nodes[1].replicas[1] = c.replicas })
			for n, err := range c.fails {
				g.runs(uint32(n+1), func(context.Context, job) (string, error) { return []string{"from 1", "from 2", "from 3"}[n], err })
			}
			got, err := safeAny.Call(bg, g.nodes[1], one)
			if got != c.answer || !strings.Contains(text(err), c.err) || (err == nil) != (c.err == "") || g.messages() != c.messages {
				t.Errorf("%s: %q, %v", c.name, got, err)
			}
		})
	}
}
