package claim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// places is a node's knowledge of the shards: each has the same replicas and leader.
type places struct {
	oneNode
	leader   uint64
	replicas []uint32
}

func (p *places) Leader(uint32) (node, term, index uint64) { return p.leader, 1, 1 }
func (p *places) Replicas(uint32) []uint32                 { return p.replicas }

// newPlaced returns the claims of other nodes' shards on node 1.
func newPlaced(t *testing.T, p *places) *remoteClaims {
	f := forward.New(forward.Config{Node: 1, Parts: &verb.Parts{}, Broker: p, Map: p, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(f.Close)
	return &remoteClaims{forward: f, log: slog.New(slog.DiscardHandler), claims: map[task.ClaimID]remoteClaim{},
		byShard: map[uint32]*shardClaims{}, links: map[uint32]*link{}}
}

// Claims belong to the leader. If it has just failed, or none is known, they stay where they are, or go to a replica
// that is neither this node nor the one that failed, each in turn.
func TestClaimDestinations(t *testing.T) {
	for _, c := range []struct {
		name     string
		leader   uint64
		replicas []uint32
		node     uint32
		failed   uint32
		want     []uint32 // of several looks
	}{
		{"the leader", 2, []uint32{1, 2, 3}, 0, 0, []uint32{2, 2}},
		{"another leader than the one that failed", 2, []uint32{1, 2, 3}, 0, 3, []uint32{2, 2}},
		{"this node", 1, []uint32{1, 2, 3}, 2, 0, []uint32{1, 1}},
		{"the leader has failed: another, then it again", 2, []uint32{1, 2, 3}, 0, 2, []uint32{3, 2}},
		{"no leader, and posted", 0, []uint32{1, 2, 3}, 3, 0, []uint32{0, 0}},
		{"no leader, and not posted", 0, []uint32{1, 2}, 0, 0, []uint32{2, 2}},
		{"only the one that failed", 0, []uint32{1, 2}, 0, 2, []uint32{0, 2}},
		{"no replica", 0, nil, 0, 0, []uint32{0, 0}},
		{"only this node", 0, []uint32{1}, 0, 0, []uint32{0, 0}},
	} {
		f := newPlaced(t, &places{leader: c.leader, replicas: c.replicas})
		for turn := range 3 { // whose turn it is does not matter
			p := &shardClaims{shard: 1, node: c.node, failed: c.failed, turn: turn}
			var got []uint32
			for range c.want {
				got = append(got, f.nodeFor(p))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, turn %d: they belong to %v, want %v", c.name, turn, got, c.want)
			}
		}
	}
	f, p := newPlaced(t, &places{replicas: []uint32{1, 2, 3, 4}}), &shardClaims{shard: 1}
	seen := map[uint32]int{}
	for range 12 {
		seen[f.nodeFor(p)]++
	}
	if seen[2] != 3 && seen[2] != 4 || seen[3] == 0 || seen[4] == 0 || seen[1]+seen[0] != 0 {
		t.Errorf("without a leader the replicas are chosen %v times, want each in turn", seen)
	}
}

// Claims that move to another node are removed from the one before, unless they were not sent there.
func TestClaimsMove(t *testing.T) {
	f := newPlaced(t, &places{leader: 2})
	w := &claimWatch{remote: map[task.ClaimID]bool{}}
	old, next := newLink(f, 2), newLink(f, 3)
	f.links[2], f.links[3] = old, next
	sent, unsent := task.NewID(1, 1, 1), task.NewID(1, 1, 2)
	f.put(w, broker.Hold{ID: sent})
	p := f.byShard[1]
	p.node = 2
	f.put(w, broker.Hold{ID: unsent})
	f.move(p, 3)
	if len(old.gone) != 1 || old.gone[0].ID != sent || len(old.added) != 0 || p.node != 3 || !next.added[task.ClaimID{Task: sent}] ||
		!next.added[task.ClaimID{Task: unsent}] || len(next.gone) != 0 {
		t.Errorf("the first node has %+v to remove and %v to add, the second %v", old.gone, old.added, next.added)
	}
}

// Notices count only from the stream and the node where a claim is watched, and for the claim that is held.
func TestLateNotices(t *testing.T) {
	f := newPlaced(t, &places{leader: 0})
	var lost []task.ID
	w := &claimWatch{remote: map[task.ClaimID]bool{}, lost: func(l broker.Lost) { lost = append(lost, l.ID) }}
	here, other := newLink(f, 2), newLink(f, 3)
	f.links[2], f.links[3] = here, other
	hold := func(shard uint32) broker.Hold {
		return broker.Hold{ID: task.NewID(shard, 1, 1), Token: task.Token{Epoch: 1, Fence: 4}}
	}
	for shard := range uint32(3) {
		f.put(w, hold(shard+1))
		f.byShard[shard+1].node = 2
	}
	notice := func(h broker.Hold, reason string) *notices {
		return &notices{Lost: []broker.Lost{{ID: h.ID, Token: h.Token, Reason: reason}}}
	}
	earlier := hold(1)
	earlier.Token.Fence--
	for name, n := range map[string]func(){
		"of another node":       func() { f.handleNotices(other, notice(hold(1), task.StaleExpired)) },
		"of a stream before":    func() { f.handleNotices(newLink(f, 2), notice(hold(1), task.StaleExpired)) },
		"of an earlier claim":   func() { f.handleNotices(here, notice(earlier, task.StaleExpired)) },
		"of a claim not held":   func() { f.handleNotices(here, notice(hold(9), task.StaleExpired)) },
		"of a shard not known":  func() { f.handleNotices(here, &notices{Moved: []broker.NotLeader{{Shard: 9}}}) },
		"of a shard elsewhere":  func() { f.handleNotices(other, &notices{Moved: []broker.NotLeader{{Shard: 1}}}) },
		"of a move, but before": func() { f.handleNotices(newLink(f, 2), &notices{Moved: []broker.NotLeader{{Shard: 1}}}) },
	} {
		if n(); len(lost) != 0 || len(f.claims) != 3 || f.byShard[1].node != 2 {
			t.Errorf("a notice %s counted: lost %v, %d claims are left, at node %d", name, lost, len(f.claims), f.byShard[1].node)
		}
	}
	f.handleNotices(here, notice(hold(2), task.StaleExpired))
	f.handleNotices(here, notice(hold(3), task.StaleCompleted)) // its holder knows
	if len(lost) != 1 || lost[0] != hold(2).ID || len(f.claims) != 1 || len(w.remote) != 1 || len(f.byShard) != 1 {
		t.Errorf("lost %v, %d claims are left", lost, len(f.claims))
	}
	f.handleNotices(here, &notices{Moved: []broker.NotLeader{{Shard: 1, Node: 4}}})
	if p := f.byShard[1]; p.node != 0 || p.failed != 2 || f.forward.LeaderOf(1) != 4 {
		t.Errorf("after a move the shard is watched at %d, failed at %d, led by %d", p.node, p.failed, f.forward.LeaderOf(1))
	}
	// A claim is removed by the watch that holds it, with its token.
	v := &claimWatch{remote: map[task.ClaimID]bool{}}
	f.remove(v, hold(1).ID, hold(1).Token)
	f.remove(w, hold(1).ID, earlier.Token)
	f.remove(w, hold(9).ID, hold(9).Token)
	if len(f.claims) != 1 {
		t.Error("a claim was removed for another watch, or an earlier claim")
	}
	if f.remove(w, hold(1).ID, hold(1).Token); len(f.claims)+len(f.byShard)+len(w.remote) != 0 {
		t.Errorf("%d claims are left", len(f.claims))
	}
}

// More notices than a frame holds come in several, and none is lost.
func TestManyNotices(t *testing.T) {
	g := &claimWatcher{claims: &Claims{broker: &localBroker{}}, wake: make(chan struct{}, 1), moved: map[uint32]bool{}}
	for n := range 2001 {
		g.onLost(broker.Lost{ID: task.NewID(1, 1, uint64(n))})
	}
	total := 0
	for _, want := range []int{1000, 1000, 1} {
		n := g.next()
		if n == nil || len(n.Lost) != want || n.Lost[0].ID != task.NewID(1, 1, uint64(total)) {
			t.Fatalf("after %d notices the next are %+v, want %d", total, n, want)
		}
		total += want
	}
	if n := g.next(); n != nil {
		t.Errorf("after the last notice came %+v", n)
	}
}

// localBroker is the broker of a node that leads all shards.
type localBroker struct {
	oneNode
	Broker
	mu     sync.Mutex
	claims []broker.ClaimCall
	calls  [][]broker.Settle
	got    []broker.Claimed
	errs   []error // of the next claims
	fails  string  // the claim key whose claims fail
	failed int     // how many of them did
	waits  bool    // claims from queues wait until their callers leave
}

func (*localBroker) Leader(uint32) (node, term, index uint64) { return 1, 1, 1 }

func (a *localBroker) Claim(ctx context.Context, c broker.ClaimCall) ([]broker.Claimed, broker.Stamp, error) {
	if a.waits && len(c.Queues) > 0 {
		<-ctx.Done()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claims = append(a.claims, c)
	if c.ClaimKey != "" && c.ClaimKey == a.fails {
		a.failed++
		return nil, broker.Stamp{}, errors.New("odd")
	}
	if len(a.errs) > 0 {
		err := a.errs[0]
		a.errs = a.errs[1:]
		return nil, broker.Stamp{}, err
	}
	return a.got, broker.Stamp{Index: 1}, nil
}

func (a *localBroker) Settle(calls []broker.Settle) ClaimsSettled {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, calls)
	return ClaimsSettled{Out: make([]broker.Settled, len(calls))}
}

// lines is a log that may be read while others write to it.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// newLocal returns the claims of a node that leads all shards, and its log.
func newLocal(t *testing.T, a *localBroker) (*Claims, *lines) {
	log := &lines{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	on, parts := verbtest.Answers{}, &verb.Parts{}
	verbtest.On(on, ClaimTasks, func(ctx context.Context, q Claiming) (out TasksClaimed, err error) {
		out.Out, out.At, err = a.Claim(ctx, q.Call)
		return out, err
	})
	verbtest.On(on, SettleClaims, func(_ context.Context, q Settling) (ClaimsSettled, error) {
		return a.Settle(q.Calls), nil
	})
	verbtest.On(on, AwaitLocal, func(context.Context, Claiming) (none verb.Nothing, err error) {
		return none, task.Invalid("queues", "is bad")
	})
	BrokerVerbs.ServeBy(on, parts)
	f := forward.New(forward.Config{Node: 1, Parts: parts, Broker: a.oneNode, Map: a.oneNode, Logger: logger})
	t.Cleanup(f.Close)
	c := New(f, a, nil, logger)
	Verbs.Serve(c, parts)
	return c, log
}

// A claim whose answer was lost is looked for until its lease ends, within bounds, and what it got is released.
func TestLostClaimIsSoughtUntilLeaseEnds(t *testing.T) {
	for _, c := range []struct{ lease, want time.Duration }{
		{time.Second, 10 * time.Second}, {time.Minute, time.Minute}, {time.Hour, 10 * time.Minute}, {0, task.DefaultSettings().Lease},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &localBroker{errs: slices.Repeat([]error{errors.New("odd")}, 2000)}
			claims, log := newLocal(t, a)
			claims.Abandon(1, broker.ClaimCall{Namespace: "ns", ClaimKey: "k", Lease: c.lease})
			time.Sleep(c.want - time.Millisecond)
			synctest.Wait()
			if claims.Abandoned() != 1 || log.String() != "" {
				t.Errorf("a lease of %v: within %v the claim was given up: %s", c.lease, c.want, log)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if n := len(a.claims); claims.Abandoned() != 0 || strings.Count(log.String(), "wait for the end of their leases") != 1 ||
				n < int(c.want/time.Second) || n > int(c.want/time.Second)+1 {
				t.Errorf("a lease of %v: after %v and %d tries the log is %s", c.lease, c.want, n, log)
			}
		})
	}
}

func TestLostClaimIsReleased(t *testing.T) {
	for n, want := range []int{0, 1, 2} {
		synctest.Test(t, func(t *testing.T) {
			a := &localBroker{errs: []error{errors.New("odd"), errors.New("odd")}}
			for i := range n {
				a.got = append(a.got, broker.Claimed{Envelope: nil, Token: task.Token{Fence: uint64(i + 1)}})
				a.got[i].Envelope = envelope(uint64(i + 1))
			}
			claims, log := newLocal(t, a)
			claims.Abandon(1, broker.ClaimCall{Namespace: "ns", ClaimKey: "k", Queues: []broker.Share{{Queue: "q"}}})
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if len(a.claims) != 3 || a.claims[2].ClaimKey != "k" || a.claims[2].Namespace != "ns" || a.claims[2].Queues != nil ||
				a.claims[2].Max != task.MaxClaim {
				t.Errorf("the calls are %+v", a.claims)
			}
			if settled := slices.Concat(a.calls...); len(settled) != want || n > 0 && (settled[n-1].Verb != broker.Release ||
				settled[n-1].Hold.Token.Fence != uint64(n) || settled[n-1].Hold.Namespace != "ns") {
				t.Errorf("of %d claims these are settled: %+v", n, settled)
			}
			if said := strings.Contains(log.String(), "were given back"); said != (n > 0) || claims.Abandoned() != 0 {
				t.Errorf("of %d claims the log is %s", n, log)
			}
		})
	}
}

// A claim key that fails again and again holds up no other, in its own call or in later ones.
func TestFailingClaimHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &localBroker{fails: "k0", got: []broker.Claimed{{Envelope: envelope(1), Token: task.Token{Fence: 1}}}}
		claims, log := newLocal(t, a)
		const n = 2500
		for i := range n {
			claims.Abandon(1, broker.ClaimCall{Namespace: "ns", ClaimKey: fmt.Sprint("k", i), Lease: time.Minute})
		}
		synctest.Wait()
		if a.failed != 1 {
			t.Errorf("within a moment, the key that fails was tried %d times", a.failed)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if left := claims.Abandoned(); left != 1 || len(a.calls) != n-1 {
			t.Errorf("of %d lost claims, one of which keeps failing, %d were released, and %d are still looked after", n,
				len(a.calls), left)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if claims.Abandoned() != 0 || strings.Count(log.String(), "claims=1\n") != 1 {
			t.Errorf("after the lease, %d are still looked after, and the log is %s", claims.Abandoned(), log)
		}
	})
}

// When all keys of a call fail, those of the next call are tried.
func TestFailingClaimsHoldUpNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &localBroker{errs: slices.Repeat([]error{errors.New("odd")}, 3*maxAbandonKeys)}
		claims, _ := newLocal(t, a)
		abandon := func(from, to int) {
			for i := from; i < to; i++ {
				claims.Abandon(1, broker.ClaimCall{Namespace: "ns", ClaimKey: fmt.Sprint("k", i), Lease: time.Minute})
			}
		}
		abandon(0, 1)
		synctest.Wait() // the first call has failed, so all others are there at the next
		abandon(1, maxAbandonKeys+1)
		time.Sleep(2*abandonPause + time.Millisecond)
		synctest.Wait()
		a.mu.Lock()
		defer a.mu.Unlock()
		if !slices.ContainsFunc(a.claims, func(c broker.ClaimCall) bool { return c.ClaimKey == fmt.Sprint("k", maxAbandonKeys) }) {
			t.Errorf("after %d claims, the last of %d keys was not tried", len(a.claims), maxAbandonKeys+1)
		}
	})
}

// Close waits for lost claims to be given back, but not for long. No more than a bound are looked for at a time.
func TestCloseWaitsForLostClaims(t *testing.T) {
	for busy, most := range map[int][2]time.Duration{0: {0, 0}, 1: {time.Second, 1020 * time.Millisecond},
		2: {2 * time.Second, 2010 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			claims, log := newLocal(t, &localBroker{})
			count := func(n int) {
				claims.abandoned.mu.Lock()
				defer claims.abandoned.mu.Unlock()
				claims.abandoned.all += n
			}
			count(busy)
			time.AfterFunc(time.Second, func() { count(-min(busy, 1)) })
			began := time.Now()
			claims.Close()
			if took := time.Since(began); took < most[0] || took > most[1] {
				t.Errorf("with %d lost claims Close took %v, want %v", busy, took, most)
			}
			count(100_000 - claims.Abandoned())
			if claims.Abandon(1, broker.ClaimCall{}); strings.Count(log.String(), "too many are looked after") != 1 ||
				claims.Abandoned() != 100_000 {
				t.Errorf("beyond the bound, the log is %s", log)
			}
			time.Sleep(time.Second)
		})
	}
}

// A leader's own refusal is the caller's, without another attempt.
func TestLeaderRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &localBroker{errs: []error{task.Invalid("max", "is bad")}, got: []broker.Claimed{{}}}
		claims, _ := newLocal(t, a)
		if got, _, err := claims.Claim(context.Background(), 1, broker.ClaimCall{}, time.Minute); !errors.Is(err,
			task.ErrInvalidArgument) ||
			got != nil || len(a.claims) != 1 {
			t.Errorf("got %v, %v after %d calls", got, err, len(a.claims))
		}
		if got, _, err := claims.Claim(context.Background(), 1, broker.ClaimCall{}, time.Minute); err != nil || len(got) != 1 ||
			a.claims[1].ClaimKey != "" {
			t.Errorf("got %v, %v by %+v", got, err, a.claims)
		}
		if err := claims.Await(context.Background(), 1, broker.ClaimCall{}); !errors.Is(err, task.ErrInvalidArgument) ||
			claims.Watches() != 0 {
			t.Errorf("Await: %v, and %d watches", err, claims.Watches())
		}
	})
}

// frames is a stream that has some frames to be received.
type frames struct {
	Stream
	all [][]byte
}

func (s *frames) Recv() ([]byte, error) {
	if len(s.all) == 0 {
		return nil, io.EOF
	}
	b := s.all[0]
	s.all = s.all[1:]
	return b, nil
}

// A stream that ends is no error. One with notices that can't be read ends, with an error in the log, and what follows does not count.
func TestUnreadableNotices(t *testing.T) {
	var log bytes.Buffer
	f := newRemote(t, &log)
	var lost []task.ID
	w := &claimWatch{remote: map[task.ClaimID]bool{}, lost: func(l broker.Lost) { lost = append(lost, l.ID) }}
	l := newLink(f, 2)
	ids := []task.ID{task.NewID(1, 1, 1), task.NewID(1, 1, 2)}
	var sent [][]byte
	for _, id := range ids {
		f.put(w, broker.Hold{ID: id})
		b, err := verb.Encode(&notices{Lost: []broker.Lost{{ID: id, Reason: task.StaleExpired}}})
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, b)
	}
	f.links[2], f.byShard[1].node = l, 2
	if l.receive(&frames{all: sent[:1]}); len(lost) != 1 || log.Len() != 0 {
		t.Errorf("lost %v, and the log is %s", lost, &log)
	}
	if l.receive(&frames{all: [][]byte{{0xff}, sent[1]}}); len(lost) != 1 || strings.Count(log.String(), "can't be read") != 1 {
		t.Errorf("lost %v, and the log is %s", lost, &log)
	}
}

// localWatch is a local watch that records its claims.
type localWatch struct{ held map[task.ClaimID]bool }

func (h *localWatch) Add(c broker.Hold) bool { h.held[keyOf(c)] = true; return true }
func (h *localWatch) Remove(id task.ID, t task.Token) bool {
	k := task.ClaimID{Task: id, Token: t}
	defer delete(h.held, k)
	return h.held[k]
}
func (h *localWatch) Close() {}

// While a claim is given to the local broker, because this node leads its shard now, its holder may remove it, or close
// the watch: then neither the broker nor the other nodes' claims keep it. Otherwise it is kept in one of the two,
// whether the broker takes it or not.
func TestClaimsBecomeLocal(t *testing.T) {
	h := broker.Hold{ID: task.NewID(1, 1, 1), Token: task.Token{Fence: 4}}
	for name, c := range map[string]struct {
		meanwhile     func(f *remoteClaims, w *claimWatch)
		accepted      bool
		local, remote int
	}{
		"the broker takes it":              {func(*remoteClaims, *claimWatch) {}, true, 1, 0},
		"the broker does not":              {func(*remoteClaims, *claimWatch) {}, false, 0, 1},
		"removed, the broker takes it":     {func(f *remoteClaims, w *claimWatch) { f.remove(w, h.ID, h.Token) }, true, 0, 0},
		"removed, the broker does not":     {func(f *remoteClaims, w *claimWatch) { f.remove(w, h.ID, h.Token) }, false, 0, 0},
		"closed, the broker does not":      {func(f *remoteClaims, w *claimWatch) { f.drop(w) }, false, 0, 0},
		"another claim of it is removed":   {func(f *remoteClaims, w *claimWatch) { f.remove(w, h.ID, task.Token{Fence: 3}) }, false, 0, 1},
		"it is removed from another watch": {func(f *remoteClaims, _ *claimWatch) { f.remove(&claimWatch{}, h.ID, h.Token) }, true, 1, 0},
	} {
		f := newPlaced(t, &places{leader: 1})
		f.running = true
		here := &localWatch{map[task.ClaimID]bool{}}
		w := &claimWatch{here: here, remote: map[task.ClaimID]bool{}}
		f.put(w, h)
		local, _ := f.assign()
		if len(local) != 1 || len(f.claims) != 0 {
			t.Fatalf("%s: %d claims are given to the broker, %d are left", name, len(local), len(f.claims))
		}
		c.meanwhile(f, w)
		if c.accepted {
			here.Add(h)
		}
		f.madeLocal(local[0], c.accepted)
		if len(here.held) != c.local || len(f.claims) != c.remote || len(w.remote) != c.remote || len(f.given) != 0 {
			t.Errorf("%s: the broker has %d, other nodes' claims are %d, %d are on their way; want %d, %d and none", name, len(here.held),
				len(f.claims), len(f.given), c.local, c.remote)
		}
	}
}

// A claim may have several watches on a node, and a task several claims: each is removed by itself, and the node where
// the claim is posted forgets it with its last watch. A loss is reported to all watches of the claim.
func TestWatchesOfOneClaim(t *testing.T) {
	f := newPlaced(t, &places{leader: 2})
	lost := 0
	one := &claimWatch{remote: map[task.ClaimID]bool{}, lost: func(broker.Lost) { lost++ }}
	two := &claimWatch{remote: map[task.ClaimID]bool{}, lost: func(broker.Lost) { lost++ }}
	old := broker.Hold{ID: task.NewID(1, 1, 1), Token: task.Token{Fence: 4}}
	now := old
	now.Token.Fence++
	l := newLink(f, 2)
	f.links[2] = l
	for _, h := range []broker.Hold{old, now} {
		for _, w := range []*claimWatch{one, two, one} {
			f.put(w, h)
		}
	}
	f.byShard[1].node = 2
	clear(l.added) // they have been sent
	if f.remove(one, old.ID, old.Token); len(f.claims) != 2 || len(l.gone) != 0 || len(one.remote) != 1 || len(two.remote) != 2 {
		t.Errorf("one of two watches was removed: %d claims are left, %d to be removed there, %d and %d watched",
			len(f.claims), len(l.gone), len(one.remote), len(two.remote))
	}
	if f.remove(two, old.ID, old.Token); len(f.claims) != 1 || len(l.gone) != 1 || l.gone[0] != old {
		t.Errorf("both were removed: %d claims are left, to be removed there are %+v", len(f.claims), l.gone)
	}
	f.handleNotices(l, &notices{Lost: []broker.Lost{{ID: now.ID, Token: now.Token, Reason: task.StaleExpired}}})
	if lost != 2 || len(f.claims)+len(f.byShard)+len(one.remote)+len(two.remote) != 0 {
		t.Errorf("the loss of a claim was reported to %d of its two watches, and %d claims are left", lost, len(f.claims))
	}
}

// Of a claim that is cut off here while it waits, the broker need not be asked what it got, unless it had just got something.
func TestCutOffClaimIsSought(t *testing.T) {
	for _, got := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := &localBroker{}
			claims, _ := newLocal(t, a)
			id, one := claimID{1, "ns", "k"}, &servedClaim{ended: make(chan struct{}), got: got}
			one.cancel = func() { claims.served.end(id, one) }
			claims.served.begin(id, one)
			claims.Abandon(1, broker.ClaimCall{Namespace: "ns", ClaimKey: "k"})
			synctest.Wait()
			if asked := len(a.claims) > 0; asked != got || claims.Abandoned() != 0 {
				t.Errorf("a claim that has got something: %t; the broker was asked: %t", got, asked)
			}
		})
	}
}

// A claim that was cut off here at a moment when it may have got something is sought.
func TestCutOffClaimOfUnknownOutcomeIsSought(t *testing.T) {
	for _, err := range []error{broker.Unknown("shard 1"), context.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			a := &localBroker{waits: true, errs: []error{err}}
			claims, _ := newLocal(t, a)
			call := broker.ClaimCall{Namespace: "ns", ClaimKey: "k", Queues: []broker.Share{{Queue: "q"}}}
			go func() {
				_, _ = claims.claimForOthers(t.Context(), Claiming{Shard: 1, Call: call, Wait: time.Minute})
			}()
			synctest.Wait()
			claims.Abandon(1, call)
			synctest.Wait()
			if sought, unknown := len(a.claims) > 1, errors.Is(err, broker.ErrUnknown); sought != unknown || claims.Abandoned() != 0 {
				t.Errorf("a claim ended with %v; what it got was sought: %t", err, sought)
			}
		})
	}
}
