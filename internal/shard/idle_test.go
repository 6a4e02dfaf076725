package shard

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// ticking reports whether a replica runs Raft's ticks.
func (l *life) ticking(t *testing.T) bool {
	needs := make(chan bool, 1)
	if err := l.shard.runOnLoop(t.Context(), func(l *loop) { needs <- l.needsTicks() }); err != nil {
		t.Fatal(err)
	}
	return <-needs
}

// A replica that is alone sleeps when nothing has been written for a while, and only then.
func TestIdleReplicaSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGroup(t, 1, 2, 1, new(sometimes))
		c := w.clients(1)[0]
		l := w.leader()
		for range 3 {
			w.countOnce(c)
			if !l.ticking(t) {
				t.Error("the replica stopped ticking right after a write")
			}
			w.wait(time.Minute)
			if l.ticking(t) {
				t.Error("the replica still ticks after a minute without a write")
			}
		}
		// A replica that no longer belongs to the group asks for a vote in a later term, which ends the leadership.
		_, term := l.shard.Leader()
		if err := l.shard.Step(&pb.Message{Type: pb.MsgVote.Enum(), From: new(uint64(2)), To: new(l.id), Term: new(term + 5),
			Context: []byte("CampaignTransfer")}); err != nil {
			t.Fatal(err)
		}
		w.wait(10 * time.Second)
		if _, now := l.shard.Leader(); now <= term+5 {
			t.Errorf("the replica leads in term %d after it received a message of term %d", now, term+5)
		}
		if _, serves := l.shard.Now(); serves {
			w.countOnce(c)
		} else {
			t.Error("the replica no longer serves calls")
		}
		w.endAll()
	})
}

// An idle leader continues to send heartbeats if there is another replica: otherwise a voter would start an election, and a
// learner that restarts would not hear about the leader.
func TestIdleGroupsStayTogether(t *testing.T) {
	for _, c := range []struct {
		name     string
		machines int
		voters   int
	}{{"three voters", 3, 3}, {"a voter and a learner", 2, 1}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newGroup(t, 1, c.machines, c.voters, new(sometimes))
				client := w.clients(1)[0]
				w.countOnce(client)
				last := w.nodes[c.machines-1]
				if c.voters == 1 {
					w.wait(time.Minute) // so that it sleeps before it has a learner
					last.start(0)
					w.change(Change{last.id, Learner})
					w.caughtUp(last.id)
				}
				l := w.leader()
				_, term := l.shard.Leader()
				w.wait(5 * time.Minute)
				if leader, now := l.shard.Leader(); leader != l.id || now != term {
					t.Errorf("replica %d led in term %d; after five idle minutes replica %d leads in term %d", l.id, term, leader, now)
				}
				if last.id == l.id {
					last = w.nodes[0]
				}
				last.end(true)
				w.wait(time.Minute)
				last.start(0)
				w.wait(10 * time.Second)
				if leader, _ := last.alive().shard.Leader(); leader != l.id {
					t.Errorf("replica %d believes that %d leads, but %d does", last.id, leader, l.id)
				}
				w.endAll()
			})
		})
	}
}

// A leader drops the buffers of a large round soon after it, and only then sleeps.
func TestBuffersOfLargeRoundAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{})
		defer b.close()
		check := func(what string, size int, holds bool) {
			t.Helper()
			b.onLoop(func(l *loop) {
				for buffer, got := range map[string]int{"shard's": cap(l.sealed), "store's": l.cfg.State.BufferedBytes(),
					"both": l.buffered() / 2} {
					if (got >= size) != holds {
						t.Errorf("%s a round of %d bytes, the %s buffers have %d bytes; that they hold the round should be %v", what, size,
							buffer, got, holds)
					}
				}
				if got, want := l.needsTicks(), what == "after"; got != want {
					t.Errorf("%s a round of %d bytes, the loop needs ticks: %v, want %v", what, size, got, want)
				}
			})
		}
		for _, size := range []int{2 * idleBuffers, 100, maxSealed / 2} {
			time.Sleep(time.Minute)
			if _, err := b.set("k", strings.Repeat("v", size)); err != nil {
				t.Fatal(err)
			}
			check("after", size, true)
			time.Sleep((dropTicks + 1) * b.cfg.TickInterval)
			check("soon after", size, size < idleBuffers)
		}
	})
}
