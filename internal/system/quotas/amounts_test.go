package quotas

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

const unlimited = task.NoLimit

// awaitTurn waits until the turns of n shards begin at one of them, in the order of their indexes.
func awaitTurn(n, first int) {
	want := make([]int, n)
	for i := range want {
		want[i] = (first + i) % n
	}
	for !slices.Equal(turns(n), want) {
		time.Sleep(TurnTime)
	}
}

// No shard is left out, whatever time the tasks take that hold the only slot: when it comes free, it is each shard's turn equally often.
func TestTurnsAreEven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, took := range []time.Duration{TurnTime, 4 * TurnTime, 12 * TurnTime, 7 * time.Second} {
			var got, next [4]int
			for range 1000 {
				for n, v := range distributeRest(make([]int64, 4), 1, func(int) bool { return true }) {
					got[n] += int(v)
				}
				for n, v := range distributeRest(make([]int64, 4), 1, func(n int) bool { return n == 0 || n == 3 }) {
					next[n] += int(v)
				}
				time.Sleep(took)
			}
			for n := range got {
				if got[n] < 180 || next[n] < 400 && (n == 0 || n == 3) {
					t.Errorf("of 1000 tasks of %v, the shards ran %v; if only the first and the last want any, %v", took, got, next)
				}
			}
		}
	})
}

// What is divided by use adds up to the budget, whatever does not divide evenly. The remainder goes one each to those
// that use something, then to all, beginning with the shard whose turn it is, which gets what is left.
func TestRemainderByUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			turn   int // the index of the shard whose turn it is
			budget int64
			use    []int64
			want   string
		}{
			{0, 100, []int64{40, 0}, "[85 15]"}, {0, 100, []int64{0, 40}, "[15 85]"}, {1, 100, []int64{40, 0}, "[85 15]"},
			{0, 9, []int64{0, 1}, "[3 6]"}, {0, 10, []int64{0, 0, 0}, "[4 3 3]"}, {1, 10, []int64{0, 0, 0}, "[3 4 3]"},
			{2, 10, []int64{0, 0, 0}, "[3 3 4]"}, {0, 10, []int64{3, 7}, "[3 7]"}, {0, 10, []int64{20, 20}, "[5 5]"},
			{0, 5, []int64{20, 20},
				"[3 2]"}, {1, 5, []int64{20, 20}, "[2 3]"},
			{0, 0, []int64{0, 0}, "[0 0]"}, {0, 0, []int64{8, 2}, "[0 0]"}, {0, 1, []int64{0, 1}, "[0 1]"}, {0, 1, []int64{0, 7}, "[0 1]"},
			{0, 1, []int64{0, 0}, "[1 0]"}, {1, 1, []int64{0, 0}, "[0 1]"}, {1, 2, []int64{9, 9, 9}, "[0 1 1]"},
			{2, 2, []int64{9, 9, 9}, "[1 0 1]"}, {0, task.MaxQuota, []int64{task.MaxQuota, task.MaxQuota},
				fmt.Sprint([]int64{task.MaxQuota/2 + task.MaxQuota%2, task.MaxQuota / 2})},
		} {
			awaitTurn(len(c.use), c.turn)
			d := parting(0, make([][2]int64, len(c.use))...)
			sum := int64(0)
			for i, n := range c.use {
				d.parts[i].space.Use.Backlog = n
			}
			got := d.byUse(places(len(c.use)), c.budget, 0)
			for _, v := range got {
				sum += v
			}
			if fmt.Sprint(got) != c.want || sum != c.budget {
				t.Errorf("turn %d: dividing %d among shards that use %v: %v, want %s", c.turn, c.budget, c.use, got, c.want)
			}
		}
	})
}

// The shard whose turn it is also goes first in what is divided by demand; those that want more come before those that do not.
func TestRemainderByDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for turn, want := range []map[string]string{
			{"want 3, 3": "[1 0 0]", "all idle": "[2 2 1]", "short of one": "[2 1 0]", "one, nobody wants": "[1 0 0]",
				"one wants": "[0 0 1]"},
			{"want 3, 3": "[0 1 0]", "all idle": "[1 2 2]", "short of one": "[1 2 0]", "one, nobody wants": "[0 1 0]",
				"one wants": "[0 0 1]"},
			{"want 3, 3": "[1 0 0]", "all idle": "[2 1 2]", "short of one": "[2 1 0]", "one, nobody wants": "[0 0 1]",
				"one wants": "[0 0 1]"},
		} {
			awaitTurn(3, turn)
			for name, c := range map[string]struct {
				budget int64
				use    [][2]int64
			}{
				"want 3, 3":         {1, [][2]int64{{0, 3}, {0, 3}, {0, 0}}},
				"all idle":          {5, [][2]int64{{0, 0}, {0, 0}, {0, 0}}},
				"short of one":      {3, [][2]int64{{0, 9}, {9, 0}, {0, 0}}},
				"one, nobody wants": {1, [][2]int64{{0, 0}, {0, 0}, {0, 0}}},
				"one wants":         {1, [][2]int64{{0, 0}, {0, 0}, {0, 1}}},
			} {
				if got := fmt.Sprint(parting(0, c.use...).byDemand(places(3), c.budget)); got != want[name] {
					t.Errorf("turn %d, %s: %s, want %s", turn, name, got, want[name])
				}
			}
		}
		if got := fmt.Sprint(parting(0, [2]int64{5, 5}, [2]int64{0, 0}).byDemand(places(2), 0)); got != "[0 0]" {
			t.Errorf("dividing nothing: %s", got)
		}
	})
}

// A shard that has not answered keeps what it may use, one without a queue gets nothing, and one that is about to get
// its first queue counts. What has no quota has no limit anywhere.
func TestShardsWithAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name   string
			quotas task.Quotas
			change func(d *division)
			want   string // of each shard: backlog, bytes, running
		}{
			{"no quotas", task.Quotas{}, func(*division) {}, "[{-1 -1 -1} {-1 -1 -1} {-1 -1 -1}]"},
			{"even", task.Quotas{Backlog: 9, BacklogBytes: 12, Running: 6}, func(*division) {}, "[{3 4 2} {3 4 2} {3 4 2}]"},
			{"one quota only", task.Quotas{BacklogBytes: 9}, func(*division) {}, "[{-1 3 -1} {-1 3 -1} {-1 3 -1}]"},
			{"no queue in one", task.Quotas{Backlog: 8, Running: 6}, func(d *division) { d.parts[1].space.Queues = 0 },
				"[{4 -1 3} {0 -1 0} {4 -1 3}]"},
			{"a queue in none", task.Quotas{Backlog: 8}, func(d *division) {
				for i := range d.parts {
					d.parts[i].space.Queues = 0
				}
			}, "[{0 -1 -1} {0 -1 -1} {0 -1 -1}]"},
			{"a queue in one", task.Quotas{Backlog: 8, Running: 3}, func(d *division) {
				d.parts[0].space.Queues,
					d.parts[1].space.Queues = 0, 0
			},
				"[{0 -1 0} {0 -1 0} {8 -1 3}]"},
			{"one drains", task.Quotas{Backlog: 8, Running: 6}, func(d *division) {
				d.parts[1].drains, d.parts[1].space.Use.Backlog = true,
					2
			},
				"[{3 -1 2} {2 -1 2} {3 -1 2}]"},
			{"one drains, with more", task.Quotas{Backlog: 8}, func(d *division) {
				d.parts[1].drains, d.parts[1].space.Use.Backlog = true,
					20
			},
				"[{0 -1 -1} {8 -1 -1} {0 -1 -1}]"},
			{"one joins", task.Quotas{Backlog: 9}, func(d *division) { d.parts[2].space.Queues, d.parts[2].joining = 0, true },
				"[{3 -1 -1} {3 -1 -1} {3 -1 -1}]"},
			{"one silent", task.Quotas{Backlog: 9}, func(d *division) { d.parts[0].known, d.parts[0].Most.Backlog = false, 5 },
				"[{5 -1 -1} {2 -1 -1} {2 -1 -1}]"},
			{"one silent, with all", task.Quotas{Backlog: 9}, func(d *division) { d.parts[0].known, d.parts[0].Most.Backlog = false, 9 },
				"[{9 -1 -1} {0 -1 -1} {0 -1 -1}]"},
			{"one silent, with more", task.Quotas{Backlog: 9}, func(d *division) { d.parts[0].known, d.parts[0].Most.Backlog = false, 10 },
				"[{10 -1 -1} {0 -1 -1} {0 -1 -1}]"},
			{"one silent, unlimited", task.Quotas{Backlog: 9}, func(d *division) {
				d.parts[2].known, d.parts[2].Most = false,
					task.Unlimited
			},
				"[{0 -1 -1} {0 -1 -1} {-1 -1 -1}]"},
		} {
			d := parting(0, [2]int64{}, [2]int64{}, [2]int64{})
			d.quotas = c.quotas
			c.change(d)
			got := d.shareOut()
			for i := range got {
				for _, v := range got[i].Each() {
					if *v == unlimited {
						*v = -1
					}
				}
			}
			if fmt.Sprint(got) != c.want {
				t.Errorf("%s: %v, want %s", c.name, got, c.want)
			}
		}
	})
}

// Before anything is confirmed, a shard that has confirmed a share is sent no more than it may use already, even if there is room.
func TestSafeShares(t *testing.T) {
	most := func(n int64) divisionPart {
		return divisionPart{Version: 4, Most: task.Amounts{Backlog: n, Bytes: unlimited, Running: unlimited}}
	}
	told := func(n int64) divisionPart {
		return divisionPart{Version: 4, Most: task.Unlimited, Sent: task.Amounts{Backlog: n}}
	}
	for _, c := range []struct {
		name  string
		parts []divisionPart
		wants []int64
		want  string
	}{
		{"there is room", []divisionPart{most(10), most(5)}, []int64{40, 10}, "[10 5]"},
		{"less than it may use", []divisionPart{most(30), most(20)}, []int64{25, 20}, "[25 20]"},
		{"more is in use than there is", []divisionPart{most(40), most(40)}, []int64{25, 25}, "[25 25]"},
		{"what it gives up is not free yet", []divisionPart{most(50), told(0)}, []int64{25, 25}, "[25 0]"},
		{"the others leave some", []divisionPart{most(20), told(0)}, []int64{20, 50}, "[20 30]"},
		{"the first of two takes it", []divisionPart{told(0), told(0)}, []int64{30, 30}, "[30 20]"},
		{"what it was told stays its", []divisionPart{told(20), told(0)}, []int64{40, 40}, "[40 10]"},
		{"less than it was told", []divisionPart{told(20), told(0)}, []int64{10, 50}, "[10 30]"},
		{"exactly what it was told", []divisionPart{told(20), told(0)}, []int64{20, 50}, "[20 30]"},
		{"more was told than there is", []divisionPart{told(60), told(0)}, []int64{40, 10}, "[40 0]"},
		{"the limit was lifted, and is back", []divisionPart{told(unlimited), told(0)}, []int64{25, 25}, "[25 0]"},
	} {
		d := &division{quotas: task.Quotas{Backlog: 50}}
		var wants []task.Amounts
		for i, p := range c.parts {
			d.parts = append(d.parts, shardPart{divisionPart: p})
			wants = append(wants, task.Amounts{Backlog: c.wants[i], Bytes: unlimited, Running: unlimited})
		}
		var got []int64
		for _, to := range d.safeShares(wants) {
			if got = append(got, to.Backlog); to.Bytes != unlimited || to.Running != unlimited {
				t.Errorf("%s: what has no quota is limited: %+v", c.name, to)
			}
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: safe shares are %v, want %s", c.name, got, c.want)
		}
	}
	d := &division{parts: []shardPart{{divisionPart: most(10)}, {divisionPart: told(7)}}}
	if got := d.safeShares([]task.Amounts{task.Unlimited, task.Unlimited}); got[0].Backlog != 10 || got[1] != task.Unlimited {
		t.Errorf("without a quota, a shard that has confirmed 10 and another that was told 7 are told %+v", got)
	}
}

// A share grows by what nobody may use, and does not shrink. What is in use beyond the share counts already.
func TestRaisedShare(t *testing.T) {
	for _, c := range []struct {
		name                            string
		share, most, want, room, to, of int64
	}{
		{"there is room", 10, 10, 15, 20, 15, 15},
		{"there is just enough room", 10, 10, 15, 5, 15, 0},
		{"there is too little room", 10, 10, 15, 3, 13, 0},
		{"there is none", 10, 10, 15, 0, 10, 0},
		{"it has what it wants", 10, 10, 10, 20, 10, 20},
		{"it wants less", 10, 10, 5, 20, 10, 20},
		{"it wants what it uses", 10, 30, 20, 5, 20, 5},
		{"it wants more than it uses", 10, 30, 33, 5, 33, 2},
		{"no limit", 10, 10, unlimited, unlimited, unlimited, unlimited},
		{"others use too much", 0, 2, 1, -9, 0, -9},
		{"others use too much, and it has a share", 3, 20, 15, -9, 11, -9},
		{"nobody knows what others use", 3, 20, 15, -unlimited, 3, -unlimited},
	} {
		p := &shardPart{divisionPart: divisionPart{Most: task.Amounts{Backlog: c.most}}}
		p.space.Share.Backlog = c.share
		room := task.Amounts{Backlog: c.room}
		if got := raisedShare(p, task.Amounts{Backlog: c.want}, &room); got != (task.Amounts{Backlog: c.to}) ||
			room != (task.Amounts{Backlog: c.of}) {
			t.Errorf("%s: the share becomes %+v, and %+v is left, want %d and %d", c.name, got, room, c.to, c.of)
		}
	}
}

// The room is what the quota leaves beside all that shards may use, and no limit where there is no quota. It is less than nothing while
// they use more, or may: a shard whose tasks end then does not begin others.
func TestRoom(t *testing.T) {
	for name, c := range map[string]struct{ a, b, want int64 }{
		"some is left": {20, 10, 20}, "nothing is left": {30, 20, 0}, "more may be used": {40, 20, -10}, "one has no limit": {10,
			unlimited, 40 - unlimited},
		"none has a limit": {unlimited, unlimited, -unlimited}, "nobody may use any": {0, 0, 50},
	} {
		d := &division{quotas: task.Quotas{Backlog: 50}}
		for _, n := range []int64{c.a, c.b} {
			d.parts = append(d.parts, shardPart{divisionPart: divisionPart{Most: task.Amounts{Backlog: n, Bytes: 7, Running: unlimited}}})
		}
		if got := d.room(); got != (task.Amounts{Backlog: c.want, Bytes: unlimited, Running: unlimited}) {
			t.Errorf("%s: the room is %+v, want a backlog of %d and no other limit", name, got, c.want)
		}
	}
}

// What a shard may use follows from its answer once it uses the last share sent to it. Until then its earlier share,
// and those on their way, count; also those from before the row, which knows of none.
func TestMostFollowsAnswers(t *testing.T) {
	share, use := task.Amounts{Backlog: 20, Bytes: 20, Running: 20}, task.Amounts{Backlog: 5, Bytes: 30, Running: 20}
	told := task.Amounts{Backlog: 40, Bytes: 1, Running: 40}
	most := task.Amounts{Backlog: 40, Bytes: 10, Running: 40}
	higher, both := task.Amounts{Backlog: 20, Bytes: 30, Running: 20}, task.Amounts{Backlog: 40, Bytes: 30, Running: 40}
	for name, c := range map[string]struct {
		known              bool
		version, has       uint64
		settled            bool
		wantMost, wantTold task.Amounts
	}{
		"silent":                         {false, 9, 0, false, most, told},
		"silent, and never sent a share": {false, 0, 0, false, most, told},
		"has the last share":             {true, 9, 9, true, higher, task.Amounts{}},
		"has the first share":            {true, 1, 1, true, higher, task.Amounts{}},
		"has an earlier share":           {true, 9, 8, false, both, told},
		"has none of its shares":         {true, 9, 0, false, both, told},
		"has none of its one share":      {true, 1, 0, false, both, told},
		"was never sent a share":         {true, 0, 0, false, both, told},
	} {
		p := &shardPart{divisionPart: divisionPart{Version: c.version, Most: most, Sent: told}, known: c.known}
		if c.known {
			p.space.Share, p.space.Use = task.Share{Version: c.has, Amounts: share}, use
		}
		if got := p.settled(); got != c.settled {
			t.Errorf("%s: settled = %t", name, got)
		}
		if p.updateMost(); p.Most != c.wantMost || p.Sent != c.wantTold {
			t.Errorf("%s: it may use %+v, and was told %+v, want %+v and %+v", name, p.Most, p.Sent, c.wantMost, c.wantTold)
		}
	}
}

// Tasks reach a shard that has a queue of the namespace, or is about to get one. Of a silent one nothing is known.
func TestShardsThatHoldTasks(t *testing.T) {
	for _, known := range []bool{true, false} {
		for queues, joins := range map[int]bool{0: true, 1: false, 2: false} {
			p := shardPart{known: known, joining: joins, space: task.Space{Queues: queues}}
			if p.holds() != known {
				t.Errorf("known: %t, %d queues, joining: %t: holds = %t", known, queues, joins, p.holds())
			}
		}
	}
	if p := (shardPart{known: true}); p.holds() {
		t.Error("a shard without a queue, which gets none, holds the namespace")
	}
}

// A shard lacks a share if it has nothing of some quota, or may believe that it has more than there is.
func TestLacks(t *testing.T) {
	whole := task.Amounts{Backlog: 10, Bytes: unlimited, Running: 3}
	for _, c := range []struct {
		most task.Amounts
		want bool
	}{
		{task.Amounts{Backlog: 5, Bytes: 9, Running: 2}, false}, {task.Amounts{Backlog: 1, Bytes: 1, Running: 1}, false},
		{whole, false}, {task.Amounts{Backlog: 11, Bytes: 9, Running: 2}, true}, {task.Amounts{Backlog: 5, Bytes: 9, Running: 4}, true},
		{task.Unlimited, true}, {task.Amounts{}, true}, {task.Amounts{Bytes: 9, Running: 2}, true},
		{task.Amounts{Backlog: 5, Bytes: 9}, true},
	} {
		if got := (divisionPart{Most: c.most}).lacks(whole); got != c.want {
			t.Errorf("a shard that may use %+v of %+v lacks a share: %t", c.most, whole, got)
		}
	}
}
