package verb

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

type onShard struct {
	Shard uint32
	Rest  time.Duration
}

func (o *onShard) TargetShard() uint32   { return o.Shard }
func (o *onShard) SetShard(shard uint32) { o.Shard = shard }
func (o *onShard) Waits() *time.Duration { return &o.Rest }

// each runs calls on a number that stands for a node.
type each int

func (e each) Do(ctx context.Context, c Call) error { return c.Run(ctx, int(e)) }

func panics(do func()) (did bool) {
	defer func() { did = recover() != nil }()
	do()
	return false
}

func TestCall(t *testing.T) {
	var table Table
	errHalf := errors.New("half")
	add := New(&table, Rule{Name: "add", Idempotent: true}, func(_ context.Context, here any, q *onShard) (uint32, error) {
		if q.Shard == 9 {
			return 4, errHalf
		}
		return q.Shard + uint32(here.(int)), nil
	})
	if got, err := add.Call(t.Context(), each(3), onShard{Shard: 2}); got != 5 || err != nil {
		t.Errorf("Call on shard 2 = %d, %v, want 5 and no error", got, err)
	}
	if got, err := add.Call(t.Context(), each(3), onShard{Shard: 9}); got != 4 || !errors.Is(err, errHalf) {
		t.Errorf("Call that fails halfway = %d, %v, want 4 and the error", got, err)
	}
	c := add.Make(onShard{Shard: 7, Rest: time.Second})
	if c.Shard() != 7 || *c.Wait() != time.Second || !c.Rule().Idempotent || c.Rule().Where != Shard {
		t.Errorf("Make: shard %d, wait %v, rule %+v", c.Shard(), c.Wait(), c.Rule())
	}
	empty, ok := table.Call("add")
	if _, other := table.Call("sub"); !ok || other || empty.Shard() != 0 || !slices.Equal(table.Names(), []string{"add"}) {
		t.Errorf("table has the verbs %v; add found: %v, sub found: %v", table.Names(), ok, other)
	}
}

// A verb of all shards sends each the same request, and its parts remain available.
func TestMerged(t *testing.T) {
	var table Table
	double := New(&table, Rule{Name: "double"}, func(_ context.Context, here any, q *onShard) (uint32, error) { return 2 * q.Shard, nil }).
		Merged(func(q *onShard, parts []uint32) (sum uint32, err error) {
			for _, p := range parts {
				sum += p
			}
			return sum + q.Shard, nil
		})
	c := double.Make(onShard{Shard: 100})
	if c.Rule().Where != AllShards {
		t.Errorf("a merged verb runs at %d, want AllShards", c.Rule().Where)
	}
	for _, part := range c.Split([]uint32{1, 2, 3}) {
		if err := part.Run(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Merge(nil); err != nil || c.Resp != 112 || len(c.Parts()) != 3 || *c.Parts()[2].Answer().(*uint32) != 6 {
		t.Errorf("merged to %d from %d parts, error %v; want 112 from 3 parts", c.Resp, len(c.Parts()), err)
	}
}

// Requests that can't be routed to a shard are detected when the program starts.
func TestWrongDescriptions(t *testing.T) {
	var table Table
	run := func(context.Context, any, *struct{}) (int, error) { return 0, nil }
	if !panics(func() { New(&table, Rule{Name: "a"}, run) }) {
		t.Error("New accepted a shard verb whose request has no target shard")
	}
	NewSystem(&table, "b", true, func(context.Context, any, int) (int, error) { return 0, nil })
	if _, ok := table.Call("shard.b"); !ok {
		t.Error("a verb of the system shard is not registered under the name that older nodes use")
	}
	if !panics(func() { NewSystem(&table, "b", true, func(context.Context, any, int) (int, error) { return 0, nil }) }) {
		t.Error("New accepted two verbs with the same name")
	}
	if !panics(func() {
		New(&table, Rule{Name: "c", Where: System}, run).Merged(func(*struct{}, []int) (int, error) { return 0, nil })
	}) {
		t.Error("Merged accepted a request that can't be sent to a shard")
	}
}

// The response of an earlier attempt is cleared before a later one, so that it is never returned with the later attempt's error.
func TestEarlierResponsesAreReset(t *testing.T) {
	c := &Payload[int, string]{Req: 1, Resp: "early"}
	if _, err := c.EncodeRequest(); err != nil || c.Resp != "" {
		t.Errorf("EncodeRequest left the response %q of an earlier attempt (error %v)", c.Resp, err)
	}
	b, err := (&Payload[int, string]{Resp: "late"}).EncodeReply([]byte{0x01})
	if err != nil {
		t.Fatal(err)
	}
	if fault, err := c.DecodeReply(b); err != nil || c.Resp != "late" || !slices.Equal(fault, []byte{0x01}) {
		t.Errorf("DecodeReply: response %q, fault %v, error %v; want \"late\" and fault 1", c.Resp, fault, err)
	}
}
