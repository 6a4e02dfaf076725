package shard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/store"
)

// group is a world of n machines, of which the first have a replica.
func newGroup(t *testing.T, seed uint64, machines, replicas int, some *sometimes) *world {
	w := newWorld(t, seed, machines, some)
	for i, n := range w.nodes {
		if n.voters = w.nodes[0].voters[:replicas]; i >= replicas {
			n.voters = nil
		}
	}
	w.nodes[0].voters = w.nodes[0].voters[:replicas]
	for _, n := range w.nodes[:replicas] {
		n.start(0)
	}
	return w
}

// leader waits until some replica serves, and returns it.
func (w *world) leader() *life {
	for range 3000 {
		for _, n := range w.nodes {
			if l := n.alive(); l != nil {
				if _, serves := l.shard.Now(); serves {
					return l
				}
			}
		}
		w.wait(10 * time.Millisecond)
	}
	w.errorf("no leader for 30 s")
	w.t.FailNow()
	return nil
}

// onLeader repeats a function on the leader until it succeeds.
func (w *world) onLeader(what string, do func(context.Context, *life) error) {
	var last error
	for range 600 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		last = do(ctx, w.leader())
		cancel()
		if last == nil {
			return
		}
		w.wait(50 * time.Millisecond)
	}
	w.errorf("%s: %v", what, last)
	w.t.FailNow()
}

func (w *world) change(changes ...Change) {
	w.onLeader(fmt.Sprintf("change %v", changes), func(ctx context.Context, l *life) error { return l.shard.Change(ctx, nil, changes...) })
}

// caughtUp waits until the replicas have everything that the leader has.
func (w *world) caughtUp(ids ...uint64) {
	w.onLeader(fmt.Sprintf("catch up of %v", ids), func(ctx context.Context, l *life) error {
		st, err := l.shard.Status(ctx)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if p := st.Progress[id]; id != st.Replica && (p.Match+20 < st.Applied || p.Snapshotting) {
				return fmt.Errorf("replica %d is at %d of %d", id, p.Match, st.Applied)
			}
		}
		return nil
	})
}

// renew gives a machine an empty disk, and a new replica id.
func (n *node) renew() {
	n.id += 1 << 32 // under its old id it would have forgotten its votes and entries
	n.voters, n.mem, n.ran = nil, vfs.NewCrashableMem(), false
}

// A replica that refuses its snapshot, as without room for it, is not sent it again and again, and gets it soon after it has room.
func TestRefusedSnapshotWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGroup(t, 1, 2, 1, new(sometimes))
		w.keepBytes = 4 << 10
		c := w.clients(1)[0]
		for range 300 {
			w.countOnce(c)
		}
		var sent atomic.Int64
		var full atomic.Bool
		full.Store(true)
		w.full = func() error {
			if sent.Add(1); full.Load() {
				return errors.New("no room")
			}
			return nil
		}
		w.nodes[1].start(0)
		w.change(Change{2, Learner})
		w.wait(5 * time.Minute)
		// After 0.25, 0.5, ... 16 s, then every 30 s and what a heartbeat takes.
		if n := sent.Load(); n < 12 || n > 20 {
			t.Errorf("it was sent %d times in 5 minutes", n)
		}
		full.Store(false)
		w.setCalm(true)
		w.wait(maxResend + 5*time.Second)
		if at, want := w.nodes[1].alive().state.Applied().Index, w.leader().state.Applied().Index; at != want {
			t.Errorf("with room for it, it is at entry %d, want %d", at, want)
		}
		w.endAll()
	})
}

// A new replica gets the state as a snapshot, as does one that was away for long, and a new membership works like the old one.
func TestGrowAndMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		some := new(sometimes)
		w := newGroup(t, 1, 4, 1, some)
		w.keepBytes = 4 << 10
		lines := new(logLines)
		w.log = slog.New(slog.NewTextHandler(lines, nil))
		c := w.clients(1)[0]
		for range 300 {
			w.countOnce(c)
		}
		for _, n := range w.nodes[1:3] {
			n.start(0)
			w.change(Change{n.id, Learner})
		}
		w.caughtUp(2, 3)
		w.change(Change{2, Voter}, Change{3, Voter})
		w.nodes[0].end(false) // the other two continue
		w.countOnce(c)
		w.nodes[0].start(0)
		w.onLeader("transfer", func(ctx context.Context, l *life) error { return l.shard.Transfer(ctx, 1, "test") })
		if l := w.leader(); l.id != 1 {
			t.Errorf("after the transfer replica %d leads, want 1", l.id)
		}
		// The third moves to the fourth machine.
		w.nodes[3].start(0)
		w.change(Change{4, Learner})
		w.caughtUp(4)
		w.change(Change{4, Voter}, Change{3, Gone})
		w.nodes[2].end(true)
		w.nodes[2].renew()
		st, err := w.leader().shard.Status(t.Context())
		if err != nil || !slices.Equal(st.Voters, []uint64{1, 2, 4}) {
			t.Errorf("the voters are %v, %v, want 1, 2 and 4", st.Voters, err)
		}
		w.countOnce(c)
		w.settle([]*client{c})
		w.compareHashes()
		w.endAll()
		some.want(t, "snapshot installed")
		if n := len(lines.about("is now a voter")); n != 3 {
			t.Errorf("the log has %d new voters, want 3: 2 and 3, then 4", n)
		}
	})
}

// A founder that loses power anywhere while others become voters never leads beside a leader that they have elected since, although its
// state still says that it is the only voter: its log says that it no longer is.
func TestFounderThatIsNoLongerAlone(t *testing.T) {
	some := new(sometimes)
	for fuse, blown := 1, true; blown; fuse++ {
		synctest.Test(t, func(t *testing.T) {
			w := newGroup(t, uint64(fuse), 3, 1, some)
			w.roomy = true
			c := w.clients(1)[0]
			w.countOnce(c)
			for _, n := range w.nodes[1:] {
				n.start(0)
				w.change(Change{n.id, Learner})
			}
			w.caughtUp(2, 3)
			founder := w.nodes[0].alive()
			founder.fuse.Store(int64(fuse))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = founder.shard.Change(ctx, nil, Change{2, Voter}, Change{3, Voter})
			cancel()
			blown = founder.dead.Load()
			w.nodes[0].end(false)
			w.wait(5 * time.Second)
			for _, n := range w.nodes[1:] {
				if _, leads := n.alive().shard.Now(); leads {
					some.hit("led by others")
				}
			}
			w.nodes[0].start(0)
			w.countOnce(c)
			w.settle([]*client{c})
			w.compare()
			w.endAll()
		})
	}
	some.want(t, "led by others", "power loss in a write", "power loss at rest")
}

// A leader that is removed no longer leads once the change is answered, and another replica takes over.
func TestRemovedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGroup(t, 1, 3, 3, new(sometimes))
		c := w.clients(1)[0]
		w.countOnce(c)
		old := w.leader()
		if err := old.shard.Change(t.Context(), nil, Change{old.id, Gone}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, leads := old.shard.Now(); leads {
			t.Error("a replica that is no longer a member still leads")
			w.endAll()
			return
		}
		w.countOnce(c)
		old.node.end(true)
		w.countOnce(c)
		w.settle([]*client{c})
		w.compareHashes()
		w.endAll()
	})
}

// What is sent to a replica that does not answer is bounded in bytes, also if each message has one large entry.
func TestBytesInFlight(t *testing.T) {
	cfg := Config{Replica: 1}
	cfg.setDefaults()
	log := raft.NewMemoryStorage()
	start := metadata(store.Position{Index: 1, Term: 1}, &pb.ConfState{Voters: []uint64{1}, Learners: []uint64{2}})
	if err := log.ApplySnapshot(&pb.Snapshot{Metadata: start}); err != nil {
		t.Fatal(err)
	}
	r, err := raft.NewRawNode(cfg.raftConfig(log, 1))
	if err != nil {
		t.Fatal(err)
	}
	large, sent := make([]byte, cfg.Limits.CallBytes), 0
	turn := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for r.HasReady() {
			rd := r.Ready()
			if err := log.Append(rd.Entries); err != nil {
				t.Fatal(err)
			}
			for _, m := range rd.Messages {
				for _, e := range m.GetEntries() {
					sent += len(e.GetData())
				}
			}
			r.Advance(rd)
		}
	}
	turn(r.Campaign())
	turn(r.Step(&pb.Message{Type: pb.MsgAppResp.Enum(), From: new(uint64(2)), To: new(uint64(1)),
		Term: new(r.BasicStatus().HardState.GetTerm()), Index: new(uint64(2))}))
	for range 2 * maxInflight * maxMessage / len(large) {
		turn(r.Propose(large))
	}
	if most := maxInflight*maxMessage + len(large); sent < len(large) || sent > most {
		t.Errorf("%d bytes are in flight, want some and at most %d", sent, most)
	}
}

// A snapshot that arrives while the replica's state is read is installed when the read has ended, and until then the
// read sees the old state.
func TestSnapshotWaitsForReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		some := new(sometimes)
		w := newGroup(t, 1, 2, 1, some)
		w.keepBytes = 4 << 10
		c := w.clients(1)[0]
		w.countOnce(c)
		w.nodes[1].start(0)
		w.change(Change{2, Learner})
		w.caughtUp(2)
		w.isolate(2, true, true)
		for range 300 {
			w.countOnce(c)
		}
		rows := func(from store.Reader) (all string) {
			from.Scan(nil, nil, func(key, value []byte) bool {
				all += fmt.Sprintf("%q %q\n", key, value)
				return true
			})
			return all
		}
		lagging := w.nodes[1].alive()
		at := lagging.state.Applied().Index
		reading, goOn, ended := make(chan string, 1), make(chan struct{}), make(chan string, 1)
		go func() {
			again, _, _, err := Peek(t.Context(), lagging.shard, func(from store.Reader) (string, error) {
				reading <- rows(from)
				<-goOn
				return rows(from), nil
			})
			if err != nil {
				w.errorf("the read ended with %v", err)
			}
			ended <- again
		}()
		before := <-reading
		w.heal()
		w.wait(10 * time.Second)
		if now := lagging.state.Applied().Index; now != at {
			t.Errorf("while it is read, the state moved from entry %d to %d", at, now)
		}
		close(goOn)
		if after := <-ended; after != before || before == "" {
			t.Errorf("the read saw %q, then %q", before, after)
		}
		w.caughtUp(2)
		w.settle([]*client{c})
		w.endAll()
		some.want(t, "snapshot installed")
	})
}

// compareHashes makes all replicas hash the same state, and compares the hashes.
func (w *world) compareHashes() {
	var index uint64
	w.onLeader("mark", func(ctx context.Context, l *life) (err error) {
		index, err = l.shard.StartHash(ctx, Range{})
		return err
	})
	want := Hash{}
	for _, n := range w.nodes {
		l := n.alive()
		if l == nil {
			continue
		}
		for tries := 0; ; tries++ {
			got, ok := l.shard.Hash(index)
			if ok && want.Index == 0 {
				want = got
			}
			if ok && got != want {
				w.errorf("node %d hashes %+v, another %+v", n.num, got, want)
			}
			if ok {
				break
			}
			if tries == 100 {
				w.errorf("node %d has no hash of entry %d", n.num, index)
				break
			}
			w.wait(50 * time.Millisecond)
		}
	}
	if want.Rows == 0 {
		w.errorf("the hash is of nothing")
	}
}

func (w *world) endAll() {
	for _, n := range w.nodes {
		if n.alive() != nil {
			n.end(true)
		}
	}
}

// Replicas come and go amid all other faults: machines lose power and their disks, links are cut, snapshots are
// interrupted and damaged.
func TestMembership(t *testing.T) {
	whats := []string{
		"snapshot installed", "snapshot cut", "snapshot damaged", "snapshot refused", "replica added", "replica promoted", "voter replaced",
		"leader removed", "replica removed", "leadership handed over", "disk lost", "disk of a voter lost", "lost replica removed",
		"unknown outcome", "all lose power", "isolated", "disk fails", "disk hangs", "clock jump",
	}
	if reshapes < 40 {
		whats = nil // too few seeds to see everything
	}
	eachSeed(t, memberSeeds, whats, func(t *testing.T, seed uint64, some *sometimes) {
		w := newGroup(t, seed, 5, 1+int(seed%3), some)
		w.keepBytes = uint64(2+w.intn(60)) << 10
		cs := w.clients(4)
		stop := make(chan struct{})
		wg := runAll(cs, stop)
		for range reshapes {
			w.reshape()
			w.upset()
			w.wait(w.ms(1500))
		}
		close(stop)
		wg.Wait()
		w.heal()
		for _, n := range w.nodes {
			if n.alive() == nil {
				n.start(0)
			}
		}
		w.settle(cs)
		st := w.membership()
		for lost := w.lostMember(st); lost != 0; lost = w.lostMember(st) {
			w.change(Change{lost, Gone})
			st = w.membership()
		}
		w.caughtUp(append(st.Voters, st.Learners...)...)
		for _, n := range w.nodes { // removed members don't count
			if !slices.Contains(append(st.Voters, st.Learners...), n.id) {
				n.end(true)
			}
		}
		w.compareHashes()
		w.endAll()
	})
}

// membership returns the leader's status, once no joint membership is in force.
func (w *world) membership() (st Status) {
	w.onLeader("status", func(ctx context.Context, l *life) (err error) {
		if st, err = l.shard.Status(ctx); err == nil && (!st.Leading || len(st.VotersOutgoing) > 0) {
			return errors.New("not settled")
		}
		return err
	})
	return st
}

// try runs a function on the leader once. It may fail.
func (w *world) try(what string, do func(context.Context, *life) error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := do(ctx, w.leader()); err != nil {
		return false
	}
	w.some.hit(what)
	return true
}

// reshape takes one step that a membership controller would take. Links are whole at its start, so that it makes
// progress.
func (w *world) reshape() {
	w.heal()
	for _, n := range w.nodes {
		if n.alive() == nil {
			n.start(0)
		}
	}
	st := w.membership()
	n := w.nodes[w.intn(len(w.nodes))]
	if lost := w.lostMember(st); lost != 0 {
		w.try("lost replica removed", func(ctx context.Context, l *life) error { return l.shard.Change(ctx, nil, Change{lost, Gone}) })
		return
	}
	voter, learner := slices.Contains(st.Voters, n.id), slices.Contains(st.Learners, n.id)
	switch {
	case learner:
		if w.intn(4) == 0 {
			w.remove(n, "replica removed")
			return
		}
		changes := []Change{{n.id, Voter}}
		what := "replica promoted"
		if len(st.Voters) > 2 { // replacing another one
			old := st.Voters[w.intn(len(st.Voters))]
			changes = append(changes, Change{old, Gone})
			if what = "voter replaced"; old == st.Leader {
				what = "leader removed"
			}
		}
		w.caughtUp(n.id)
		w.try(what, func(ctx context.Context, l *life) error { return l.shard.Change(ctx, nil, changes...) })
	case voter && w.intn(2) == 0:
		w.try("leadership handed over", func(ctx context.Context, l *life) error { return l.shard.Transfer(ctx, n.id, "test") })
	case !voter:
		n.end(false)
		n.renew()
		w.some.hit("disk lost")
		n.start(0)
		w.try("replica added", func(ctx context.Context, l *life) error { return l.shard.Change(ctx, nil, Change{n.id, Learner}) })
	case len(st.Voters) > 3:
		w.remove(n, "replica removed")
	}
}

// lostMember returns a replica that no machine has any more; 0: none.
func (w *world) lostMember(st Status) uint64 {
	for _, id := range append(st.Voters, st.Learners...) {
		if !slices.ContainsFunc(w.nodes, func(n *node) bool { return n.id == id }) {
			return id
		}
	}
	return 0
}

func (w *world) remove(n *node, what string) {
	w.try(what, func(ctx context.Context, l *life) error { return l.shard.Change(ctx, nil, Change{n.id, Gone}) })
}

// upset disturbs a machine or a link, perhaps until the next reshape.
func (w *world) upset() {
	n := w.nodes[w.intn(len(w.nodes))]
	if w.intn(2) == 0 {
		n = w.leader().node
	}
	switch w.intn(8) {
	case 0, 1:
		w.powerLoss(n)
	case 2:
		w.cutOff(n)
	case 3:
		w.cutOneWay(n)
	case 4:
		w.allLosePower()
	case 5: // only with three or more, so that the others have everything
		if st := w.membership(); len(st.Voters) > 2 && slices.Contains(st.Voters, n.id) && w.lostMember(st) == 0 {
			w.some.hit("disk of a voter lost")
			n.end(false)
			n.renew()
			n.start(0)
		}
	case 6:
		w.loseDisk(n, n.alive().someFault())
	case 7:
		w.clockJump(n)
	}
}

// What a follower shows of its own state was true, and it knows the maximum age.
func TestPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 3, new(sometimes))
		for _, n := range w.nodes {
			n.start(0)
		}
		c := w.clients(1)[0]
		w.countOnce(c)
		follower := w.nodes[w.leader().num%3]
		peek := func() (uint64, time.Duration) {
			got, _, age, err := Peek(t.Context(), follower.alive().shard, func(r store.Reader) (uint64, error) {
				return number(r, c.key), nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return got, age
		}
		for got, _ := peek(); got != c.lo; got, _ = peek() {
			w.wait(10 * time.Millisecond)
		}
		if _, age := peek(); age > time.Second {
			t.Errorf("the follower reported an age of %v, want at most 1 s", age)
		}
		w.wait(10 * time.Second)
		w.onLeader("mark", func(ctx context.Context, l *life) error { _, err := l.shard.StartHash(ctx, Range{}); return err })
		w.wait(100 * time.Millisecond)
		if _, age := peek(); age > time.Second {
			t.Errorf("the follower reported an age of %v right after a message from its leader, want at most 1 s", age)
		}
		w.isolate(follower.num, true, true)
		before := c.lo
		w.countOnce(c)
		w.wait(10 * time.Second)
		if got, age := peek(); got != before || age < 10*time.Second || age > 12*time.Second {
			t.Errorf("after 10 s without its leader the follower returned %d at an age of %v, want %d at 10 to 12 s", got, age, before)
		}
		w.endAll()
	})
}

// What a lone replica shows is never old. What a leader shows may be as old as an election timeout, since another one may lead.
func TestAgeOfALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{})
		w, _ := calmGroup(t)
		leader := w.leader()
		if _, err := b.set("k", "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for _, c := range []struct {
			*Shard
			want time.Duration
		}{{b.Shard, 0}, {leader.shard, time.Second}} {
			if _, _, age, err := Peek(t.Context(), c.Shard, func(store.Reader) (int, error) { return 0, nil }); err != nil ||
				age != c.want {
				t.Errorf("the age is %v, %v, want %v", age, err, c.want)
			}
		}
		b.close()
		w.endAll()
	})
}

// A caller may leave while the loop is busy. The view that it did not wait for is closed.
func TestPeekIsLeft(t *testing.T) {
	b := startBench(t, fixture{})
	held, release := make(chan struct{}), make(chan struct{})
	if err := b.runOnLoop(t.Context(), func(*loop) { close(held); <-release }); err != nil {
		t.Fatal(err)
	}
	<-held
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, _, _, err := Peek(ctx, b.Shard, func(store.Reader) (int, error) { return 0, nil })
		left <- err
	}()
	for len(b.loopFuncs) == 0 { // until it waits for the loop
		runtime.Gosched()
	}
	leave()
	select {
	case err := <-left:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Peek after its caller left: %v, want cancelled", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Peek does not return before the loop is free")
	}
	close(release)
	b.close() // waits for open views
}

// A replica that is barred from leading hands over, and does not lead again.
func TestBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4, 3, new(sometimes))
		for _, n := range w.nodes {
			n.start(0)
		}
		old := w.leader()
		old.shard.Bar("its clock is wrong")
		for range 5 {
			w.wait(3 * time.Second)
			if l := w.leader(); l == old {
				t.Error("the barred replica leads")
			}
			w.leader().end(false) // the others take over
			w.wait(5 * time.Second)
			for _, n := range w.nodes {
				if n.alive() == nil {
					n.start(0)
				}
			}
		}
		w.endAll()
	})
}

// A message from the leader counts only once all entries that it announced are applied. Older messages, those from
// other replicas and empty ones never count.
func TestAnnouncedEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{})
		defer b.close()
		if _, err := b.set("a", "1"); err != nil {
			t.Fatal(err)
		}
		b.onLoop(func(l *loop) {
			at := l.cfg.State.Applied().Index
			for _, c := range []struct {
				what        string
				kind        pb.MessageType
				from        uint64
				said        uint64
				commit      uint64
				told, fresh store.Time
			}{
				{"all is here", pb.MsgApp, 1, 100, at, 100, 0},
				{"there is more", pb.MsgApp, 1, 200, at + 5, 200, 100},
				{"older", pb.MsgApp, 1, 150, at, 200, 100},
				{"by another", pb.MsgApp, 2, 300, at, 200, 100},
				{"a heartbeat", pb.MsgHeartbeat, 1, 300, at, 200, 100},
				{"still more", pb.MsgApp, 1, 300, at + 9, 300, 100},
				{"again", pb.MsgApp, 1, 300, at, 300, 100},
			} {
				l.freshness.noteCommit(&pb.Message{Type: c.kind.Enum(), From: new(c.from), Commit: new(c.commit),
					Context: binary.BigEndian.AppendUint64(nil, c.said)})
				if n := l.freshness; n.latest.sent != c.told || n.applied.sent != c.fresh {
					t.Errorf("%s: latest message sent at %d, applied up to one sent at %d, want %d and %d", c.what, n.latest.sent,
						n.applied.sent, c.told, c.fresh)
				}
			}
		})
	})
}

// Peek does not wait if its context has ended, and returns an error at a stopped replica.
func TestPeekEnds(t *testing.T) {
	b := startBench(t, fixture{})
	over, cancel := context.WithCancel(context.Background())
	cancel()
	look := func(ctx context.Context) error {
		_, _, _, err := Peek(ctx, b.Shard, func(store.Reader) (int, error) { return 0, nil })
		return err
	}
	for range 50 { // by chance there may be enough time
		if err := look(over); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Peek with a cancelled context: %v", err)
		}
	}
	b.close()
	if err := look(context.Background()); !errors.Is(err, ErrStopped) {
		t.Errorf("Peek after Stop: %v, want ErrStopped", err)
	}
	for range 50 { // nobody may receive it, or it may be left in the channel
		if index, err := b.StartHash(context.Background(), Range{}); index != 0 || !errors.Is(err, ErrStopped) &&
			!errors.Is(err, ErrUnknown) {
			t.Errorf("StartHash after Stop: entry %d, %v", index, err)
		}
	}
}

// A change that is unnecessary, or that its caller or Raft refuses when its turn comes, changes nothing and returns that result.
func TestUnneededMembershipChanges(t *testing.T) {
	b := startBench(t, fixture{})
	ctx := context.Background()
	refused := errors.New("not as things are")
	for _, c := range []struct {
		unless  func(Status) error
		changes []Change
		want    error
	}{
		{func(Status) error { return ErrNothing }, []Change{{2, Learner}}, nil},
		{func(st Status) error { return fmt.Errorf("%w: voters are %v", refused, st.Voters) }, []Change{{2, Learner}}, refused},
		{nil, nil, ErrChangeRefused}, // leaving a joint membership where there is none
	} {
		if err := b.Change(ctx, c.unless, c.changes...); !errors.Is(err, c.want) {
			t.Errorf("change %v: %v, want %v", c.changes, err, c.want)
		}
		if st := b.status(); !slices.Equal(st.Voters, []uint64{1}) || len(st.Learners) > 0 {
			t.Errorf("after change %v the members are %+v, want voter 1 alone", c.changes, st)
		}
	}
	if err := b.Change(ctx, nil, Change{2, Learner}); err != nil {
		t.Error(err)
	}
	if st := b.status(); !slices.Equal(st.Voters, []uint64{1}) || !slices.Equal(st.Learners, []uint64{2}) || st.Progress[2].Active {
		t.Errorf("with a learner that never started: %+v", st)
	}
	b.close()
	for index, want := range map[uint64]error{0: ErrStopped, 5: ErrUnknown} {
		l := &loop{changes: changes{current: &change{index: index, done: make(chan error, 1)}}}
		c := l.changes.current
		if l.changes.abandon(ErrStopped); l.changes.current != nil {
			t.Error("it is under way still")
		}
		if err := <-c.done; err != want {
			t.Errorf("a change at entry %d ended with %v, want %v", index, err, want)
		}
	}
}

// A change of membership that can't be read ends the replica, and changes nothing.
func TestUnreadableMembershipChange(t *testing.T) {
	b := startBench(t, fixture{})
	b.onLoop(func(l *loop) {
		if err := l.changeConf(&pb.Entry{Index: new(uint64(7)), Data: []byte("what is this")}); err == nil ||
			!strings.HasPrefix(err.Error(),
				"entry 7: change of membership: ") {
			t.Errorf("the change returned %v", err)
		}
	})
	if st := b.status(); !slices.Equal(st.Voters, []uint64{1}) {
		t.Errorf("the voters are %v, want 1 alone", st.Voters)
	}
	b.close()
}

// While a change is in progress another one is refused, and the first one's caller still gets its answer.
func TestOneChangeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{})
		if err := b.Change(t.Context(), nil, Change{2, Voter}); err != nil { // it never starts, so nothing is committed from now on
			t.Fatal(err)
		}
		first := make(chan error, 1)
		go func() {
			_, err := b.StartHash(t.Context(), Range{})
			first <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := b.Change(ctx, nil, Change{2, Gone}); err != ErrChangeRefused {
			t.Errorf("a change during another one returned %v, want ErrChangeRefused", err)
		}
		if time.Sleep(time.Minute); len(first) == 0 {
			t.Error("the first change has no answer after the end of the term")
		} else if err := <-first; err != ErrUnknown {
			t.Errorf("the first change ended with %v, want ErrUnknown", err)
		}
		b.close()
	})
}

// A change that waits for a round starts when that is done, without waiting for a tick.
func TestChangeStartsAfterARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &change{done: make(chan error, 1)}
		b := startBench(t, fixture{beforeSeal: func(b *bench, _ *store.Tx) { b.loop.changes.current = c }})
		time.Sleep(time.Second)
		began := time.Now()
		if _, err := b.set("k", "v"); err != nil {
			t.Fatal(err)
		}
		if err := <-c.done; err != nil || time.Since(began) > 0 {
			t.Errorf("the change ended after %v with %v, want no time and no error", time.Since(began), err)
		}
		b.close()
	})
}

// A hash of a range says where the next one begins, and the ranges have all rows. A hash entry keeps its range, and a
// shorter one is refused.
func TestHashesOfRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{})
		defer b.close()
		for _, key := range []string{"a", "b", "c"} {
			if _, err := b.set(key, "1234567890"); err != nil {
				t.Fatal(err)
			}
		}
		var rows int64
		var starts []string
		for of := (Range{Size: 20}); ; {
			at, err := b.StartHash(t.Context(), of)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			h, ok := b.Hash(at)
			if !ok {
				t.Fatalf("there is no hash of %+v", of)
			}
			starts, rows = append(starts, of.From), rows+h.Rows
			if of.From = h.Next; of.From == "" {
				break
			}
		}
		if rows != 3 || !slices.Equal(starts, []string{"", "b\x00"}) {
			t.Errorf("ranges begin at %q and have %d rows, want two that have 3", starts, rows)
		}
		of := Range{From: "k", Size: 7}
		entry := hashEntry(5, of)
		if want := "\x02\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x07k"; string(entry) != want {
			t.Errorf("a hash entry is %q, want %q, as other nodes read it", entry, want)
		}
		if got, err := rangeOf(entry); got != of || err != nil {
			t.Errorf("the range %+v was read back as %+v, %v", of, got, err)
		}
		if _, err := rangeOf(entry[:hashEntryLen-1]); err == nil {
			t.Error("a hash entry that was cut off was read")
		}
	})
}

// A replica keeps its last four hashes.
func TestHashesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{})
		defer b.close()
		var marks []uint64
		for range 4 + 2 {
			at, err := b.StartHash(t.Context(), Range{})
			if err != nil {
				t.Fatal(err)
			}
			marks = append(marks, at)
			synctest.Wait()
		}
		for i, at := range marks {
			if h, ok := b.Hash(at); ok != (i >= 2) || ok && h.Index != at {
				t.Errorf("the hash for mark %d of %d: %+v, found %v", i, len(marks), h, ok)
			}
		}
	})
}
