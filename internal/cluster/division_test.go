package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/system"
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

// The quotas all belong to the shard that has the queue; a queue in another shard gets a share before it takes its first task.
func TestShareFollowsQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.most = 100
		c := w.openAt(system.PolicyLevel, 3)
		_, err := c.Namespaces.Add(bg, NamespaceCall{Name: "team", Quotas: quotasOf(100, 0, 0)})
		must(t, err)
		first, err := c.Queues.PutQueue(bg, auditlog.Action{}, "team", "a", unchanged)
		must(t, err)
		if got := w.shares("team", 3)[first.Shard-1]; got != 100 {
			t.Errorf("the shard of the only queue may have %d of 100", got)
		}
		w.use(first.Shard, "team", func(s *task.Space) { s.Use.Backlog = 40 })
		other := first
		for i := 0; other.Shard == first.Shard; i++ {
			other, err = c.Queues.PutQueue(bg, auditlog.Action{}, "team", fmt.Sprint("b", i), unchanged)
			must(t, err)
		}
		got := w.shares("team", 3)
		if got[first.Shard-1] < 50 || got[other.Shard-1] < 15 || got[first.Shard-1]+got[other.Shard-1] != 100 {
			t.Errorf("shares are %v; 40 are used in shard %d, and shard %d has got a queue", got, first.Shard, other.Shard)
		}
		// If one shard refuses while there is room in another, the room moves within moments.
		w.use(other.Shard, "team", func(s *task.Space) { s.Use.Backlog = s.Share.Backlog; s.Refused[0]++ })
		pass(3 * time.Second)
		if now := w.shares("team", 3); now[other.Shard-1] <= got[other.Shard-1] || now[0]+now[1]+now[2] != 100 {
			t.Errorf("shares were %v, and after a refusal in shard %d are %v", got, other.Shard, now)
		}
	})
}

// A lower quota is in force when the call returns, and does not affect existing tasks.
func TestQuotaLowered(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel, 2)
		for _, name := range []string{"a", "b", "c"} {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", name, unchanged)
			must(t, err)
		}
		pass(time.Minute) // no namespace has a quota, and nothing is checked
		w.use(1, "default", func(s *task.Space) { s.Use.Backlog = 60 })
		w.use(2, "default", func(s *task.Space) { s.Use.Backlog = 30 })
		set := func(n int64) {
			t.Helper()
			_, err := c.Quotas.SetQuotas(bg, boss, "default", task.QuotaChange{task.QuotaBacklog: n})
			must(t, err)
		}
		set(1000)
		if got := w.shares("default", 2); got[0]+got[1] != 1000 || got[0] < 300 || got[1] < 300 {
			t.Errorf("shares of 1000: %v", got)
		}
		set(30)
		if got := w.shares("default", 2); got[0]+got[1] > 30 || got[0] < got[1] {
			t.Errorf("shares of 30, with 90 in use: %v", got)
		}
		set(0)
		if got := w.shares("default", 2); got[0] != task.NoLimit || got[1] != task.NoLimit {
			t.Errorf("without a quota: %v", got)
		}
		w.cut(2, errors.New("cut off"))
		_, err := c.Quotas.SetQuotas(bg, boss, "default", task.QuotaChange{task.QuotaBacklog: 50})
		is(t, err, task.ErrUnavailable, "not all shards have confirmed")
		if got := w.shares("default", 2)[0]; got != 0 {
			t.Errorf("while one shard may take what it likes, the other has %d", got)
		}
		w.cut(2, nil)
		pass(3 * time.Second)
		if got := w.shares("default", 2); got[0]+got[1] != 50 {
			t.Errorf("after it is back: %v", got)
		}
		for _, bad := range []int64{-1, task.MaxQuota + 1} {
			_, err := c.Quotas.SetQuotas(bg, boss, "default", task.QuotaChange{task.QuotaRunning: bad})
			is(t, err, task.ErrInvalidArgument, "quotas.max_running")
		}
		_, err = c.Quotas.SetQuotas(bg, boss, "nobody", nil)
		is(t, err, task.ErrNotFound)
	})
}

// Slots for running tasks go where tasks are ready, and if there are fewer of them than shards, each shard has its turn.
func TestSlotsTakeTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.openAt(system.PolicyLevel, 3)
		for _, name := range []string{"a", "b", "c"} {
			_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", name, unchanged)
			must(t, err)
			for shard := range uint32(3) {
				w.use(shard+1, "default", func(s *task.Space) { s.Queues, s.Ready, s.Use.Backlog = 1, 100, 100 })
			}
		}
		_, err := c.Quotas.SetQuotas(bg, boss, "default", task.QuotaChange{task.QuotaRunning: 2})
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
				t.Fatalf("%d tasks run", running)
			}
			pass(time.Second)
		}
		for shard := range uint32(3) {
			if had[shard+1] < 10 {
				t.Errorf("in 60 s the shards ran %v tasks at once, in sums", had)
			}
		}
	})
}

// Before anything is confirmed, no shard is told of room that another may come to use.
func TestNothingIsToldTwice(t *testing.T) {
	none, all, half := task.Amounts{}, task.Amounts{Backlog: 50, Bytes: 500, Running: 3}, task.Amounts{Backlog: 25, Bytes: 250, Running: 1}
	for name, c := range map[string]struct {
		first task.Amounts // what the first shard may use at most
		told  task.Amounts // what it was told, and did not confirm
		wants task.Amounts // for it
		left  task.Amounts // for the other, which has heard of nothing and is to have all
	}{
		"it heard of nothing":                   {task.Unlimited, none, none, all},
		"what it was told may still come":       {task.Unlimited, all, none, none},
		"it has confirmed":                      {all, none, none, none},
		"it has confirmed half":                 {half, none, half, task.Amounts{Backlog: 25, Bytes: 250, Running: 2}},
		"it heard of nothing, and gets a share": {task.Unlimited, none, half, task.Amounts{Backlog: 25, Bytes: 250, Running: 2}},
	} {
		row := divisionRow{[]divisionPart{{Shard: 1, Version: 4, Most: c.first, Told: c.told}, {Shard: 2, Most: task.Unlimited}}}
		d := newDivision("team", task.Quotas{Backlog: 50, BacklogBytes: 500, Running: 3}, []uint32{1, 2}, row)
		if got := d.safeShares([]task.Amounts{c.wants, all}); got[0] != c.wants || got[1] != c.left {
			t.Errorf("%s: told are %+v and %+v, want %+v and %+v", name, got[0], got[1], c.wants, c.left)
		}
	}
}

// TestDivisionModel runs shards that take as much as they may, end tasks, are cut off, receive shares late or twice and lose answers, while
// leaders change: the use never exceeds the quota, nor could it because of shares in flight. Once all is well, the shards that want the
// room get it.
func TestDivisionModel(t *testing.T) {
	for seed := range seeds(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) { divisionModel(t, w, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func divisionModel(t *testing.T, w *world, rng *rand.Rand) {
	const shards, most = 4, 50
	w.most = 100
	w.openAt(system.PolicyLevel, shards)
	lossy := &lossyShards{world: w, rng: rand.New(rand.NewPCG(rng.Uint64(), 1)), well: true}
	replicas := []*systemReplica{w.newReplicaOver(lossy), w.newReplicaOver(lossy)}
	replicas[0].lead()
	_, err := replicas[0].control.Namespaces.Add(bg, NamespaceCall{Name: "team", Quotas: quotasOf(most, 10*most, 3)})
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
			t.Fatalf("step %d: in use are %+v", step, used)
		}
		if could := lossy.couldUse("team", shards); could.Backlog > most || could.Bytes > 10*most || could.Running > 3 {
			t.Fatalf("step %d: shards may come to use %+v", step, could)
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
		t.Errorf("a shard that has the only work may have %d of %d: %v", got, most, w.shares("team", shards))
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

// be makes all calls work, or lets them go wrong again.
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

func (l *lossyShards) PutShare(ctx context.Context, shard uint32, ns string, to task.Share) (task.Space, error) {
	l.mu.Lock()
	lost, later := !l.well && l.rng.IntN(2) == 0, !l.well && l.rng.IntN(4) == 0
	if lost || later {
		l.calls = append(l.calls, lateShare{shard, to})
	}
	l.mu.Unlock()
	if lost {
		return task.Space{}, errors.New("lost")
	}
	s, err := l.world.PutShare(ctx, shard, ns, to)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.well && l.rng.IntN(4) == 0 {
		return task.Space{}, errors.New("answer lost")
	}
	return s, err
}

// late delivers one of the calls that were lost or delivered once.
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
	_, _ = l.world.PutShare(bg, call.shard, "team", call.to)
}

// couldUse returns what shards may come to use by what they have received, and by what may still reach them.
func (l *lossyShards) couldUse(ns string, shards int) (sum task.Amounts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for shard := uint32(1); shard <= uint32(shards); shard++ {
		s := l.space(shard, ns)
		could := s.Use
		if s.Share.Version > 0 {
			could = most(could, s.Share.Amounts)
		}
		for _, c := range l.calls {
			if c.shard == shard && c.to.Version > s.Share.Version {
				could = most(could, c.to.Amounts)
			}
		}
		sum = eachOf(sum, could, func(v, w int64) int64 { return v + w })
	}
	return sum
}

// parting is a division in which each shard has running and ready tasks.
func parting(running int64, shards ...[2]int64) *division {
	d := &division{ns: "default"}
	d.quotas.Running = running
	for i, use := range shards {
		p := shardPart{divisionPart: divisionPart{Shard: uint32(i + 1), Version: 1}, known: true} // #nosec G115 -- a few
		p.space.Queues, p.space.Ready = 1, use[1]
		p.space.Use.Running = use[0]
		p.space.Share.Version, p.space.Share.Amounts = 1, task.Unlimited
		d.parts = append(d.parts, p)
	}
	return d
}

// Running tasks are divided by what the shards can use: none that wants more gets less than another, and what none wants is divided evenly.
func TestSharesByDemand(t *testing.T) {
	for _, c := range []struct {
		budget int64
		use    [][2]int64
		want   string
	}{
		{10, [][2]int64{{1, 0}, {4, 6}}, "[1 9]"}, {10, [][2]int64{{1, 3}, {3, 1}}, "[5 5]"}, {10, [][2]int64{{9, 9}, {2, 9}}, "[5 5]"},
		{12, [][2]int64{{0, 1}, {0, 3}, {50, 50}}, "[1 3 8]"}, {12, [][2]int64{{0, 0}, {0, 0}, {0, 0}}, "[4 4 4]"}, {7, [][2]int64{{3, 4}}, "[7]"},
	} {
		d := parting(c.budget, c.use...)
		if got := fmt.Sprint(d.byDemand(places(len(c.use)), c.budget)); got != c.want {
			t.Errorf("%d for shards that run and have ready %v: %s, want %s", c.budget, c.use, got, c.want)
		}
	}
}

// places are the indexes of n shards.
func places(n int) (holders []int) {
	for i := range n {
		holders = append(holders, i)
	}
	return holders
}

// If more is used than there is, all get less in proportion, and the remainder goes to those that use more than their share, in turns.
func TestSharesByUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := map[string]bool{}
		for range 6 {
			d := parting(0, [2]int64{}, [2]int64{}, [2]int64{})
			for i, n := range []int64{0, 5, 5} {
				d.parts[i].space.Use.Backlog = n
			}
			got[fmt.Sprint(d.byUse([]int{0, 1, 2}, 3, 0))] = true
			pass(turnTime)
		}
		if len(got) != 2 || !got["[0 1 2]"] || !got["[0 2 1]"] {
			t.Errorf("3 for shards that use 0, 5 and 5: %v", got)
		}
	})
	if n := parting(0).holders(); n != 1 {
		t.Errorf("without a shard that has a queue there are %d to share with", n)
	}
	if n := parting(0, [2]int64{}, [2]int64{}).holders(); n != 2 {
		t.Errorf("of two shards %d have a queue", n)
	}
}

// Shares are recomputed for a shard that is out of room, or nearly so, and could get some, and for no other.
func TestWhoIsPressed(t *testing.T) {
	for _, c := range []struct {
		name string
		use  [][2]int64
		has  []int64
		know bool
		want bool
	}{
		{"even, and nothing runs", [][2]int64{{0, 0}, {0, 0}}, []int64{5, 5}, true, false},
		{"uneven, but there is room", [][2]int64{{0, 0}, {0, 0}}, []int64{4, 6}, true, false},
		{"out of room, and another has some", [][2]int64{{4, 1}, {0, 0}}, []int64{4, 6}, true, true},
		{"out of room, but nothing waits", [][2]int64{{4, 0}, {0, 0}}, []int64{4, 6}, true, false},
		{"out of room, like the other", [][2]int64{{5, 1}, {5, 1}}, []int64{5, 5}, true, false},
		{"out of room, and silent", [][2]int64{{4, 1}, {0, 0}}, []int64{4, 6}, false, false},
	} {
		d := parting(10, c.use...)
		for i, n := range c.has {
			p := &d.parts[i]
			p.space.Share.Amounts.Running = n
			p.Most, p.known = p.space.Share.Amounts, c.know
		}
		if got := d.needsDivision(map[spaceName][3]uint64{}); got != c.want {
			t.Errorf("%s: pressed %v", c.name, got)
		}
	}
}
