package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// spread returns a gateway over three shards with one of the queues a, b and c in each.
func spread() (*fake, *Gateway, context.Context) {
	f := newFake(1, 2, 3)
	f.home = map[string]uint32{"a": 1, "b": 2, "c": 3}
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	return f, newGateway(f), ctx
}

func put(t testing.TB, g *Gateway, ctx context.Context, queue string, n int, payload string) {
	t.Helper()
	for range n {
		_, err := g.services.producer.Enqueue(ctx, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "t", Queue: new(queue),
			Payload: []byte(payload)}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// claimText returns the queues of the tasks that a claim got, or its error.
func claimText(t testing.TB, g *Gateway, ctx context.Context, r *pawlv1.ClaimRequest) string {
	t.Helper()
	got, err := g.services.worker.Claim(ctx, r)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, c := range got.GetTasks() {
		b.WriteString(c.GetQueue())
	}
	return b.String()
}

func shares(text string) (queues []*pawlv1.QueueShare) {
	for _, f := range strings.Fields(text) {
		name, weight, _ := strings.Cut(f, "=")
		q := &pawlv1.QueueShare{Queue: name}
		fmt.Sscan(weight, &q.Weight)
		queues = append(queues, q)
	}
	return queues
}

func TestStrictClaimAcrossShards(t *testing.T) {
	_, g, ctx := spread()
	put(t, g, ctx, "a", 2, "1")
	put(t, g, ctx, "b", 2, "1")
	put(t, g, ctx, "c", 2, "1")
	for _, want := range []string{"ccb", "baa", ""} {
		if got := claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares("c b a"), Max: 3}); got != want {
			t.Errorf("claim got tasks of queues %q, want %q", got, want)
		}
	}
}

func TestWeightedClaimAcrossShards(t *testing.T) {
	_, g, ctx := spread()
	put(t, g, ctx, "a", 100, "1")
	put(t, g, ctx, "b", 100, "1")
	put(t, g, ctx, "c", 100, "1")
	count := map[rune]int{}
	for i := range 12 {
		for _, q := range claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares("a=5 b=1 c=3"), Order: pawlv1.Order_ORDER_WEIGHTED,
			Max: 1 + int32(i%4)*3}) {
			count[q]++
		}
	}
	// 12 claims of 1, 4, 7 and 10 tasks are 66: 7 turns of 9 and 3 more, which smooth round robin gives to a, c and a.
	if count['a'] != 37 || count['b'] != 7 || count['c'] != 22 {
		t.Errorf("claims got %d of a, %d of b, %d of c; want 37, 7, 22", count['a'], count['b'], count['c'])
	}
}

// slowShard is a Broker that calls onClaim before a shard's claims.
type slowShard struct {
	Broker
	onClaim func()
}

func (b *slowShard) ClaimNow(ctx context.Context, shard uint32, c broker.ClaimCall) ([]broker.Claimed, broker.Stamp, error) {
	b.onClaim()
	return b.Broker.ClaimNow(ctx, shard, c)
}

// A claim does not wait for another from the same queues, whose shard is slow to answer. Both count.
func TestWeightedClaimsAtTheSameTime(t *testing.T) {
	_, g, ctx := spread()
	put(t, g, ctx, "a", 9, "1")
	put(t, g, ctx, "b", 9, "1")
	r := &pawlv1.ClaimRequest{Queues: shares("a=3 b=1"), Max: 1}
	var second string
	slow := &slowShard{Broker: g.claims.broker}
	slow.onClaim = func() {
		slow.onClaim = func() {}
		done := make(chan string, 1)
		go func() { done <- claimText(t, g, ctx, r) + claimText(t, g, ctx, r) }()
		select {
		case second = <-done:
		case <-time.After(10 * time.Second):
			t.Error("a claim waits for another")
		}
	}
	g.claims.broker = slow
	if got := claimText(t, g, ctx, r) + second + claimText(t, g, ctx, r); strings.Count(got, "a") != 3 || strings.Count(got, "b") != 1 {
		t.Errorf("claims got %q, want 3 of a and 1 of b", got)
	}
}

func TestEmptyQueueAccruesNoShare(t *testing.T) {
	_, g, ctx := spread()
	put(t, g, ctx, "a", 3, "1")
	put(t, g, ctx, "b", 50, "1")
	r := &pawlv1.ClaimRequest{Queues: shares("a=9 b=1"), Max: 20}
	if got := claimText(t, g, ctx, r); strings.Count(got, "a") != 3 || strings.Count(got, "b") != 17 {
		t.Errorf("claim got %q, want all 3 of a and 17 of b", got)
	}
	put(t, g, ctx, "a", 50, "1")
	if got := claimText(t, g, ctx, r); strings.Count(got, "a") != 18 || strings.Count(got, "b") != 2 {
		t.Errorf("claim got %q, want 18 of a and 2 of b", got)
	}
}

// However a plan changes as queues turn out to be empty, a claim gets no more tasks than it asks for.
func TestWeightedClaimRespectsMax(t *testing.T) {
	for _, c := range []struct {
		queues string
		tasks  [3]int
		max    int32
	}{{"a=1 b=5 c=5", [3]int{6, 2, 5}, 6}, {"a=2 b=5 c=5", [3]int{2, 3, 5}, 9}, {"a=5 b=5 c=1", [3]int{1, 5, 3}, 6}} {
		_, g, ctx := spread()
		for i, queue := range []string{"a", "b", "c"} {
			put(t, g, ctx, queue, c.tasks[i], "1")
		}
		if got := claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares(c.queues), Max: c.max}); len(got) != int(c.max) {
			t.Errorf("queues %s with %v tasks: a claim of %d got %q", c.queues, c.tasks, c.max, got)
		}
	}
}

// A queue that is not asked because the claim has reached its byte limit gets its share in the following claims.
func TestByteLimitKeepsWeights(t *testing.T) {
	_, g, ctx := spread()
	text := `"` + strings.Repeat("x", 998) + `"`
	put(t, g, ctx, "a", 100, text)
	put(t, g, ctx, "b", 100, text)
	got := ""
	for range 40 {
		got += claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares("a=1 b=3"), Max: 10, MaxBytes: 2000})
	}
	if a, all := strings.Count(got, "a"), len(got); all < 80 || 4*a > all+4*10 || 4*a < all-4*10 {
		t.Errorf("of %d tasks %d are from a, want a quarter: %s", all, a, got)
	}
}

func TestByteLimitEndsClaimAcrossShards(t *testing.T) {
	for _, queues := range []string{"a b", "a=1 b=1"} { // the maximum number of bytes suffices
		f, g, ctx := spread()
		put(t, g, ctx, "b", 1, "1")
		put(t, g, ctx, "a", 1, "1")
		most := f.inOrder(1)[0].view.Envelope.Weight()
		if got := claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares(queues), Max: 10, MaxBytes: int64(most)}); got != "a" {
			t.Errorf("%s: claim got %q with a limit of %d bytes, want a", queues, got, most)
		}
	}
	_, g, ctx := spread()
	put(t, g, ctx, "a", 5, `"`+strings.Repeat("x", 998)+`"`)
	put(t, g, ctx, "b", 5, `"`+strings.Repeat("x", 998)+`"`)
	if got := claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares("a b"), Max: 10, MaxBytes: 3000}); got != "aaa" {
		t.Errorf("claim got %q, want aaa", got)
	}
	if got := claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares("a=1 b=1"), Max: 10, MaxBytes: 2000}); len(got) < 2 || len(got) > 3 {
		t.Errorf("claim got %q, want 2 or 3 tasks", got)
	}
}

func TestRepeatedClaimAcrossShards(t *testing.T) {
	for _, queues := range []string{"a b c", "a=1 b=1 c=2"} {
		f, g, ctx := spread()
		put(t, g, ctx, "b", 2, "1")
		put(t, g, ctx, "c", 9, "1")
		r := &pawlv1.ClaimRequest{Queues: shares(queues), Max: 6, ClaimKey: new("k")}
		first := claimText(t, g, ctx, r)
		put(t, g, ctx, "a", 5, "1")
		again := claimText(t, g, ctx, r)
		if len(first) != 6 || strings.Count(first, "b") != strings.Count(again, "b") ||
			strings.Count(first, "c") != strings.Count(again, "c") || len(again) != 6 {
			t.Errorf("%s: claim got %q, and %q when repeated", queues, first, again)
		}
		claimed := 0
		for _, x := range f.tasks {
			if x.view.Exec.State == task.Claimed {
				claimed++
			}
		}
		if claimed != 6 {
			t.Errorf("%s: %d tasks are claimed, want 6", queues, claimed)
		}
	}
}

// The same holds for a claim of a single task, although others have arrived since.
func TestRepeatedClaimOfOneTask(t *testing.T) {
	_, g, ctx := spread()
	r := &pawlv1.ClaimRequest{Queues: shares("a b"), Max: 6, ClaimKey: new("k")}
	put(t, g, ctx, "b", 1, "1")
	first := claimText(t, g, ctx, r)
	put(t, g, ctx, "a", 1, "1")
	if again := claimText(t, g, ctx, r); first != "b" || again != "b" {
		t.Errorf("claim got %q, and %q when repeated", first, again)
	}
}

// The parts of a queue are asked one after the other for what is still wanted, before those of the next queue. A part that does not answer
// gave nothing.
func TestPartsAreAskedInOrder(t *testing.T) {
	for _, c := range []struct {
		what        string
		places      [][]uint32
		queues      string
		tasks       map[uint32]string // the queue of each shard's task
		max         int
		down        uint32
		want, asked string
	}{
		{"one of three parts is enough", [][]uint32{{1, 2, 3}}, "q", map[uint32]string{1: "q", 2: "q", 3: "q"}, 1, 0, "q", "1"},
		{"two of three are", [][]uint32{{1, 2, 3}}, "q", map[uint32]string{1: "q", 2: "q", 3: "q"}, 2, 0, "qq", "2 1"},
		{"one is down", [][]uint32{{1, 2, 3}}, "q", map[uint32]string{1: "q", 2: "q"}, 1, 1, "q", "1"},
		{"queues with the same parts", [][]uint32{{1, 2}, {1, 2}}, "q r", map[uint32]string{1: "r", 2: "q"}, 2, 0, "qr", "2 2 1"},
	} {
		f, g, ctx := spread()
		for shard, queue := range c.tasks {
			f.home[queue] = shard
			put(t, g, ctx, queue, 1, "1")
			delete(f.queues, queue)
		}
		f.down[c.down] = true
		got, err := g.claims.takeMany(ctx, broker.ClaimCall{Namespace: "default", Queues: queuesOf(c.queues), Max: c.max, MaxBytes: 9000},
			c.places, 0)
		text, asked := "", ""
		for _, one := range got {
			text += one.Queue
		}
		for _, call := range f.claims {
			asked += fmt.Sprint(call.Max, " ")
		}
		if text != c.want || strings.TrimSpace(asked) != c.asked || err != nil {
			t.Errorf("%s: got %q, want %q; asked for %s tasks, want %s (%v)", c.what, text, c.want, asked, c.asked, err)
		}
	}
}

func queuesOf(names string) (queues []broker.Share) {
	for _, name := range strings.Fields(names) {
		queues = append(queues, broker.Share{Queue: name})
	}
	return queues
}

// A claim over several shards that is answered without one of them leaves no claims there. A refused claim may be retried and then returns
// what the lost response contained.
func TestLostResponseOfOneShard(t *testing.T) {
	f, g, ctx := spread()
	put(t, g, ctx, "a", 2, "1")
	put(t, g, ctx, "b", 1, "1")
	f.loses = map[uint32]bool{1: true}
	r := &pawlv1.ClaimRequest{Queues: shares("a b"), Max: 6, ClaimKey: new("k")}
	if got := claimText(t, g, ctx, r); got != "b" || len(f.left) != 1 || f.left[0].ClaimKey != partKey("k", 0, 0) {
		t.Errorf("claim got %q and abandoned %+v", got, f.left)
	}

	f, g, ctx = spread()
	put(t, g, ctx, "a", 2, "1")
	f.loses = map[uint32]bool{1: true, 2: true, 3: true}
	if got, err := (g.services.worker).Claim(ctx, r); !errors.Is(err, broker.ErrUnknown) || len(f.left) != 0 {
		t.Errorf("claim without a response: %v, %v, abandoned %+v", got, err, f.left)
	}
	f.loses = nil
	if got := claimText(t, g, ctx, r); got != "aa" || len(f.left) != 0 {
		t.Errorf("repeated claim got %q and abandoned %+v", got, f.left)
	}
}

func TestWaitingClaimAcrossShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g, ctx := spread()
		defer g.Shutdown(context.Background())
		f.down[2] = true // a shard without a leader must not delay the claim
		go func() {
			pass(10 * time.Second)
			put(t, g, ctx, "c", 1, "1")
		}()
		r := &pawlv1.ClaimRequest{Queues: shares("a b c"), Max: 3, Wait: durationpb.New(time.Minute)}
		start := time.Now()
		if got := claimText(t, g, ctx, r); got != "c" || time.Since(start) > 11*time.Second {
			t.Errorf("claim got %q after %v, want c after 10s", got, time.Since(start))
		}
		f.set(func() { f.down[2] = false })
		if got := claimText(t, g, ctx, r); got != "" {
			t.Errorf("claim got %q, want nothing", got)
		}
		f.set(func() { f.down[1], f.down[2], f.down[3] = true, true, true })
		r.Wait = durationpb.New(5 * time.Second)
		if got := claimText(t, g, ctx, r); !strings.Contains(got, "no leader") {
			t.Errorf("claim from shards without leaders got %q, want an error", got)
		}
	})
}

// The claims of a caller that has left are given back.
func TestAbandonedClaimIsGivenBack(t *testing.T) {
	f := newFake()
	g := newGateway(f)
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	put(t, g, ctx, "a", 3, "1")
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := (g.services.worker).Claim(ctx, &pawlv1.ClaimRequest{Queues: shares("a"), Max: 5}); err == nil {
		t.Error("Claim for a caller that has left returned no error")
	}
	g.Shutdown(context.Background())
	if len(f.released) != 3 {
		t.Errorf("%d tasks were given back, want 3", len(f.released))
	}
	for _, down := range []bool{false, true} {
		f, lines := newFake(), &strings.Builder{}
		g := newGateway(f)
		g.cfg.Logger = slog.New(slog.NewTextHandler(lines, nil))
		g.wire()
		f.down[1] = down
		g.claims.giveBack([]broker.Claimed{{Envelope: &schema.Envelope{ID: task.NewID(1, 1, 1)}}})
		if g.Shutdown(context.Background()); strings.Contains(lines.String(), "stay in place until their leases end") != down {
			t.Errorf("shard down %t: log = %s", down, lines)
		}
	}
}

// The part of a response that would not fit into a message is given back.
func TestClaimTooLargeForOneMessage(t *testing.T) {
	f := newFake()
	g := newGateway(f)
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	put(t, g, ctx, "a", 400, "1")
	for _, x := range f.tasks {
		x.view.Checkpoint = make([]byte, 64<<10)
	}
	got, err := g.services.worker.Claim(ctx, &pawlv1.ClaimRequest{Queues: shares("a"), Max: 400})
	if err != nil {
		t.Fatal(err)
	}
	g.Shutdown(context.Background())
	if n := len(got.Tasks); n < 200 || n > 240 || n+len(f.released) != 400 {
		t.Errorf("%d tasks were returned and %d given back, want 400 together", n, len(f.released))
	}
}

// Pages over several shards return each task once, newest first, wherever each shard stops reading.
func TestListOverShards(t *testing.T) {
	for _, limit := range []int32{1, 2, 3, 7, 1000} {
		_, g, ctx := spread()
		for i := range 40 {
			put(t, g, ctx, []string{"a", "b", "c"}[i*i%3], 1, "1")
		}
		var ids []string
		until := time.Now().AddDate(100, 0, 0)
		for cursor, pages := "", 0; ; pages++ {
			r, err := g.services.producer.ListTasks(ctx, &pawlv1.ListTasksRequest{Limit: limit, Cursor: cursor})
			if err != nil || len(r.Items) > int(limit) || pages > 200 {
				t.Fatal(r, err)
			}
			for _, x := range r.Items {
				ids = append(ids, x.TaskId)
				if id, _ := task.ParseID(x.TaskId); time.UnixMilli(id.UnixMilli()).After(until) {
					t.Errorf("limit %d: %s is newer than %s, back to which the previous page searched", limit, id, until)
				}
			}
			s := r.Searched
			if short := len(r.Items) < int(limit) && r.NextCursor != ""; (s != nil) != short || short &&
				(s.Rows < 1 || s.Rows > 3*fakeScan) {
				t.Errorf("limit %d: page with %d tasks and cursor %q reports that it searched %v", limit, len(r.Items), r.NextCursor, s)
			}
			if s != nil {
				until = s.Until.AsTime()
			}
			if cursor = r.NextCursor; cursor == "" {
				break
			}
		}
		if len(ids) != 40 {
			t.Errorf("limit %d: %d tasks, want 40", limit, len(ids))
		}
		for i := 1; i < len(ids); i++ {
			if ids[i-1] <= ids[i] {
				t.Errorf("limit %d: task %s is before %s, want newest first", limit, ids[i-1], ids[i])
			}
		}
	}
}

// A list asks the shards that may have tasks: those of the queue or, since ended tasks outlive a queue's parts, all shards.
func TestShardsOfLists(t *testing.T) {
	f, g, ctx := spread()
	put(t, g, ctx, "one", 1, "1")
	put(t, g, ctx, "two", 1, "1")
	if _, err := (g.services.operator).SpreadQueue(ctx, &pawlv1.SpreadQueueRequest{Queue: "two", Shards: []uint32{1, 2}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		queue string
		dead  bool
		want  string
	}{{"", false, "[1 2 3]"}, {"", true, "[1 2 3]"}, {"one", false, "[1]"}, {"one", true, "[1]"}, {"two", false, "[1 2 3]"},
		{"two", true, "[1 2]"}, {"gone", false, "[1 2 3]"}, {"gone", true, "[]"}} {
		if got, err := g.services.operator.ShardsOf(ctx, c.queue, c.dead); err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("queue %q (dead letters: %t): shards %v, %v, want %s", c.queue, c.dead, got, err, c.want)
		}
	}
	f.cluster = errPlanted
	if _, err := g.services.operator.ShardsOf(ctx, "one", false); !errors.Is(err, errPlanted) {
		t.Errorf("ShardsOf a queue that can't be read: %v", err)
	}
}

// A deleted queue has no dead letters.
func TestDeadLettersOfDeletedQueue(t *testing.T) {
	_, g, ctx := spread()
	put(t, g, ctx, "a", 20, "1")
	r, err := g.services.producer.ListTasks(ctx, &pawlv1.ListTasksRequest{Filter: &pawlv1.Filter{Queue: new("gone"),
		States: []pawlv1.State{pawlv1.State_STATE_DEAD}}})
	if err != nil || len(r.Items) > 0 || r.NextCursor != "" {
		t.Errorf("ListTasks of a deleted queue's dead letters = %v, %v", r, err)
	}
}

// The results of a batch over several shards are in its order, and a shard without a leader refuses its own tasks only.
func TestBatchOverShards(t *testing.T) {
	f, g, ctx := spread()
	f.down[2] = true
	r := &pawlv1.EnqueueBatchRequest{}
	for i := range 30 {
		r.Tasks = append(r.Tasks, &pawlv1.TaskSpec{Type: "t", Queue: new([]string{"a", "b", "c"}[i%3])})
	}
	r.Tasks[4].Type = ""
	for _, i := range []int{6, 9} {
		r.Tasks[i].IdempotencyKey, r.Tasks[i].Payload = new("k"), fmt.Append(nil, i)
	}
	got, err := g.services.producer.EnqueueBatch(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range got.Results {
		id, _ := task.ParseID(x.GetTask().GetTaskId())
		switch {
		case i == 4 && x.Error.GetCode() != "invalid_argument",
			i == 9 && x.Error.GetCode() != "conflict",
			i != 4 && i%3 == 1 && x.Error.GetCode() != "unavailable",
			i != 9 && i%3 != 1 && (x.Error != nil || id.Shard() != uint32(i%3+1)):
			t.Errorf("task %d: %v", i, x)
		}
	}
	if shard, _, _, _ := callinfo.Of(ctx).Stamp(); len(shard) != len("1, 3") {
		t.Errorf("stamps are of shards %q, want 1 and 3", shard)
	}
}

// unready is a Broker some of whose shards can't be reached, because the node is not ready.
type unready struct {
	Broker
	shards []uint32
}

func (b unready) Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	if slices.Contains(b.shards, shard) {
		return nil, broker.Stamp{}, task.NotReady("cut off")
	}
	return b.Broker.Enqueue(ctx, shard, ns, specs)
}

// A node that is not ready for any task of a batch refuses the call, or the frame, so that its client goes to another node.
func TestBatchAtUnreadyNode(t *testing.T) {
	f, g, ctx := spread()
	batch := []*pawlv1.TaskSpec{{Type: "t", Queue: new("a")}, {Type: "t", Queue: new("b")}, {Type: "t", Queue: new("b")}}
	for _, shards := range [][]uint32{{1}, {2}, {1, 2}} {
		g.services.producer.broker = unready{f, shards}
		out, err := g.services.producer.EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: batch})
		if refused := errors.Is(err, task.ErrNotReady); refused != (len(shards) == 2) || !refused &&
			(err != nil || len(out.GetResults()) != 3) {
			t.Errorf("not ready for shards %v: %v, %v", shards, out, err)
		}
		for i, r := range out.GetResults() {
			if down := slices.Contains(shards, uint32(min(i, 1)+1)); down != (r.GetError().GetReason() == task.ReasonNotReady) ||
				down != (r.GetTask() == nil) {
				t.Errorf("not ready for shards %v: task %d: %v", shards, i, r)
			}
		}
	}
	if _, err := g.services.producer.EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: append(batch,
		&pawlv1.TaskSpec{Queue: new("a")})}); err != nil {
		t.Errorf("a batch with an invalid task was refused: %v", err)
	}
}

// hungShard is a Broker whose second shard does not answer enqueues and settles.
type hungShard struct{ Broker }

func (b hungShard) Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	if shard == 2 {
		<-ctx.Done()
		return nil, broker.Stamp{}, ctx.Err()
	}
	return b.Broker.Enqueue(ctx, shard, ns, specs)
}

func (b hungShard) Settle(ctx context.Context, shard uint32, calls []broker.Settle) ([]broker.Settled, broker.Stamp, error) {
	if shard == 2 {
		<-ctx.Done()
		return nil, broker.Stamp{}, ctx.Err()
	}
	return b.Broker.Settle(ctx, shard, calls)
}

// hungPlace is a cluster whose system shard does not place queues.
type hungPlace struct{ fanout.Cluster }

func (hungPlace) Place(ctx context.Context, _, _ string) (q queues.Queue, err error) {
	<-ctx.Done()
	return q, ctx.Err()
}

// New queues that the system shard does not place do not hold up the tasks of a batch that are for others.
func TestBatchesWaitBrieflyForNewQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g, ctx := spread()
		specs := make([]*pawlv1.TaskSpec, 60)
		for i := range specs { // more new queues than are placed at the same time, and first
			specs[i] = &pawlv1.TaskSpec{Type: "t", Queue: new(fmt.Sprintf("new-%d", i))}
		}
		known := func(i int) bool { return i%20 == 19 }
		for i := range specs {
			if known(i) {
				specs[i].Queue = new(string("abc"[i/20]))
			}
		}
		enqueue := func(g *Gateway) []*pawlv1.EnqueueResult {
			out, err := g.services.producer.EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: specs})
			if err != nil {
				t.Fatal(err)
			}
			return out.GetResults()
		}
		_, sound, _ := spread()
		for i, r := range enqueue(sound) {
			if r.GetTask() == nil {
				t.Errorf("a task for %q: %v", specs[i].GetQueue(), r.GetError())
			}
		}
		for _, queue := range []string{"a", "b", "c"} {
			put(t, g, ctx, queue, 1, "1")
		}
		g.services.producer.cluster = hungPlace{g.services.producer.cluster}
		began := time.Now()
		for i, r := range enqueue(g) {
			if code := task.Code(r.GetError().GetCode()); known(i) != (r.GetTask() != nil) || !known(i) && code != task.CodeUnavailable {
				t.Errorf("a task for %q: %v", specs[i].GetQueue(), r)
			}
		}
		if took := time.Since(began); took != 800*time.Millisecond {
			t.Errorf("the batch took %s, want 800ms", took)
		}
	})
}

// A batch waits a little longer for a shard that does not answer than for the others, and says that it does not know
// what became of its items.
func TestBatchesWaitBrieflyForAHungShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g, ctx := spread()
		for _, queue := range []string{"a", "b", "c"} {
			put(t, g, ctx, queue, 3, "1")
		}
		got, err := g.services.worker.Claim(ctx, &pawlv1.ClaimRequest{Queues: shares("a b c"), Max: 9})
		if err != nil || len(got.GetTasks()) != 9 {
			t.Fatalf("claimed %v, %v", got, err)
		}
		hung := hungShard{f}
		g.services.producer.broker, g.services.worker.broker, g.services.sqs.broker = hung, hung, hung
		codes := func(what string, n int, of func(i int) (task.ID, task.Code)) {
			t.Helper()
			for i := range n {
				id, code := of(i)
				if late := code == task.CodeUnavailable; late != (id.Shard() == 2) || !late && code != "" {
					t.Errorf("%s: item %d, of shard %d: %q", what, i, id.Shard(), code)
				}
			}
		}
		settled := func(p *pawlv1.Settled) (task.ID, task.Code) {
			id, _ := task.ParseID(p.GetTaskId())
			return id, task.Code(p.GetError().GetCode())
		}
		within := func(what string, do func()) {
			t.Helper()
			began := time.Now()
			do()
			if took := time.Since(began); took != 800*time.Millisecond {
				t.Errorf("%s took %s, want 800ms", what, took)
			}
		}

		within("an enqueue", func() {
			out, err := g.services.producer.EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: []*pawlv1.TaskSpec{
				{Type: "t", Queue: new("a")}, {Type: "t", Queue: new("b")}, {Type: "t", Queue: new("c")}, {Type: "t", Queue: new("b")}}})
			if err != nil {
				t.Fatal(err)
			}
			codes("an enqueue", 4, func(i int) (task.ID, task.Code) {
				r := out.GetResults()[i]
				if r.GetTask() == nil {
					return task.NewID(2, 1, 1), task.Code(r.GetError().GetCode())
				}
				id, _ := task.ParseID(r.GetTask().GetTaskId())
				return id, task.Code(r.GetError().GetCode())
			})
		})
		r := &pawlv1.SettleRequest{}
		var calls []broker.Settle
		for i, c := range got.GetTasks() {
			id, _ := task.ParseID(c.GetTaskId())
			token, _ := task.ParseToken(c.GetClaimToken())
			switch i % 3 {
			case 0:
				r.Acks = append(r.Acks, &pawlv1.AckRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken()})
			case 1:
				r.Releases = append(r.Releases, &pawlv1.ReleaseRequest{TaskId: c.GetTaskId(), ClaimToken: c.GetClaimToken()})
			default:
				calls = append(calls, broker.Settle{Verb: broker.Ack, Hold: broker.Hold{Namespace: callinfo.Namespace(ctx),
					ID: id, Token: token}})
			}
		}
		within("a settle", func() {
			out, err := g.services.worker.Settle(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			codes("an ack", 3, func(i int) (task.ID, task.Code) { return settled(out.GetAcks()[i]) })
			codes("a release", 3, func(i int) (task.ID, task.Code) { return settled(out.GetReleases()[i]) })
		})
		within("an SQS enqueue", func() {
			half := task.AllSlots >> (task.SlotCount / 2)
			q := queues.Queue{Name: "a", Parts: []queues.Part{{Shard: 1, Slots: half, Next: half}, {Shard: 2, Slots: task.AllSlots &^ half,
				Next: task.AllSlots &^ half}}}
			specs := make([]task.Spec, 20)
			for i := range specs {
				specs[i] = task.Spec{Type: "t", Queue: "a", Key: fmt.Sprint(i), Priority: task.Normal, ContentType: "x/y"}
			}
			out := g.services.sqs.Enqueue(ctx, q, specs)
			codes("an SQS enqueue", len(specs), func(i int) (task.ID, task.Code) {
				if out[i].Err == nil {
					return out[i].ID, ""
				}
				return task.NewID(q.Home(&specs[i]), 1, 1), g.Refusal(out[i].Err).Code
			})
		})
		within("an SQS settle", func() {
			out := g.services.sqs.Settle(ctx, calls)
			codes("an SQS settle", 3, func(i int) (task.ID, task.Code) {
				if out[i].Err == nil {
					return calls[i].Hold.ID, ""
				}
				return calls[i].Hold.ID, g.Refusal(out[i].Err).Code
			})
		})
	})
}

// Each task of a batch has its own creation time, although most times are equal.
func TestBatchHasCreationTimes(t *testing.T) {
	got := make([]broker.Enqueued, 4)
	for i, at := range []broker.Time{7, 7, 5, 7} {
		got[i].CreatedAt = at
	}
	results := newResults(len(got))
	newGateway(newFake()).services.producer.answerTasks(results, &shardTasks{index: []int{0, 1, 2, 3}}, got)
	for i := range got {
		if at := results[i].GetTask().GetCreatedAt(); !proto.Equal(at, apiproto.TimeProto(got[i].CreatedAt)) {
			t.Errorf("creation time of task %d = %v, want %v", i, at, apiproto.TimeProto(got[i].CreatedAt))
		}
	}
}

// The shards of a queue are looked up once for all of its tasks.
func TestBatchLooksUpQueuesOnce(t *testing.T) {
	f, g, ctx := spread()
	f.faults = &faults{}
	spec := func(typ, queue string) *pawlv1.TaskSpec { return &pawlv1.TaskSpec{Type: typ, Queue: new(queue)} }
	_, err := g.services.producer.EnqueueBatch(ctx, &pawlv1.EnqueueBatchRequest{Tasks: []*pawlv1.TaskSpec{spec("t", "a"), spec("t", "a"),
		spec("t", "b"), spec("", "b"), spec("t", "b"), spec("t", "b")}})
	if want := 2 + 2; err != nil || f.faults.asked != want { // two of them are written
		t.Errorf("EnqueueBatch made %d calls to shards and the cluster, want %d (%v)", f.faults.asked, want, err)
	}
}

// If a queue has several shards, the one that has a task is asked first.
func TestReadyShardIsAskedFirst(t *testing.T) {
	places := [][]uint32{{1, 2, 3}, {2}, {3, 2}, {1, 4}}
	if got := fmt.Sprint(askFirst(places, 2), places); got != "[[2 1 3] [2] [2 3] [1 4]] [[1 2 3] [2] [3 2] [1 4]]" {
		t.Error(got)
	}
}

// A claim that waits for several shards learns which of them has a task, or gets 0 when it should ask again or give up.
func TestAwaitAny(t *testing.T) {
	for what, c := range map[string]struct {
		happens func(f *fake, leave func())
		want    uint32
		after   time.Duration
	}{
		"a task comes": {func(f *fake, _ func()) {
			f.home["b"] = 2
			ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
			time.Sleep(2 * time.Second)
			put(t, newGateway(f), ctx, "b", 1, "1")
		}, 2, 2 * time.Second},
		"nothing comes":         {func(*fake, func()) {}, 0, 5 * time.Second},
		"a shard has no leader": {func(f *fake, _ func()) { f.set(func() { f.down[1] = true; f.notify() }) }, 0, watchRetryPause},
		"the node stops":        {func(f *fake, _ func()) { time.Sleep(time.Second); close(f.draining) }, 0, time.Second},
		"the caller goes":       {func(_ *fake, leave func()) { time.Sleep(3 * time.Second); leave() }, 0, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(1, 2)
			g := newGateway(f)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			began := time.Now()
			go c.happens(f, leave)
			m := &manyClaim{g: g.claims, call: broker.ClaimCall{Queues: queuesOf("a b")}, claimPass: newClaimPass([][]uint32{{1}, {2}})}
			got := m.awaitAny(ctx, 5*time.Second)
			if took := time.Since(began); got != c.want || took != c.after {
				t.Errorf("%s: shard %d after %v, want %d after %v", what, got, took, c.want, c.after)
			}
			g.Shutdown(context.Background())
		})
	}
}

// The state of a queue in several shards is the sum of its parts, except the age of its oldest task. A part that no task came to yet counts
// as empty.
func TestPartsAreAddedUp(t *testing.T) {
	f := newFake(1, 2, 3)
	verbtest.On(f.table(), broker.DescribeQueue, func(_ context.Context, q broker.OnQueue) (out broker.QueueDescribed, err error) {
		n := int64(q.Shard)
		out.Info = broker.QueueInfo{Ready: [3]int64{n, 10 * n, 100 * n}, Scheduled: n, Claimed: 2 * n, Retrying: 3 * n, Dead: 4 * n,
			Poisoned: 5 * n, Held: 6 * n, OldestReady: time.Duration(10 - n)}
		if q.Shard == 3 {
			err = task.NotFound("queue", q.Queue)
		}
		return out, err
	})
	ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
	all, err := newGateway(f).services.operator.States(ctx, queues.Queue{Name: "q", Parts: []queues.Part{{Shard: 1, Slots: 1, Next: 1},
		{Shard: 2, Slots: 2, Next: 2}, {Shard: 3, Slots: 4, Next: 4}}})
	want := broker.QueueInfo{Ready: [3]int64{3, 30, 300}, Scheduled: 3, Claimed: 6, Retrying: 9, Dead: 12, Poisoned: 15,
		Held: 18, OldestReady: 9}
	if err != nil {
		t.Fatal(err)
	}
	sum, parts := all[0].Value.Sum, all[0].Value.Parts
	if !reflect.DeepEqual(sum, want) || len(all[0].Missing) > 0 || len(parts) != 3 || parts[1].Dead != 8 || parts[2].Dead != 0 {
		t.Errorf("States = %+v, want %+v; parts %+v (%v)", sum, want, parts, err)
	}
}

// Consecutive queues in the same shard are asked in one call.
func TestStrictClaimAsksNeighboursTogether(t *testing.T) {
	f := newFake(1, 2)
	f.home = map[string]uint32{"a": 1, "b": 1, "c": 2, "d": 1}
	g := newGateway(f)
	defer g.Shutdown(context.Background())
	ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
	put(t, g, ctx, "d", 1, "1")
	if got := claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares("a b c d"), Max: 3}); got != "d" {
		t.Errorf("claim got %q, want d", got)
	}
	var asked []string
	for _, c := range f.claims {
		names := ""
		for _, q := range c.Queues {
			names += q.Queue
		}
		asked = append(asked, fmt.Sprint(names, c.Max))
	}
	if got := strings.Join(asked, " "); got != "ab3 c3 d3" {
		t.Errorf("shards were asked for %s, want ab3 c3 d3", got)
	}
}

// A claim finds the tasks of a queue in any of its shards, and its response has the stamps of all that were asked. The
// same holds for a retry.
func TestClaimOfAQueueInSeveralShards(t *testing.T) {
	f, g, ctx := spread()
	put(t, g, ctx, "q", 6, "1")
	if _, err := (g.services.operator).SpreadQueue(ctx, &pawlv1.SpreadQueueRequest{Queue: "q", Parts: 3}); err != nil {
		t.Fatal(err)
	}
	for i, x := range f.inOrder(f.queues["q"].Shard) {
		x.at = uint32(i%2 + 2)
	}
	r := &pawlv1.ClaimRequest{Queues: shares("q"), Max: 9, ClaimKey: new("k")}
	for _, what := range []string{"a claim", "its repeat"} {
		ctx, c := callinfo.Begin(t.Context(), "grpc", "test")
		if got := claimText(t, g, ctx, r); got != "qqqqqq" {
			t.Errorf("%s got %q, want qqqqqq", what, got)
		}
		if len(stamped(c)) != 3 {
			t.Errorf("%s: stamps are of shards %v, want 3", what, stamped(c))
		}
	}
}

// A claim that has definitely failed leaves nothing to give back, because only one with an unknown outcome may have claimed something.
// While the node stops, a claim no longer waits.
func TestClaimsThatFailDefinitely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g, ctx := spread()
		put(t, g, ctx, "b", 1, "1")
		f.down[1] = true
		if got := claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares("a b"), Max: 6, ClaimKey: new("k")}); got != "b" ||
			len(f.left) != 0 {
			t.Errorf("claim got %q and abandoned %+v", got, f.left)
		}
		close(f.draining)
		began := time.Now()
		if got := claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares("a b"), Max: 6, Wait: durationpb.New(time.Minute)}); got != "" ||
			time.Since(began) != 0 {
			t.Errorf("claim got %q after %v while the node stops, want nothing at once", got, time.Since(began))
		}
		g.Shutdown(context.Background())
	})
}

// Shards that fail one after the other are asked again once the first one's pause is over.
func TestPausesOfShardsDoNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1, 2)
		g := newGateway(f)
		f.down[1] = true
		go func() {
			pass(watchRetryPause / 2)
			f.set(func() { f.down[2] = true; f.notify() })
		}()
		began := time.Now()
		m := &manyClaim{g: g.claims, call: broker.ClaimCall{Queues: queuesOf("a b")}, claimPass: newClaimPass([][]uint32{{1}, {2}})}
		got := m.awaitAny(t.Context(), time.Minute)
		if took := time.Since(began); got != 0 || took != watchRetryPause {
			t.Errorf("shard %d after %v, want none after %v", got, took, watchRetryPause)
		}
		g.Shutdown(context.Background())
	})
}

// A shard's stamp is reported even if the new payload of its task is refused.
func TestRefusedUpdatesAreStamped(t *testing.T) {
	f, g, ctx := spread()
	put(t, g, ctx, "c", 1, "1")
	ctx, c := callinfo.Begin(t.Context(), "grpc", "test")
	_, err := g.services.producer.UpdateTask(ctx, &pawlv1.UpdateTaskRequest{TaskId: f.inOrder(3)[0].view.ID.String(), Payload: []byte("{")})
	if !errors.Is(err, task.ErrInvalidArgument) || len(stamped(c)) != 1 || stamped(c)[0] != "3" {
		t.Errorf("UpdateTask: %v, stamps of shards %v, want an invalid argument and 3", err, stamped(c))
	}
}

// What a lost response contained is not given back if a later pass has returned it.
func TestLostResponseIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g, ctx := spread()
		defer g.Shutdown(context.Background())
		put(t, g, ctx, "a", 2, "1")
		f.loses = map[uint32]bool{1: true}
		go func() {
			pass(time.Second)
			f.set(func() { f.loses = nil })
			put(t, g, ctx, "b", 1, "1")
		}()
		r := &pawlv1.ClaimRequest{Queues: shares("a b"), Max: 6, ClaimKey: new("k"), Wait: durationpb.New(time.Minute)}
		if got := claimText(t, g, ctx, r); got != "aab" || len(f.left) != 0 {
			t.Errorf("claim got %q and abandoned %+v", got, f.left)
		}
	})
}

// The part of a queue that reports a task is asked first, and a claim is not answered while a request for it is in flight.
func TestReadyPartIsAskedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g, ctx := spread()
		defer g.Shutdown(context.Background())
		g.cfg.Broker = slowToLeave{f}
		g.wire()
		f.home["q"] = 3
		go func() {
			pass(time.Second)
			put(t, g, ctx, "q", 1, "1")
		}()
		began := time.Now()
		got, err := g.claims.takeMany(ctx, broker.ClaimCall{Namespace: "default", Queues: queuesOf("q"), Max: 1, MaxBytes: 1000},
			[][]uint32{{1, 2, 3}}, time.Minute)
		if took := time.Since(began); err != nil || len(got) != 1 || len(f.claims) != 3+1 || took != 2*time.Second {
			t.Errorf("%d tasks after %v with %d claims sent (%v)", len(got), took, len(f.claims), err)
		}
	})
}

// slowToLeave is a broker whose shards take a second to end a watch.
type slowToLeave struct{ *fake }

func (s slowToLeave) Await(ctx context.Context, shard uint32, c broker.ClaimCall) error {
	err := s.fake.Await(ctx, shard, c)
	if ctx.Err() != nil {
		pass(time.Second)
	}
	return err
}

// What a lost response may have contained is given back even if the claim returns nothing.
func TestLostResponseOfEmptyClaim(t *testing.T) {
	f, g, ctx := spread()
	put(t, g, ctx, "a", 2, "1")
	f.loses = map[uint32]bool{1: true}
	if got := claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares("a b"), Max: 6, ClaimKey: new("k")}); got != "" || len(f.left) != 1 {
		t.Errorf("claim got %q and abandoned %+v", got, f.left)
	}
}

// For a claim without a key, the router gives back what a lost response contained.
func TestLostResponseWithoutClaimKey(t *testing.T) {
	f, g, ctx := spread()
	put(t, g, ctx, "a", 2, "1")
	put(t, g, ctx, "b", 1, "1")
	f.loses = map[uint32]bool{1: true}
	if got := claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares("a b"), Max: 6}); got != "b" || len(f.left) != 0 {
		t.Errorf("claim got %q and abandoned %+v", got, f.left)
	}
}

// tardy is a broker in which a shard's ClaimNow takes a while. It ends earlier with its caller; the outcome is then unknown.
type tardy struct {
	*fake
	shard uint32
	takes time.Duration
}

func (b tardy) ClaimNow(ctx context.Context, shard uint32, c broker.ClaimCall) ([]broker.Claimed, broker.Stamp, error) {
	if shard == b.shard {
		select {
		case <-time.After(b.takes):
		case <-ctx.Done():
			return nil, broker.Stamp{}, broker.Unknown("shard %d: %v", shard, ctx.Err())
		}
	}
	return b.fake.ClaimNow(ctx, shard, c)
}

// While one shard hangs, workers get the tasks of the others: by a stream or by calls, with a claim key or without, by order or by weight.
func TestClaimsBesideAHangingShard(t *testing.T) {
	for shard := range uint32(3) {
		others := strings.ReplaceAll("abc", string(rune('a'+shard)), "")
		inSpread := func(fn func(f *fake)) {
			synctest.Test(t, func(*testing.T) {
				f := newFake(1, 2, 3)
				f.home = map[string]uint32{"a": 1, "b": 2, "c": 3}
				fn(f)
			})
		}
		inSpread(func(f *fake) {
			s := startWorker(t, f, &pawlv1.WorkRequest{Hello: hello("a", "b", "c")})
			synctest.Wait() // or the worker would look at the broker meanwhile
			s.g.claims.broker = tardy{f, 1 + shard, time.Hour}
			for _, q := range others {
				s.enqueue(string(q), 3)
			}
			began := time.Now()
			for range 6 {
				s.send(&pawlv1.WorkRequest{Grant: 1})
				s.tasks(1)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("shard %d hangs: six tasks of others took %v", 1+shard, took)
			}
			if err := s.end(); err != nil {
				t.Error(err)
			}
		})
		for _, queues := range []string{"a b c", "a=1 b=1 c=1"} {
			for _, key := range []string{"", "k"} {
				inSpread(func(f *fake) {
					g := newGateway(f)
					ctx, _ := callinfo.Begin(context.Background(), "grpc", "test")
					for _, q := range others {
						put(t, g, ctx, string(q), 1, "1")
					}
					g.claims.broker = tardy{f, 1 + shard, time.Hour}
					began := time.Now()
					got := claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares(queues), Max: 9, ClaimKey: new(key)})
					if took := time.Since(began); got != others || took > time.Second {
						t.Errorf("shard %d hangs: a claim of %s with key %q got %q after %v, want %q", 1+shard, queues,
							key, got, took, others)
					}
					g.Shutdown(context.Background())
					if abandoned := len(f.left); abandoned != len(key) {
						t.Errorf("shard %d hangs: a claim of %s with key %q abandoned %d calls, want %d", 1+shard, queues, key,
							abandoned, len(key))
					}
				})
			}
		}
	}
}

// A late answer is used by a claim that has nothing else, and otherwise given back, so that no task stays claimed for
// nobody. A shard that has answered late is asked again.
func TestLateAnswers(t *testing.T) {
	for _, c := range []struct {
		what, queues string
		takes        time.Duration
		wait         time.Duration
		others       int
		want         string
		took         time.Duration
	}{
		{"nothing else, without a wait", "a b", askTime + 1, 0, 0, "aa", askTime + 1},
		{"nothing else, by weight", "a=1 b=1", askTime + 1, 0, 0, "aa", askTime + 1},
		{"nothing else, with a wait", "a b", 10 * askTime, time.Minute, 0, "aa", 10 * askTime},
		{"too late without a wait", "a b", 10 * askTime, 0, 0, "", 2 * askTime},
		{"something else", "a b", askTime + 1, time.Minute, 1, "b", askTime},
		{"in time", "a b", askTime - 1, 0, 1, "aab", askTime - 1},
	} {
		for _, key := range []string{"", "k"} {
			synctest.Test(t, func(t *testing.T) {
				f, g, ctx := spread()
				put(t, g, ctx, "a", 2, "1")
				put(t, g, ctx, "b", c.others, "1")
				g.claims.broker = lateAnswer{tardy{f, 1, c.takes}}
				began := time.Now()
				r := &pawlv1.ClaimRequest{Queues: shares(c.queues), Max: 9, ClaimKey: new(key)}
				if c.wait > 0 {
					r.Wait = durationpb.New(c.wait)
				}
				got := claimText(t, g, ctx, r)
				if took := time.Since(began); got != c.want || took != c.took {
					t.Errorf("%s, key %q: got %q after %v, want %q after %v", c.what, key, got, took, c.want, c.took)
				}
				g.claims.close(context.Background())
				claimed := 0
				for _, x := range f.inOrder(1) {
					if x.view.Exec.State == task.Claimed {
						claimed++
					}
				}
				if want := strings.Count(c.want, "a"); claimed != want {
					t.Errorf("%s, key %q: %d tasks of the slow shard are claimed, want %d", c.what, key, claimed, want)
				}
				g.claims = newClaims()
				g.wire()
				g.Shutdown(context.Background())
			})
		}
	}
}

// lateAnswer is a tardy broker whose shard does not notice that its caller has left.
type lateAnswer struct{ tardy }

func (b lateAnswer) ClaimNow(ctx context.Context, shard uint32, c broker.ClaimCall) ([]broker.Claimed, broker.Stamp, error) {
	return b.tardy.ClaimNow(context.WithoutCancel(ctx), shard, c)
}

// A shard that was left out takes part again once it answers.
func TestShardIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g, ctx := spread()
		put(t, g, ctx, "a", 1, "1")
		g.claims.broker = tardy{f, 1, time.Hour}
		r := &pawlv1.ClaimRequest{Queues: shares("a b"), Max: 9}
		for i, want := range []time.Duration{2 * askTime, 0} { // the second claim leaves the shard out
			began := time.Now()
			if got := claimText(t, g, ctx, r); got != "" || time.Since(began) != want {
				t.Errorf("claim %d beside a shard that hangs got %q after %v, want nothing after %v", i+1, got, time.Since(began), want)
			}
		}
		g.claims.broker = f
		r.Wait = durationpb.New(time.Minute)
		began := time.Now()
		if got := claimText(t, g, ctx, r); got != "a" || time.Since(began) > watchRetryPause {
			t.Errorf("a claim that waits got %q after %v, want a within %v", got, time.Since(began), watchRetryPause)
		}
		g.Shutdown(context.Background())
	})
}

// A claim that leaves out a shard which was slow to fail does not say that it has not answered.
func TestLeftOutShardFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g, ctx := spread()
		g.claims.broker = failsSlowly{f}
		for i, want := range []string{"shard 2 has no leader",
			"shard 2 is left out for a moment: it failed or has not answered within 500ms"} {
			if got := claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares("a b"), Max: 9}); !strings.Contains(got, want) {
				t.Errorf("claim %d: %s, want %q", i+1, got, want)
			}
		}
		g.Shutdown(context.Background())
	})
}

// failsSlowly is a broker whose shards have no leader.
type failsSlowly struct{ *fake }

func (failsSlowly) ClaimNow(_ context.Context, shard uint32, _ broker.ClaimCall) ([]broker.Claimed, broker.Stamp, error) {
	time.Sleep(failTime + 1)
	return nil, broker.Stamp{}, task.Unavailable(time.Second, "shard %d has no leader", shard)
}

// A late answer is not added to other tasks, or taken for another queue's: that could be more than the claim asks for.
func TestLateAnswerStandsAlone(t *testing.T) {
	for what, c := range map[string]struct {
		got  int // from other shards
		from int // the queue that is asked for
		want int
	}{"nothing else": {0, 0, 2}, "one from elsewhere": {1, 0, 0}, "another queue": {0, 1, 0}} {
		_, g, ctx := spread()
		m := &manyClaim{g: g.claims, call: broker.ClaimCall{Queues: queuesOf("a b"), Max: 2}, lost: lostParts{},
			claimPass: newClaimPass([][]uint32{{1}, {1}})}
		p := &partCall{place: place{0, 1}, done: make(chan struct{}), got: make([]broker.Claimed, 2)}
		for i := range p.got {
			p.got[i].Envelope = &schema.Envelope{}
		}
		close(p.done)
		m.late, m.got = map[uint32]*partCall{1: p}, make([]broker.Claimed, c.got)
		if n := m.ask(ctx, c.from, c.from+1, 1, 2-c.got); n != c.want || (len(m.late) == 0) != (c.want > 0) || len(m.got) != c.got+c.want {
			t.Errorf("%s: %d tasks are taken of a late answer, want %d", what, n, c.want)
		}
	}
}

// After a late answer, the shard may have more for the same claim: another part of it, which a claim key finds apart from the first.
func TestShardIsAskedForMoreAfterItsLateAnswer(t *testing.T) {
	for _, key := range []string{"", "k"} {
		synctest.Test(t, func(t *testing.T) {
			f, g, ctx := spread()
			put(t, g, ctx, "b", 4, "1")
			slow := &onceTardy{fake: f, shard: 2}
			g.claims.broker = slow
			r := &pawlv1.ClaimRequest{Queues: shares("a=1 b=1"), Max: 4, ClaimKey: new(key)}
			got, err := g.services.worker.Claim(ctx, r)
			ids := map[string]bool{}
			for _, c := range got.GetTasks() {
				ids[c.GetTaskId()] = true
			}
			if err != nil || len(ids) != 4 || len(got.GetTasks()) != 4 {
				t.Errorf("key %q: a claim of four got %d tasks, %d different (%v)", key, len(got.GetTasks()), len(ids), err)
			}
			g.Shutdown(context.Background())
		})
	}
}

// onceTardy is a broker in which the first ClaimNow of a shard is answered late.
type onceTardy struct {
	*fake
	shard uint32
	asked bool
}

func (b *onceTardy) ClaimNow(ctx context.Context, shard uint32, c broker.ClaimCall) ([]broker.Claimed, broker.Stamp, error) {
	if shard == b.shard && !b.asked {
		b.asked = true
		time.Sleep(askTime + 1)
	}
	return b.fake.ClaimNow(ctx, shard, c)
}

// A caller that leaves says nothing about a shard: others are served by it.
func TestCallerThatLeavesMakesNoShardSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g, ctx := spread()
		put(t, g, ctx, "a", 1, "1")
		g.claims.broker = tardy{f, 1, 2 * failTime}
		r := &pawlv1.ClaimRequest{Queues: shares("a b"), Max: 2}
		brief, cancel := context.WithTimeout(ctx, 2*failTime-1)
		defer cancel()
		if got := claimText(t, g, brief, r); !strings.Contains(got, "deadline") {
			t.Errorf("a claim that was left got %q", got)
		}
		if got := claimText(t, g, ctx, r); got != "a" {
			t.Errorf("the next claim got %q, want a", got)
		}
		g.Shutdown(context.Background())
	})
}

// A count that lacks a shard is a lower bound.
func TestCountsLackAShard(t *testing.T) {
	for _, missing := range [][]verb.Missing{nil, {{Shard: 2}}} {
		f := newFake(1, 2)
		o := newGateway(f).services.operation
		verbtest.On(f.table(), broker.CountMatches, func(context.Context, broker.MatchCount) (out broker.MatchesCounted, err error) {
			out.Missing = missing
			return out, nil
		})
		ctx, _ := callinfo.Begin(t.Context(), task.InterfaceGRPC, "test")
		p, err := o.preview(ctx, broker.Filter{})
		states, bad := o.outcomes(ctx, task.ID{}, nil)
		if want := len(missing) > 0; err != nil || bad != nil || p.GetPreview().GetIsLowerBound() != want ||
			states.GetIsLowerBound() != want {
			t.Errorf("without %v: %v, %v; %v, %v", missing, p, err, states, bad)
		}
	}
}
