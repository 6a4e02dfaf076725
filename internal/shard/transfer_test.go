package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/store"
)

// calmGroup is three replicas on a network without loss, with all their log lines.
func calmGroup(t *testing.T) (w *world, lines *logLines) {
	w, lines = newWorld(t, 11, 3, new(sometimes)), new(logLines)
	w.calm, w.log = true, slog.New(slog.NewTextHandler(lines, nil))
	for _, n := range w.nodes {
		n.start(0)
	}
	return w, lines
}

// logLines collects a log.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimSpace(string(b)))
	return len(b), nil
}

// about returns the lines that contain a text.
func (l *logLines) about(text string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// serving calls a leader repeatedly for a while, and returns the longest time without an answer, and an error if a call failed.
func serving(l *life, d time.Duration) (gap time.Duration, err error) {
	last := time.Now()
	for end := last.Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		_, _, failed := Update(ctx, l.shard, func(tx *store.Tx) (struct{}, error) {
			tx.Set([]byte("served"), fmt.Append(nil, time.Now().UnixNano()))
			return struct{}{}, nil
		})
		cancel()
		err = errors.Join(err, failed)
		gap, last = max(gap, time.Since(last)), time.Now()
	}
	return gap, err
}

// Service is not interrupted if leadership is to be transferred to a replica that has just died, hangs, is cut off in one direction, or is
// barred from leading: no transfer takes place, and calls continue as if nobody had asked.
func TestNoTransferToUnresponsiveReplica(t *testing.T) {
	for what, fell := range map[string]func(w *world, n *node){
		"dead":           func(_ *world, n *node) { n.end(false) },
		"cut off":        func(w *world, n *node) { w.isolate(n.num, true, true) },
		"is not heard":   func(w *world, n *node) { w.isolate(n.num, false, true) },
		"hears nothing":  func(w *world, n *node) { w.isolate(n.num, true, false) },
		"barred":         func(_ *world, n *node) { n.alive().shard.Bar("its clock is wrong") },
		"barred by will": func(_ *world, n *node) { n.alive().shard.Bar("it stops") },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, lines := calmGroup(t)
				l := w.leader()
				to := w.nodes[l.num%3]
				if _, err := serving(l, time.Second); err != nil {
					t.Fatal(err)
				}
				fell(w, to) // the leader heard from it just before
				var asking sync.WaitGroup
				asking.Go(func() {
					began := time.Now()
					err := l.shard.Transfer(t.Context(), to.id, "test")
					if took := time.Since(began); !errors.Is(err, ErrNoTransfer) || !strings.Contains(err.Error(),
						fmt.Sprintf("node %d", to.num)) ||
						took > time.Second {
						t.Errorf("Transfer returned after %v with %v, want ErrNoTransfer for node %d within 1 s", took, err, to.num)
					}
				})
				gap, err := serving(l, 3*time.Second)
				asking.Wait()
				if err != nil || gap > 200*time.Millisecond || w.leader() != l {
					t.Errorf("calls were not answered for %v, errors %v", gap, err)
				}
				if said := lines.about("was not handed over"); len(said) != 1 ||
					!strings.Contains(said[0], fmt.Sprintf("to=%d ", to.num)) || !strings.Contains(said[0], "replica=1.0") {
					t.Errorf("the log has %q, want one line with both nodes", said)
				}
				w.heal()
				if to.alive() != nil {
					to.alive().shard.Bar("")
				} else {
					to.start(0)
				}
				time.Sleep(firstBackoff)
				if err := l.shard.Transfer(t.Context(), to.id, "test"); err != nil {
					t.Errorf("Transfer after the replica came back: %v", err)
				}
				if now := w.leader(); now.node != to {
					t.Errorf("node %d leads, want node %d", now.num, to.num)
				}
				w.endAll()
			})
		})
	}
}

// loses makes the network lose some messages from now on.
func (w *world) loses(which func(*pb.Message) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = which
}

// The caller of Transfer learns how it ended: the replica leads already, another one leads, it was asked and did not take over, the caller
// ran out of time, or the replica has stopped.
func TestHowTransfersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, lines := calmGroup(t)
		l := w.leader()
		time.Sleep(time.Second)
		to, third := w.nodes[l.num%3].alive(), w.nodes[(l.num+1)%3].alive()
		began := time.Now()
		for _, m := range []*life{l, to} {
			if err := m.shard.Transfer(t.Context(), l.id, "test"); err != nil {
				t.Errorf("replica %d, asked to hand over to the current leader: %v", m.id, err)
			}
		}
		var no *NotLeader
		if err := to.shard.Transfer(t.Context(), third.id, "test"); !errors.As(err, &no) || no.Leader != l.id {
			t.Errorf("a follower that was asked to hand over returned %v, want NotLeader", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the calls took %v, want no time", took)
		}
		w.loses(func(m *pb.Message) bool { return m.GetType() == pb.MsgTimeoutNow })
		if err := l.shard.Transfer(t.Context(), to.id, "test"); !errors.Is(err, ErrNoTransfer) || !strings.HasSuffix(err.Error(),
			"it did not take over in an election timeout") {
			t.Errorf("Transfer to a replica that never receives the request returned %v", err)
		}
		w.loses(nil)
		w.isolate(third.num, true, true)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		other := make(chan error, 1)
		go func() {
			time.Sleep(50 * time.Millisecond)
			other <- l.shard.Transfer(t.Context(), to.id, "test")
		}()
		if err := l.shard.Transfer(ctx, third.id, "test"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Transfer whose context ended returned %v", err)
		}
		if err := <-other; !errors.Is(err, ErrNoTransfer) || !strings.Contains(err.Error(),
			fmt.Sprintf("it is being handed to the replica on node %d", third.num)) {
			t.Errorf("Transfer during another transfer returned %v", err)
		}
		if n := len(lines.about("new leader")); n != 1 {
			t.Errorf("%d leaders were elected, want 1", n)
		}
		w.heal()
		w.endAll()
		if err := l.shard.Transfer(t.Context(), to.id, "test"); !errors.Is(err, ErrStopped) {
			t.Errorf("Transfer after Stop: %v, want ErrStopped", err)
		}
	})
}

// Transfer returns as soon as the leader that hands over hears of the new one, not with its next tick.
func TestTransferEndsWithTheNewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := calmGroup(t)
		l := w.leader()
		time.Sleep(time.Second)
		to := w.nodes[l.num%3].id
		heard := make(chan time.Time, 1)
		go func() {
			for leader := l.id; leader != to; leader, _ = l.shard.Leader() {
				time.Sleep(time.Millisecond)
			}
			heard <- time.Now()
		}()
		if err := l.shard.Transfer(t.Context(), to, "test"); err != nil {
			t.Error(err)
		}
		ended := time.Now()
		if late := ended.Sub(<-heard); late > time.Millisecond {
			t.Errorf("Transfer returned %v after the replica knew the new leader", late)
		}
		w.endAll()
	})
}

// A barred replica that nobody can replace goes on leading, and tries nothing.
func TestBarredAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{})
		b.Bar("its clock is wrong")
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			if _, err := b.set("k", "v"); err != nil {
				t.Error(err)
			}
			b.onLoop(func(l *loop) {
				if l.transfers.current != nil {
					t.Errorf("leadership is being handed to replica %d", l.transfers.current.to)
				}
			})
		}
		b.close()
	})
}

// A transfer ends with its loop, even if another loop follows.
func TestTransferEndsWithItsLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{})
		done := make(chan error, 1)
		b.onLoop(func(l *loop) { l.transfers.current = &transfer{to: 2, done: []chan error{done}} })
		if b.close(); len(done) == 0 {
			t.Fatal("the transfer has not ended")
		}
		if err := <-done; err != ErrStopped {
			t.Errorf("the transfer ended with %v, want ErrStopped", err)
		}
	})
}

// While leadership is being transferred for another reason, this replica's disk is not blamed for it.
func TestSlowDiskWaitsForATransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := calmGroup(t)
		l := w.leader()
		time.Sleep(time.Second)
		to := w.nodes[l.num%3].id
		slow := func(under *transfer) (handed bool) {
			done := make(chan struct{})
			if err := l.shard.runOnLoop(t.Context(), func(l *loop) {
				defer close(done)
				now := l.cfg.Time.Elapsed()
				l.pace.begin(now - paceWindow)
				l.pace.peers[to] = &latency{n: leastSaves}
				for range leastSaves {
					l.pace.saved(time.Second)
				}
				l.transfers.current = under
				l.transfers.startIfSlow()
				handed = l.transfers.current != under
				l.transfers.current = nil
			}); err != nil {
				t.Fatal(err)
			}
			<-done
			return handed
		}
		if slow(&transfer{to: w.nodes[(l.num+1)%3].id}) || l.shard.SlowDisk() {
			t.Errorf("during a transfer SlowDisk is %v, or the disk was blamed", l.shard.SlowDisk())
		}
		if !slow(nil) || !l.shard.SlowDisk() {
			t.Errorf("without a transfer SlowDisk is %v, or the disk was not blamed", l.shard.SlowDisk())
		}
		w.endAll()
	})
}

// unfit returns the replicas that leadership should not be transferred to, according to the leader.
func unfit(t *testing.T, l *life) (ids []uint64) {
	st, err := l.shard.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id, p := range st.Progress {
		if p.Unfit {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// A replica is unfit to lead as soon as some heartbeats are unanswered, long before it counts as silent, and for a while after it failed
// to take over: the more often, the longer. All of this is forgotten at the end of the leader's term.
func TestUnfitToLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := calmGroup(t)
		l := w.leader()
		to := w.nodes[l.num%3]
		is := func(when string, want ...uint64) {
			t.Helper()
			if got := unfit(t, l); !slices.Equal(got, want) {
				t.Errorf("%s: unfit replicas are %v, want %v", when, got, want)
			}
		}
		time.Sleep(time.Second)
		is("at rest")
		w.isolate(to.num, true, true)
		time.Sleep(200 * time.Millisecond)
		is("silent for 200 ms")
		time.Sleep(400 * time.Millisecond)
		is("silent for 600 ms", to.id)
		w.heal()
		time.Sleep(200 * time.Millisecond)
		is("heard of again")

		backoff := firstBackoff
		for range 8 {
			w.isolate(to.num, true, true)
			if err := l.shard.Transfer(t.Context(), to.id, "test"); !errors.Is(err, ErrNoTransfer) {
				t.Fatalf("a transfer to a replica that is cut off: %v", err)
			}
			w.heal()
			time.Sleep(backoff - 20*time.Millisecond)
			is(fmt.Sprintf("just before %v are over", backoff), to.id)
			time.Sleep(40 * time.Millisecond)
			is(fmt.Sprintf("after %v", backoff))
			backoff = min(2*backoff, maxBackoff)
		}
		w.isolate(to.num, true, true)
		if err := l.shard.Transfer(t.Context(), to.id, "test"); !errors.Is(err, ErrNoTransfer) {
			t.Fatalf("a transfer to a replica that is cut off: %v", err)
		}
		w.heal()
		time.Sleep(time.Second)
		is("of a long backoff a second", to.id)
		third := w.nodes[(l.num+1)%3]
		if err := l.shard.Transfer(t.Context(), third.id, "test"); err != nil {
			t.Fatal(err)
		}
		if err := w.leader().shard.Transfer(t.Context(), l.id, "test"); err != nil {
			t.Fatal(err)
		}
		w.leader()
		time.Sleep(time.Second)
		is("in another term")
		w.endAll()
	})
}

// A barred replica transfers leadership to one that is alive, even if another one, which has just died, has as much log. If nobody can
// stand in for it, it continues to lead as long as it can.
func TestBarredWhileAnotherDied(t *testing.T) {
	for dead := range 3 {
		synctest.Test(t, func(t *testing.T) {
			w, _ := calmGroup(t)
			l := w.leader()
			time.Sleep(time.Second)
			var gone []*node
			for _, n := range slices.Backward(w.nodes) { // of several with as much log, the last is taken
				if n != l.node && len(gone) < dead {
					n.end(false)
					gone = append(gone, n)
				}
			}
			l.shard.Bar("it stops")
			if dead == 2 { // nobody to ask, until it notices that nobody is alive
				time.Sleep(300 * time.Millisecond)
				if _, serves := l.shard.Now(); !serves || !l.shard.Leads() {
					t.Error("the barred replica gave up leadership with no other replica alive")
				}
				w.endAll()
				return
			}
			began := time.Now()
			for w.leader() == l {
				if time.Sleep(10 * time.Millisecond); time.Since(began) > 2*time.Second {
					t.Fatalf("with %d replicas down the barred replica still leads", dead)
				}
			}
			if dead == 1 {
				w.leader().end(false)
				time.Sleep(3 * time.Second)
				if _, serves := l.shard.Now(); serves || l.shard.Leads() {
					t.Error("the barred replica leads alone")
				}
			}
			w.endAll()
		})
	}
}

// The replica with the lowest number is as good as any other.
func TestBarredInFavourOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := calmGroup(t)
		time.Sleep(time.Second)
		if l := w.leader(); l.id != 3 {
			if err := l.shard.Transfer(t.Context(), 3, "test"); err != nil {
				t.Fatal(err)
			}
		}
		w.nodes[1].end(true)
		time.Sleep(time.Second)
		w.nodes[2].alive().shard.Bar("it stops")
		time.Sleep(time.Second)
		if l := w.leader(); l.id != 1 {
			t.Errorf("replica %d leads, want 1", l.id)
		}
		w.endAll()
	})
}

// Leadership is not transferred to a replica that does not vote, and a barred replica does not accept it.
func TestRefusedTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGroup(t, 12, 3, 2, new(sometimes))
		w.calm = true
		w.nodes[2].start(0)
		w.change(Change{3, Learner})
		w.caughtUp(3)
		l := w.leader()
		if err := l.shard.Transfer(t.Context(), 3, "test"); !errors.Is(err, ErrNoTransfer) ||
			!strings.Contains(err.Error(), "does not vote") {
			t.Errorf("Transfer to a learner returned %v", err)
		}
		st, err := l.shard.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other := w.nodes[l.num%2].alive()
		for _, why := range []string{"it stops", ""} {
			other.shard.Bar(why)
			now := &pb.Message{Type: pb.MsgTimeoutNow.Enum(), From: new(l.id), To: new(other.id), Term: new(st.Term)}
			if err := other.shard.Step(now); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			if took := w.leader() == other; took != (why == "") {
				t.Errorf("barred because %q: the replica took over: %v", why, took)
			}
		}
		w.endAll()
	})
}

// Only messages from the leader's own term are signs of life.
func TestStaleMessagesAreNotHeartbeats(t *testing.T) {
	l := &loop{term: 5, leading: &leading{}, upkeep: &upkeep{ticks: 9}}
	l.transfers.l = l
	l.transfers.reset()
	l.transfers.notePeer(&pb.Message{From: new(uint64(2)), Term: new(uint64(4))}, false)
	l.transfers.notePeer(&pb.Message{From: new(uint64(3)), Term: new(uint64(5))}, false)
	if at, heard := l.transfers.heardAt[2]; heard || l.transfers.heardAt[3] != 9 {
		t.Errorf("after an old message replica 2 was heard at %d, %v; replica 3 at %d, want 9", at, heard, l.transfers.heardAt[3])
	}
}

// Every change of leader is one line in the new leader's log: from which node, to which, and why.
func TestChangesOfLeaderAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, lines := calmGroup(t)
		said := 0
		is := func(when string, l *life, parts ...string) {
			t.Helper()
			all := lines.about("new leader")
			if len(all) != said+1 {
				t.Fatalf("%s: the log has %d new lines, want 1: %q", when, len(all)-said, all)
			}
			said++
			for _, part := range append(parts, fmt.Sprintf("to=%d ", l.num), "shard=1", "replica=1.0") {
				if !strings.Contains(all[said-1], part) {
					t.Errorf("%s: the log has %q, want %s", when, all[said-1], part)
				}
			}
		}
		first := w.leader()
		is("at the start", first, `from=""`, `why="elected, as no leader was known"`)
		time.Sleep(time.Second)
		second := w.nodes[first.num%3].alive()
		if err := first.shard.Transfer(t.Context(), second.id, "its disk is full"); err != nil {
			t.Fatal(err)
		}
		w.leader()
		is("handed over", second, fmt.Sprintf("from=%d ", first.num), `why="handed over: its disk is full"`)
		time.Sleep(time.Second)
		second.end(false)
		third := w.leader()
		is("died", third, fmt.Sprintf("from=%d ", second.num), `why="elected: the previous leader had been silent for 1`)
		w.isolate(third.num, true, true)
		time.Sleep(5 * time.Second)
		if lost := lines.about("stepped down"); len(lost) != 1 || !strings.Contains(lost[0], "level=WARN") {
			t.Errorf("the log of a leader that was cut off: %q", lost)
		}
		w.heal()
		w.leader()
		time.Sleep(5 * time.Second)
		if last := w.leader(); last == third { // no other leader was elected meanwhile
			is("cut off, and back", last, fmt.Sprintf("from=%d ", third.num), `why="elected again"`)
		}
		if raft := append(lines.about("level=WARN msg=raft"), lines.about("level=ERROR msg=raft")...); len(raft) != 0 {
			t.Errorf("Raft's own lines were logged: %q", raft)
		}
		w.endAll()
	})
}

// A probe appended to Raft's contexts is removed again, and nothing else is.
func TestSplitProbe(t *testing.T) {
	if _, _, ok := splitProbe(make([]byte, probeSize)); ok {
		t.Error("a context of another kind is a probe")
	}
	raws := [][]byte{nil, {1, 2, 3, 4, 5, 6, 7, 8}}
	for _, raw := range raws {
		l := &loop{transfers: transfers{current: &transfer{to: 2, probe: 7}}}
		m := &pb.Message{Type: pb.MsgHeartbeat.Enum(), To: new(uint64(2)), Context: raw}
		l.transfers.addProbe(m)
		got, probe, ok := splitProbe(m.GetContext())
		if !ok || probe != 7 || !slices.Equal(got, raw) {
			t.Errorf("%v with a probe was split into %v, probe %d, %v", raw, got, probe, ok)
		}
		if got, _, ok := splitProbe(raw); ok || !slices.Equal(got, raw) {
			t.Errorf("splitProbe(%v) without a probe = %v, %v", raw, got, ok)
		}
		answer := func(from, probe uint64) bool {
			l.transfers.current.probe = probe
			sent := &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: new(from), Context: m.GetContext()}
			ready := l.transfers.answersProbe(sent)
			if !slices.Equal(sent.GetContext(), raw) {
				t.Errorf("Raft receives context %v, want %v", sent.GetContext(), raw)
			}
			return ready
		}
		if !answer(2, 7) || answer(3, 7) || answer(2, 8) {
			t.Error("an answer from another replica or to another probe counted, or the right one did not")
		}
		other := &pb.Message{Type: pb.MsgHeartbeat.Enum(), To: new(uint64(3)), Context: raw}
		if l.transfers.addProbe(other); !slices.Equal(other.GetContext(), raw) {
			t.Errorf("another replica is asked: %v", other.GetContext())
		}
	}
}
