package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
)

func quotasOf(backlog, bytes, running int64) task.QuotaChange {
	return task.QuotaChange{task.QuotaBacklog: backlog, task.QuotaBacklogBytes: bytes, task.QuotaRunning: running}
}

// shares returns the shards' shares of a namespace's backlog.
func (w *world) shares(ns string, shards int) (all []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for shard := range shards {
		all = append(all, w.space(uint32(shard)+1, ns).Share.Backlog)
	}
	return all
}

func (w *world) use(shard uint32, ns string, fn func(*task.Space)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn(w.space(shard, ns))
}

// All of the quotas belong to the shard that has the queue. A queue in another shard gets a share before it takes its first task.
func TestShareFollowsQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(3)
		_, err := c.Namespaces.Add(bg, namespaces.Call{Name: "team", Quotas: quotasOf(100, 0, 0)})
		must(t, err)
		first, err := c.Queues.PutQueue(bg, auditlog.Action{}, "team", "a", asItIs)
		must(t, err)
		if got := w.shares("team", 3)[first.Shard-1]; got != 100 {
			t.Errorf("the shard of the only queue has a share of %d, want 100", got)
		}
		w.use(first.Shard, "team", func(s *task.Space) { s.Use.Backlog = 40 })
		other := first
		for i := 0; other.Shard == first.Shard; i++ {
			other, err = c.Queues.PutQueue(bg, auditlog.Action{}, "team", fmt.Sprint("b", i), asItIs)
			must(t, err)
		}
		got := w.shares("team", 3)
		if got[first.Shard-1] < 50 || got[other.Shard-1] < 15 || got[first.Shard-1]+got[other.Shard-1] != 100 {
			t.Errorf("shares are %v, with 40 used in shard %d and a new queue in shard %d", got, first.Shard, other.Shard)
		}
		// If one shard refuses tasks while another has room, part of that share moves within moments.
		w.use(other.Shard, "team", func(s *task.Space) { s.Use.Backlog = s.Share.Backlog; s.Refused[0]++ })
		pass(3 * time.Second)
		if now := w.shares("team", 3); now[other.Shard-1] <= got[other.Shard-1] || now[0]+now[1]+now[2] != 100 {
			t.Errorf("shares were %v, and after a refusal in shard %d they are %v", got, other.Shard, now)
		}
	})
}

// A lower quota is in force when the call returns, and does not affect existing tasks.
func TestQuotaLowered(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(2)
		for _, name := range []string{"a", "b", "c"} {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", name, asItIs)
			must(t, err)
		}
		pass(time.Minute) // no namespace has a quota, so nothing is checked
		w.use(1, "default", func(s *task.Space) { s.Use.Backlog = 60 })
		w.use(2, "default", func(s *task.Space) { s.Use.Backlog = 30 })
		set := func(n int64) {
			t.Helper()
			_, err := c.Namespaces.SetQuotas(bg, boss, "default", task.QuotaChange{task.QuotaBacklog: n})
			must(t, err)
		}
		set(1000)
		if got := w.shares("default", 2); got[0]+got[1] != 1000 || got[0] < 300 || got[1] < 300 {
			t.Errorf("shares of a quota of 1000 are %v", got)
		}
		set(30)
		if got := w.shares("default", 2); got[0]+got[1] > 30 || got[0] < got[1] {
			t.Errorf("shares of a quota of 30, with 90 in use, are %v", got)
		}
		set(0)
		if got := w.shares("default", 2); got[0] != task.NoLimit || got[1] != task.NoLimit {
			t.Errorf("shares without a quota are %v, want no limit", got)
		}
		w.cut(2, errors.New("cut off"))
		_, err := c.Namespaces.SetQuotas(bg, boss, "default", task.QuotaChange{task.QuotaBacklog: 50})
		is(t, err, task.ErrUnavailable, "not all shards have confirmed")
		if got := w.shares("default", 2)[0]; got != 0 {
			t.Errorf("while one shard has no limit, the other has a share of %d, want 0", got)
		}
		w.cut(2, nil)
		pass(3 * time.Second)
		if got := w.shares("default", 2); got[0]+30 > 50 || got[1] != 0 {
			t.Errorf("shares after the shard is reachable again are %v, and 60 and 30 are in use: want no room in either while the other "+
				"uses so much", got)
		}
		w.use(1, "default", func(s *task.Space) { s.Use.Backlog, s.Refused[0] = 10, 1 })
		pass(3 * time.Second)
		if got := w.shares("default", 2); got[0]+got[1] != 50 {
			t.Errorf("shares after tasks have ended are %v, want a total of 50", got)
		}
		for _, bad := range []int64{-1, task.MaxQuota + 1} {
			_, err := c.Namespaces.SetQuotas(bg, boss, "default", task.QuotaChange{task.QuotaRunning: bad})
			is(t, err, task.ErrInvalidArgument, "quotas.max_running")
		}
		_, err = c.Namespaces.SetQuotas(bg, boss, "nobody", nil)
		is(t, err, task.ErrNotFound)
	})
}

// TestDivisionModel runs shards that use as much as they may, end tasks, are cut off, receive shares late or twice and
// lose answers, while leaders change. The use never exceeds the quota, nor could it because of shares in flight. Once
// the faults end, the shards that need the room get it.
func TestDivisionModel(t *testing.T) {
	for seed := range seeds(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) { divisionModel(t, w, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func divisionModel(t *testing.T, w *world, rng *rand.Rand) {
	const shards, most = 4, 50
	w.open(shards)
	lossy := &lossyShards{world: w, rng: rand.New(rand.NewPCG(rng.Uint64(), 1)), well: true}
	replicas := []*systemReplica{w.newReplicaOver(lossy), w.newReplicaOver(lossy)}
	replicas[0].lead()
	_, err := replicas[0].control.Namespaces.Add(bg, namespaces.Call{Name: "team", Quotas: quotasOf(most, 10*most, 3)})
	must(t, err)
	lossy.be(false)
	queues := 0
	for step := range 500 {
		leader := w.leader
		switch rng.IntN(16) {
		case 0:
			replicas[rng.IntN(2)].lead()
		case 1:
			w.cut(uint32(rng.IntN(shards))+1, []error{nil, errors.New("cut off")}[rng.IntN(2)])
		case 2:
			queues++
			_, _ = leader.control.Queues.PutQueue(bg, auditlog.Action{}, "team", fmt.Sprint("q", queues%7), setLength(int64(queues)))
		case 3, 12, 13:
			lossy.late()
		case 4, 5:
			pass(time.Second)
		case 6:
			w.use(uint32(rng.IntN(shards))+1, "team", func(s *task.Space) { s.Use, s.Ready = task.Amounts{}, 0 })
		default:
			w.use(uint32(rng.IntN(shards))+1, "team", func(s *task.Space) { live(s, rng) })
		}
		synctest.Wait()
		if used := w.inUse("team", shards); used.Backlog > most || used.Bytes > 10*most || used.Running > 3 {
			t.Fatalf("step %d: shards use %+v, more than the quota", step, used)
		}
		if could := lossy.couldUse("team", shards); could.Backlog > most || could.Bytes > 10*most || could.Running > 3 {
			t.Fatalf("step %d: shards could use %+v, more than the quota", step, could)
		}
	}
	lossy.be(true)
	for range 30 {
		w.use(1, "team", func(s *task.Space) {
			if s.Queues = max(s.Queues, 1); s.Share.Version == 0 {
				return
			}
			s.Use.Backlog, s.Use.Bytes, s.Ready = s.Share.Backlog, s.Share.Bytes, 100
			s.Refused[0], s.Refused[1] = s.Refused[0]+1, s.Refused[1]+1
		})
		for shard := uint32(2); shard <= shards; shard++ {
			w.use(shard, "team", func(s *task.Space) { s.Use, s.Ready = task.Amounts{}, 0 })
		}
		pass(time.Second)
	}
	if got := w.shares("team", shards)[0]; got < most-shards*2 {
		t.Errorf("the only shard with work has a share of %d of %d: %v", got, most, w.shares("team", shards))
	}
}

// live lets tasks arrive, as far as the shard's share allows, run and end.
func live(s *task.Space, rng *rand.Rand) {
	if s.Queues == 0 {
		return
	}
	for range rng.IntN(20) {
		switch {
		case rng.IntN(3) > 0 && s.Use.Backlog < s.Share.Backlog && s.Use.Bytes+9 <= s.Share.Bytes:
			s.Use.Backlog, s.Use.Bytes, s.Ready = s.Use.Backlog+1, s.Use.Bytes+9, s.Ready+1
		case rng.IntN(2) > 0 && s.Ready > 0 && s.Use.Running < s.Share.Running:
			s.Use.Running, s.Ready = s.Use.Running+1, s.Ready-1
		case s.Use.Running > 0:
			s.Use.Backlog, s.Use.Bytes, s.Use.Running = s.Use.Backlog-1, s.Use.Bytes-9, s.Use.Running-1
		default:
			s.Refused[0]++
		}
	}
}

func (w *world) inUse(ns string, shards int) (sum task.Amounts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for shard := range shards {
		for f, v := range sum.Each() {
			*v += *w.space(uint32(shard)+1, ns).Use.Each()[f]
		}
	}
	return sum
}

// lossyShards loses calls and answers, and repeats calls later.
type lossyShards struct {
	*world
	rng   *rand.Rand // under world.mu
	well  bool
	calls []lateShare
}

// be makes all calls succeed, or lets them fail again.
func (l *lossyShards) be(well bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.well = well; well {
		clear(l.fails)
	}
}

// lateShare is a share that may still reach its shard.
type lateShare struct {
	shard uint32
	to    task.Share
}

func (l *lossyShards) PutShare(ctx context.Context, shard uint32, name task.SpaceName, to task.Share) (task.Space, error) {
	l.mu.Lock()
	lost, later := !l.well && l.rng.IntN(2) == 0, !l.well && l.rng.IntN(4) == 0
	if lost || later {
		l.calls = append(l.calls, lateShare{shard, to})
	}
	l.mu.Unlock()
	if lost {
		return task.Space{}, errors.New("lost")
	}
	s, err := l.world.PutShare(ctx, shard, name, to)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.well && l.rng.IntN(4) == 0 {
		return task.Space{}, errors.New("answer lost")
	}
	return s, err
}

// late delivers one of the calls that were lost or that were delivered once.
func (l *lossyShards) late() {
	l.mu.Lock()
	if len(l.calls) == 0 {
		l.mu.Unlock()
		return
	}
	i := max(len(l.calls)-1-l.rng.IntN(6), 0) // an old one is too late for anything
	call := l.calls[i]
	l.calls = append(l.calls[:i], l.calls[i+1:]...)
	l.mu.Unlock()
	_, _ = l.world.PutShare(bg, call.shard, task.SpaceName{Namespace: "team"}, call.to)
}

// couldUse returns what shards may use, given the shares that they have received and those that may still reach them.
func (l *lossyShards) couldUse(ns string, shards int) (sum task.Amounts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for shard := uint32(1); shard <= uint32(shards); shard++ {
		s := l.space(shard, ns)
		could := s.Use
		if s.Share.Version > 0 {
			could = highest(could, s.Share.Amounts)
		}
		for _, c := range l.calls {
			if c.shard == shard && c.to.Version > s.Share.Version {
				could = highest(could, c.to.Amounts)
			}
		}
		for f, v := range sum.Each() {
			*v += *could.Each()[f]
		}
	}
	return sum
}

func highest(a, b task.Amounts) task.Amounts {
	for f, v := range a.Each() {
		*v = max(*v, *b.Each()[f])
	}
	return a
}

// Slots for running tasks go where tasks are ready. If there are fewer slots than shards, the shards take turns.
func TestSlotsTakeTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(3)
		for _, name := range []string{"a", "b", "c"} {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", name, asItIs)
			must(t, err)
			for shard := range uint32(3) {
				w.use(shard+1, "default", func(s *task.Space) { s.Queues, s.Ready, s.Use.Backlog = 1, 100, 100 })
			}
		}
		_, err := c.Namespaces.SetQuotas(bg, boss, "default", task.QuotaChange{task.QuotaRunning: 2})
		must(t, err)
		had := map[uint32]int{}
		for range 60 {
			running := int64(0)
			for shard := range uint32(3) {
				w.use(shard+1, "default", func(s *task.Space) {
					s.Use.Running = max(s.Share.Running, 0)
					had[shard+1] += int(s.Use.Running)
					running += s.Use.Running
				})
			}
			if running > 2 {
				t.Fatalf("%d tasks are running, want at most 2", running)
			}
			pass(time.Second)
		}
		for shard := range uint32(3) {
			if had[shard+1] < 10 {
				t.Errorf("the number of running tasks per shard, summed over 60 s, is %v, want at least 10 each", had)
			}
		}
	})
}
