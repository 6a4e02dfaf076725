package quotas

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// No shard is offered room that another may still use, before anything is confirmed.
func TestRoomIsOfferedOnce(t *testing.T) {
	none, all, half := task.Amounts{}, task.Amounts{Backlog: 50, Bytes: 500, Running: 3}, task.Amounts{Backlog: 25, Bytes: 250, Running: 1}
	for name, c := range map[string]struct {
		first task.Amounts // the most that the first shard may use
		told  task.Amounts // what it was offered, and did not confirm
		wants task.Amounts // for it
		left  task.Amounts // for the other, which has received nothing and should get all
	}{
		"it heard of nothing":                   {task.Unlimited, none, none, all},
		"what it was told may still come":       {task.Unlimited, all, none, none},
		"it has confirmed":                      {all, none, none, none},
		"it has confirmed half":                 {half, none, half, task.Amounts{Backlog: 25, Bytes: 250, Running: 2}},
		"it heard of nothing, and gets a share": {task.Unlimited, none, half, task.Amounts{Backlog: 25, Bytes: 250, Running: 2}},
	} {
		row := divisionRow{Parts: []divisionPart{{Shard: 1, Version: 4, Most: c.first, Sent: c.told}, {Shard: 2, Most: task.Unlimited}}}
		d := newDivision(task.SpaceName{Namespace: "team"}, task.Quotas{Backlog: 50, BacklogBytes: 500, Running: 3}, []uint32{1, 2}, row)
		if got := d.safeShares([]task.Amounts{c.wants, all}); got[0] != c.wants || got[1] != c.left {
			t.Errorf("%s: safe shares are %+v and %+v, want %+v and %+v", name, got[0], got[1], c.wants, c.left)
		}
	}
}

// parting is a division in which each shard has running and ready tasks.
func parting(running int64, shards ...[2]int64) *division {
	d := &division{name: task.SpaceName{Namespace: "default"}}
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

// Running tasks are divided by what the shards can use: none that wants more gets less than another, and the rest is divided evenly.
func TestSharesByDemand(t *testing.T) {
	for _, c := range []struct {
		budget int64
		use    [][2]int64
		want   string
	}{
		{10, [][2]int64{{1, 0}, {4, 6}}, "[1 9]"}, {10, [][2]int64{{1, 3}, {3, 1}}, "[5 5]"}, {10, [][2]int64{{9, 9}, {2, 9}}, "[5 5]"},
		{12, [][2]int64{{0, 1}, {0, 3}, {50, 50}}, "[1 3 8]"}, {12, [][2]int64{{0, 0}, {0, 0}, {0, 0}}, "[4 4 4]"},
		{7, [][2]int64{{3, 4}}, "[7]"}, {20, [][2]int64{{0, 1}, {3, 4}, {50, 50}}, "[1 7 12]"},
	} {
		d := parting(c.budget, c.use...)
		if got := fmt.Sprint(d.byDemand(places(len(c.use)), c.budget)); got != c.want {
			t.Errorf("dividing %d among shards with running and ready tasks %v: %s, want %s", c.budget, c.use, got, c.want)
		}
	}
}

// places returns the indexes of n shards.
func places(n int) (holders []int) {
	for i := range n {
		holders = append(holders, i)
	}
	return holders
}

// If more is used than the quota, all shards get proportionally less, and the remainder goes in turns to those that use
// more than their share.
func TestSharesByUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := map[string]bool{}
		for range 6 {
			d := parting(0, [2]int64{}, [2]int64{}, [2]int64{})
			for i, n := range []int64{0, 5, 5} {
				d.parts[i].space.Use.Backlog = n
			}
			got[fmt.Sprint(d.byUse([]int{0, 1, 2}, 3, 0))] = true
			time.Sleep(TurnTime)
		}
		if len(got) != 2 || !got["[0 1 2]"] || !got["[0 2 1]"] {
			t.Errorf("dividing 3 among shards that use 0, 5 and 5: %v, want two divisions in turns", got)
		}
	})
	d := parting(0, [2]int64{}, [2]int64{})
	for _, c := range []struct {
		whole, used int64 // in the first of two shards
		refused     int   // the shard that has refused tasks
		want        string
	}{{5, 4, 0, "[5 0]"}, {5, 4, 1, "[4 1]"}, {8, 4, 1, "[7 1]"}, {4, 4, 1, "[4 0]"}, {1, 0, 1, "[0 1]"}} {
		d.parts[0].space.Use.Backlog = c.used
		d.parts[0].refused[0], d.parts[1].refused[0] = c.refused == 0, c.refused == 1
		if got := fmt.Sprint(d.byUse([]int{0, 1}, c.whole, 0)); got != c.want {
			t.Errorf("dividing %d, of which the first shard uses %d, while shard %d refuses tasks: %s, want %s", c.whole, c.used,
				c.refused+1, got, c.want)
		}
	}
	if n := parting(0).holders(); n != 1 {
		t.Errorf("without a shard that has a queue there are %d holders, want 1", n)
	}
	if n := parting(0, [2]int64{}, [2]int64{}).holders(); n != 2 {
		t.Errorf("two shards with queues count as %d holders, want 2", n)
	}
	d = parting(0, [2]int64{}, [2]int64{}, [2]int64{})
	if d.parts[1].space.Queues = 0; d.holders() != 2 {
		t.Errorf("two shards with queues and one without count as %d holders, want 2", d.holders())
	}
}

// Shares are recomputed only for a shard that is out of room, or nearly so, and that could get some.
func TestShardsOutOfRoom(t *testing.T) {
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
			t.Errorf("%s: needsDivision = %v", c.name, got)
		}
	}
}
