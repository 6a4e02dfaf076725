package fanout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

var (
	bg, _   = callinfo.Begin(context.Background(), task.InterfaceGRPC, "test")
	errAway = task.Unavailable(time.Second, "away")
	spread  = queues.Queue{Name: "spread", Parts: []queues.Part{{Shard: 1, Slots: 1, Next: 1}, {Shard: 2, Slots: 2, Next: 2},
		{Shard: 3, Slots: 4, Next: 4}}}
	single = queues.Queue{Name: "single", Shard: 2}
)

// fakeCluster has the queues "spread" and "single", and four data shards.
type fakeCluster struct {
	Cluster
	err error
}

func (c fakeCluster) Shards() []uint32 { return []uint32{1, 2, 3, 4} }

func (c fakeCluster) Queue(_ context.Context, _, name string) (queues.Queue, bool, error) {
	q, ok := map[string]queues.Queue{"spread": spread, "single": single}[name]
	return q, ok, c.err
}

// parts has the parts of a queue answer the probe: those of down fail, and those of hung do not answer.
func parts(hung, down uint32) verbtest.Answers {
	a := verbtest.Answers{}
	verbtest.On(a, broker.DescribeQueue, func(ctx context.Context, q broker.OnQueue) (broker.QueueDescribed, error) {
		switch q.Shard {
		case hung:
			<-ctx.Done()
			return broker.QueueDescribed{}, ctx.Err()
		case down:
			return broker.QueueDescribed{}, errAway
		}
		return broker.QueueDescribed{}, task.NotFound("queue", q.Queue) // no task has come to it yet
	})
	return a
}

// A call on all parts of a queue is done in each that answers, within a short time though one hangs before them, and its error names the
// others.
func TestParts(t *testing.T) {
	for _, c := range []struct {
		hung, down, fails uint32
		did               string
		discarded         int64
		want              string
	}{
		{0, 0, 0, "[1 2 3]", 111, ""},
		{1, 0, 0, "[2 3]", 110, `queue "spread": the call is done in 2 of its 3 shards%s, and may be repeated for the rest: ` +
			`shard 1: did not answer in time`},
		{0, 3, 2, "[1 2]", 11, `queue "spread": the call is done in 1 of its 3 shards%s, and may be repeated for the rest: ` +
			`shard 2: failed with an internal error; shard 3: away`},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var did []uint32
			do := func(ctx context.Context, shard uint32) error {
				mu.Lock()
				defer mu.Unlock()
				if did = append(did, shard); shard == c.fails {
					return errors.New("broken")
				}
				return ctx.Err()
			}
			a := parts(c.hung, c.down)
			verbtest.On(a, broker.PurgeQueue, func(ctx context.Context, q broker.QueueCommand) (out broker.Purged, err error) {
				time.Sleep(time.Minute) // it may take its time
				if q.By.Name == "lena" && q.Queue == "spread" {
					out.Done = []int64{0, 1, 10, 100}[q.Shard]
				}
				return out, do(ctx, q.Shard)
			})
			g := Queues{Verbs: a}
			for what, run := range map[string]func() error{
				"": func() error { return g.EachPart(bg, spread, do) },
				fmt.Sprintf(" (%d tasks)", c.discarded): func() error {
					n, err := g.Purge(bg, task.Author{Name: "lena"}, spread)
					if n != c.discarded {
						t.Errorf("%d tasks are discarded, want %d", n, c.discarded)
					}
					return err
				},
			} {
				did = nil
				began := time.Now()
				err := run()
				if took := time.Since(began); took > verb.PartTime+time.Minute {
					t.Errorf("it takes %s", took)
				}
				slices.Sort(did)
				if want := strings.ReplaceAll(c.want, "%s", what); fmt.Sprint(did) != c.did || (err != nil) != (want != "") || err != nil &&
					(err.Error() != want || !errors.Is(err, task.ErrUnavailable)) {
					t.Errorf("shard %d hangs, %d is down: done in %v with %v\nwant %s", c.hung, c.down, did, err, want)
				}
			}
		})
	}
}

// Without any part, a call returns the error of one. A refusal is that of the call.
func TestNoPart(t *testing.T) {
	never := func(context.Context, uint32) error { t.Error("a part that is down is asked"); return nil }
	if err := (Queues{Verbs: parts(0, 2)}).EachPart(bg, single, never); !errors.Is(err, errAway) {
		t.Errorf("the only part is away: %v", err)
	}
	refuse := func(_ context.Context, shard uint32) error {
		if shard == 2 {
			return task.Invalid("type", "is odd")
		}
		return nil
	}
	if err := (Queues{Verbs: parts(0, 0)}).EachPart(bg, spread, refuse); !errors.Is(err, task.ErrInvalidArgument) {
		t.Errorf("a refusal is %v", err)
	}
}

// A list of a queue in one shard asks that, and one of dead letters the parts of the queue: elsewhere there are none.
// Other tasks of a queue that is spread may have been left in any shard.
func TestShardsOfAList(t *testing.T) {
	for _, c := range []struct {
		queue string
		dead  bool
		err   error
		want  string
	}{
		{"", false, nil, "[1 2 3 4]"}, {"", true, nil, "[1 2 3 4]"}, {"single", false, nil, "[2]"}, {"single", true, nil, "[2]"},
		{"spread", false, nil, "[1 2 3 4]"}, {"spread", true, nil, "[1 2 3]"}, {"none", false, nil, "[1 2 3 4]"}, {"none", true, nil, "[]"},
		{"single", false, errAway, "[]"}, {"spread", true, errAway, "[]"},
	} {
		got, err := Queues{Cluster: fakeCluster{err: c.err}}.ShardsOf(bg, c.queue, c.dead)
		if fmt.Sprint(got) != c.want || !errors.Is(err, c.err) {
			t.Errorf("the list of %q, dead %v: %v, %v; want %s", c.queue, c.dead, got, err, c.want)
		}
	}
}

// A page has the newest tasks of all shards, and continues behind the last one that fits into an answer.
func TestList(t *testing.T) {
	view := func(shard uint32, n int, size int) *broker.View {
		return &broker.View{Envelope: &schema.Envelope{ID: task.NewID(shard, int64(n), 0), Payload: make([]byte, size)},
			Exec: &schema.Exec{}}
	}
	for _, c := range []struct {
		what     string
		size     int
		limit    int32
		next     map[uint32]int // where a shard's search stopped
		errs     map[uint32]error
		want     string
		behind   int // the last task; 0: it is the last page
		searched bool
		err      error
	}{
		{"all", 0, 10, nil, nil, "[6 5 4 3 2 1]", 0, false, nil},
		{"a few", 0, 4, nil, nil, "[6 5 4 3]", 3, false, nil},
		{"fewer than fit", apiproto.MaxPageBytes/2 + 1, 10, nil, nil, "[6]", 6, true, nil},
		{"a search that stopped", 0, 10, map[uint32]int{1: 3}, nil, "[6 5 4 3]", 3, true, nil},
		{"a shard that is away", 0, 10, nil, map[uint32]error{2: errAway}, "[5 3 1]", 0, false, nil},
		{"all shards are away", 0, 10, nil, map[uint32]error{1: errAway, 2: errAway, 3: errAway, 4: errAway}, "", 0, false, errAway},
		{"a shard that refuses", 0, 10, nil, map[uint32]error{2: task.Invalid("filter", "is odd")}, "", 0, false, task.ErrInvalidArgument},
		{"a limit that is none", 0, -1, nil, nil, "", 0, false, task.ErrInvalidArgument},
	} {
		a := verbtest.Answers{}
		verbtest.On(a, broker.ListTasks, func(_ context.Context, q broker.TaskList) (out broker.Paged[broker.Page], err error) {
			if q.Shard <= 2 {
				for n := 6; n > 0; n-- {
					if n%2 == int(q.Shard)%2 {
						out.Page.Tasks = append(out.Page.Tasks, view(q.Shard, n, c.size))
					}
				}
			}
			if at := c.next[q.Shard]; at > 0 {
				id := task.NewID(q.Shard, int64(at), 0)
				out.Page.Next = id[:]
			}
			return out, c.errs[q.Shard]
		})
		page, err := Queues{Verbs: a, Cluster: fakeCluster{}}.List(bg, broker.Filter{}, "", c.limit, true)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.what, err, c.err)
		}
		if c.err != nil {
			continue
		}
		var got []int64
		var last task.ID
		for _, item := range page.Items {
			id, err := task.ParseID(item.GetTaskId())
			if err != nil {
				t.Fatal(err)
			}
			got, last = append(got, id.UnixMilli()), id
		}
		if lost := page.Missing; (len(c.errs) > 0) != (len(lost) == 1) || len(lost) == 1 && (lost[0].GetShard() != 2 ||
			lost[0].GetReason() != "away") {
			t.Errorf("%s: missing are %v", c.what, lost)
		}
		if fmt.Sprint(got) != c.want || (page.Next != "") != (c.behind > 0) || (page.Searched != nil) != c.searched {
			t.Errorf("%s: %v, next %q, searched %v; want %s", c.what, got, page.Next, page.Searched, c.want)
		}
		if page.Next == "" {
			continue
		}
		from, err := apiproto.DecodeTaskCursor(page.Next, false)
		if err != nil || !bytes.Equal(from, last[:]) || int64(c.behind) != last.UnixMilli() {
			t.Errorf("%s: it continues at %v, %v; want behind %v", c.what, from, err, last)
		}
	}
	if _, err := (Queues{Cluster: fakeCluster{}}).List(bg, broker.Filter{}, "x", 10, true); !errors.Is(err, task.ErrInvalidArgument) {
		t.Errorf("a cursor that is none: %v", err)
	}
	if _, err := (Queues{Cluster: fakeCluster{err: errAway}}).List(bg, broker.Filter{Queue: "single"}, "", 10, true); !errors.Is(err,
		errAway) {
		t.Errorf("a queue that can't be looked up: %v", err)
	}
}

// What a queue's parts have is summed up. A part that no task has come to has nothing, and a shard that does not answer is missing.
func TestStates(t *testing.T) {
	for shard, want := range map[uint32]error{0: nil, 2: task.NotFound("queue", "spread"), 3: errAway} {
		a := verbtest.Answers{}
		verbtest.On(a, broker.DescribeQueue, func(_ context.Context, q broker.OnQueue) (out broker.QueueDescribed, err error) {
			out.Info = broker.QueueInfo{Ready: [3]int64{1, 2, 3}, Scheduled: 4, Claimed: 5, Retrying: 6, Held: 7, Dead: 8, Poisoned: 9,
				OldestReady: time.Duration(q.Shard)}
			if q.Shard == shard {
				return broker.QueueDescribed{}, want
			}
			return out, nil
		})
		all, err := Queues{Verbs: a}.States(bg, single, spread)
		if err != nil {
			t.Fatal(err)
		}
		n := int64(3)
		if shard != 0 {
			n = 2
		}
		expected := broker.QueueInfo{Ready: [3]int64{n, 2 * n, 3 * n}, Scheduled: 4 * n, Claimed: 5 * n, Retrying: 6 * n, Held: 7 * n,
			Dead: 8 * n, Poisoned: 9 * n, OldestReady: 3}
		missing := "[]"
		if shard == 3 {
			expected.OldestReady, missing = 2, "[shard 3]"
		}
		if got := all[1]; len(got.Value.Parts) != 3 || fmt.Sprint(got.Value.Sum) != fmt.Sprint(expected) ||
			fmt.Sprint(got.Missing) != missing {
			t.Errorf("shard %d answers %v: %+v, want %+v without %s", shard, want, got, expected, missing)
		}
		if got := all[0]; len(got.Value.Parts) != 1 || (got.Value.Sum.Scheduled == 4) != (shard != 2) || len(got.Missing) > 0 {
			t.Errorf("shard %d answers %v: the queue in shard 2 is %+v", shard, want, got)
		}
		p, err := Queues{Verbs: a}.Describe(bg, spread)
		if err != nil || len(p.GetMissing()) != len(all[1].Missing) || p.GetDepth().GetScheduled() != 4*n {
			t.Errorf("shard %d answers %v: described as %v, %v", shard, want, p, err)
		}
		if _, err := (Queues{Verbs: a}).Whole(bg, spread); (shard == 3) != errors.Is(err, errAway) || shard != 3 && err != nil {
			t.Errorf("shard %d answers %v: the whole is refused with %v", shard, want, err)
		}
	}
	a := verbtest.Answers{}
	verbtest.On(a, broker.DescribeQueue, func(context.Context, broker.OnQueue) (out broker.QueueDescribed, err error) {
		return out, task.Invalid("queue", "is odd")
	})
	if _, err := (Queues{Verbs: a}).States(bg, spread); !errors.Is(err, task.ErrInvalidArgument) {
		t.Errorf("a refusal is %v", err)
	}
}

// A shard that hangs costs a list of many queues no more than a short time, and the queues in other shards nothing.
func TestShardHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context, shard uint32) error {
			if shard == 3 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		a := verbtest.Answers{}
		verbtest.On(a, broker.DescribeQueue, func(ctx context.Context, q broker.OnQueue) (out broker.QueueDescribed, err error) {
			out.Info.Scheduled = 1
			return out, hangs(ctx, q.Shard)
		})
		verbtest.On(a, broker.ListTasks, func(ctx context.Context, q broker.TaskList) (out broker.Paged[broker.Page], err error) {
			return out, hangs(ctx, q.Shard)
		})
		verbtest.On(a, broker.GroupDead, func(ctx context.Context, q broker.DeadOf) (out broker.DeadGrouped, err error) {
			return out, hangs(ctx, q.Shard)
		})
		g := Queues{Verbs: a, Cluster: fakeCluster{}}
		began := time.Now()
		took := func(what, missing string) {
			t.Helper()
			if d := time.Since(began); d != verb.PartTime || missing != "3: did not answer in time" {
				t.Errorf("%s takes %s and lacks shard %s", what, d, missing)
			}
			began = time.Now()
		}
		var qs []queues.Queue
		for i := range 500 {
			qs = append(qs, queues.Queue{Name: fmt.Sprint(i), Shard: uint32(i%4 + 1)})
		}
		all, err := g.States(bg, qs...)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range all {
			if gone := i%4 == 2; gone != (len(s.Missing) == 1) || gone == (s.Value.Sum.Scheduled == 1) {
				t.Fatalf("queue %d in shard %d: %+v", i, qs[i].Shard, s)
			}
		}
		took("a description", fmt.Sprint(all[2].Missing[0].Shard, ": ", all[2].Missing[0].Why))
		page, err := g.List(bg, broker.Filter{}, "", 10, true)
		if err != nil || len(page.Missing) != 1 {
			t.Fatal(page, err)
		}
		took("a list", fmt.Sprint(page.Missing[0].GetShard(), ": ", page.Missing[0].GetReason()))
		groups, _, err := g.DeadGroups(bg, []uint32{1, 3}, "q", task.Dead)
		if err != nil || len(groups.Missing) != 1 {
			t.Fatal(groups, err)
		}
		took("groups", fmt.Sprint(groups.Missing[0].Shard, ": ", groups.Missing[0].Why))
		if _, _, err := g.DeadGroups(bg, []uint32{3}, "q", task.Dead); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("groups of nothing: %v", err)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, err := g.List(ctx, broker.Filter{}, "", 10, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller who waits for less gets %v", err)
		}
	})
}

// Groups of dead letters are merged, and are partial if those of a shard are.
func TestDeadGroups(t *testing.T) {
	for partial, want := range map[uint32]bool{0: false, 2: true} {
		a := verbtest.Answers{}
		verbtest.On(a, broker.GroupDead, func(_ context.Context, q broker.DeadOf) (broker.DeadGrouped, error) {
			return broker.DeadGrouped{Groups: []broker.Group{{Type: "a", Count: int64(q.Shard)}}, Partial: q.Shard == partial}, nil
		})
		groups, cut, err := Queues{Verbs: a}.DeadGroups(bg, []uint32{1, 2}, "q", task.Dead)
		if err != nil || cut != want || len(groups.Value) != 1 || groups.Value[0].Count != 3 || len(groups.Missing) > 0 {
			t.Errorf("%+v, partial %v, %v", groups, cut, err)
		}
	}
}

// A queue is known if it has a name and exists.
func TestKnown(t *testing.T) {
	for name, want := range map[string]*task.Error{"single": nil, "none": task.ErrNotFound, "(": task.ErrInvalidArgument} {
		q, err := Queues{Cluster: fakeCluster{}, Limits: task.DefaultLimits()}.Known(bg, name)
		if want == nil && (err != nil || q.Name != name) || want != nil && !errors.Is(err, want) {
			t.Errorf("%q: %+v, %v", name, q, err)
		}
	}
	if _, err := (Queues{Cluster: fakeCluster{err: errAway}, Limits: task.DefaultLimits()}).Known(bg, "none"); !errors.Is(err, errAway) {
		t.Errorf("a queue that can't be looked up: %v", err)
	}
}
