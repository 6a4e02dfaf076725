package verb

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// node stands for a part of a node.
type node int

func (n node) Do(ctx context.Context, c Call) error { return c.Run(ctx, n) }

type onShard struct {
	Shard uint32
	Rest  time.Duration
}

func (o *onShard) TargetShard() uint32   { return o.Shard }
func (o *onShard) SetShard(shard uint32) { o.Shard = shard }
func (o *onShard) Waits() *time.Duration { return &o.Rest }

// panicOf returns what a function panics with; nil: it does not.
func panicOf(do func()) (why any) {
	defer func() { why = recover() }()
	do()
	return nil
}

func TestCall(t *testing.T) {
	var table Table[node]
	errHalf := errors.New("half")
	add := New(&table, Rule{Name: "add", Idempotent: true}, func(on node, _ context.Context, q onShard) (uint32, error) {
		if q.Shard == 9 {
			return 4, errHalf
		}
		return q.Shard + uint32(on), nil
	})
	if got, err := add.Call(t.Context(), node(3), onShard{Shard: 2}); got != 5 || err != nil {
		t.Errorf("Call on shard 2 = %d, %v, want 5 and no error", got, err)
	}
	if got, err := add.Call(t.Context(), node(3), onShard{Shard: 9}); got != 4 || !errors.Is(err, errHalf) {
		t.Errorf("Call that fails halfway = %d, %v, want 4 and the error", got, err)
	}
	c := add.Make(onShard{Shard: 7, Rest: time.Second})
	if c.Shard() != 7 || *c.Wait() != time.Second || !c.Rule().Idempotent || c.Rule().Where != Shard {
		t.Errorf("Make: shard %d, wait %v, rule %+v", c.Shard(), c.Wait(), c.Rule())
	}
}

// The parts of a node run the verbs of their tables, here or for other nodes, and nothing else.
func TestParts(t *testing.T) {
	var one, two, others Table[node]
	run := func(on node, _ context.Context, q onShard) (uint32, error) { return q.Shard + uint32(on), nil }
	add, far := New(&one, Rule{Name: "add"}, run), New(&two, Rule{Name: "far"}, run)
	away, local := New(&others, Rule{Name: "away"}, run), New(&one, Rule{Name: "local", Local: true}, run)
	var parts Parts
	one.Serve(3, &parts)
	two.ServeBy(node(100), &parts)
	for _, c := range []struct {
		verb *Verb[onShard, uint32]
		want uint32
		err  string
	}{{add, 5, ""}, {far, 102, ""}, {local, 5, ""}, {away, 0, `nothing here runs the verb "away"`}} {
		got, err := c.verb.CallLocal(t.Context(), &parts, onShard{Shard: 2})
		if got != c.want || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%s runs here with %d, %v; want %d, %s", c.verb.Name(), got, err, c.want, c.err)
		}
	}
	names := parts.Names()
	if slices.Sort(names); !slices.Equal(names, []string{"add", "far"}) || parts.Named("add").Shard() != 0 || parts.Named("away") != nil ||
		parts.Named("local") != nil {
		t.Errorf("a node serves %v", names)
	}
	one.Serve(4, &parts) // in place of the first
	if got, err := add.Call(t.Context(), &parts, onShard{Shard: 2}); got != 6 || err != nil {
		t.Errorf("another part answers %d, %v, want 6", got, err)
	}
	var again Table[node]
	New(&again, Rule{Name: "far"}, run)
	if got := panicOf(func() { again.Serve(1, &parts) }); got != `two verbs are named "far"` {
		t.Errorf("a second verb with the same name panics with %v", got)
	}
}

// A verb that runs here allocates nothing.
func TestCallLocalAllocatesNothing(t *testing.T) {
	var table Table[*int]
	on, parts := 3, Parts{}
	add := New(&table, Rule{Name: "add"}, func(on *int, _ context.Context, q onShard) (uint32, error) { return q.Shard + uint32(*on), nil })
	table.Serve(&on, &parts)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = add.CallLocal(ctx, &parts, onShard{Shard: 2}) }); n != 0 {
		t.Errorf("CallLocal allocates %v objects", n)
	}
}

// A verb of all shards sends each the same request, and its parts remain available.
func TestMerged(t *testing.T) {
	var table Table[node]
	double := New(&table, Rule{Name: "double"}, func(_ node, _ context.Context, q onShard) (uint32, error) { return 2 * q.Shard, nil }).
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
	parts := Split(c, 3, func(i int, request any) { request.(AnyShard).SetShard(uint32(i) + 1) })
	for _, part := range parts {
		if err := part.Run(t.Context(), node(0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Merge(parts, nil); err != nil || c.Resp != 112 || len(c.Parts()) != 3 || *c.Parts()[2].Answer().(*uint32) != 6 {
		t.Errorf("merged to %d from %d parts, error %v; want 112 from 3 parts", c.Resp, len(c.Parts()), err)
	}
}

// Descriptions that contradict the request, or that nothing merges, are detected when the program starts.
func TestWrongDescriptions(t *testing.T) {
	plain := func(node, context.Context, Nothing) (int, error) { return 0, nil }
	sharded := func(node, context.Context, onShard) (int, error) { return 0, nil }
	merge := func(*Nothing, []int) (int, error) { return 0, nil }
	for _, c := range []struct {
		what string
		make func(table *Table[node])
		want any
	}{
		{"a shard", func(table *Table[node]) { New(table, Rule{Name: "a"}, sharded) }, nil},
		{"no shard", func(table *Table[node]) { New(table, Rule{Name: "a"}, plain) }, "a: its request names no shard"},
		{"a replica of no shard", func(table *Table[node]) { New(table, Rule{Name: "a", Where: Replica}, plain) },
			"a: its request names no shard"},
		{"no first shard", func(table *Table[node]) { New(table, Rule{Name: "a", Where: FirstShard}, plain) },
			"a: its request is not one to any shard"},
		{"the system shard", func(table *Table[node]) { New(table, Rule{Name: "a", Where: System}, plain) }, nil},
		{"the system shard and another", func(table *Table[node]) { New(table, Rule{Name: "a", Where: System}, sharded) },
			"a: its request names a shard, and it runs at the system shard"},
		{"no node", func(table *Table[node]) { New(table, Rule{Name: "a", Where: Node}, plain) }, "a: its request names no node"},
		{"all shards", func(table *Table[node]) { New(table, Rule{Name: "a", Where: AllShards}, sharded) },
			"a: nothing merges its answers"},
		{"each node", func(table *Table[node]) { New(table, Rule{Name: "a", Where: EachNode}, plain) }, "a: nothing merges its answers"},
		{"the system shard, merged", func(table *Table[node]) { New(table, Rule{Name: "a", Where: System}, plain).Merged(merge) },
			"a: its request is not one to any shard"},
		{"the same name twice", func(table *Table[node]) {
			New(table, Rule{Name: "a"}, sharded)
			New(table, Rule{Name: "a"}, sharded)
		}, `two verbs are named "a"`},
	} {
		if got := panicOf(func() { c.make(new(Table[node])) }); got != c.want {
			t.Errorf("%s: New panics with %v, want %v", c.what, got, c.want)
		}
	}
}

// A verb of each node adds up the values of those that have answered, and says who has not.
func TestSum(t *testing.T) {
	var table Table[node]
	double := NewSum(&table, Rule{Name: "double"}, func(on node, _ context.Context, _ onShard) (int, error) { return 2 * int(on), nil },
		func(q *onShard, values []int) (sum int) {
			for _, v := range values {
				sum += v
			}
			return sum + int(q.Shard)
		})
	names := NewSum(&table, Rule{Name: "names"},
		func(on node, _ context.Context, _ Nothing) ([]node, error) { return []node{on}, nil }, Concat)
	missing := []Missing{{Node: "n3", Why: "did not answer in time"}}
	sum := double.Make(onShard{Shard: 100})
	list := names.Make(Nothing{})
	for _, c := range []Call{sum, list} {
		if rule := c.Rule(); rule.Where != EachNode || !rule.Idempotent {
			t.Errorf("%s is %+v, want one of each node that may be repeated", rule.Name, rule)
		}
		parts := Split(c, 2, func(int, any) {})
		for i, part := range parts {
			if err := part.Run(t.Context(), node(i+1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Merge(parts, missing); err != nil {
			t.Fatal(err)
		}
	}
	if sum.Resp.Value != 106 || !slices.Equal(list.Resp.Value, []node{1, 2}) || !slices.Equal(sum.Resp.Missing, missing) {
		t.Errorf("sums: %+v and %+v, want 106 and [1 2] without n3", sum.Resp, list.Resp)
	}
}

// The response of an earlier attempt is cleared before a later one, so that it is never returned with the later attempt's error.
func TestEarlierResponsesAreReset(t *testing.T) {
	var table Table[node]
	v := New(&table, SystemRule("v"), func(node, context.Context, int) (string, error) { return "", nil })
	c, other := v.Make(1), v.Make(1)
	c.Resp, other.Resp = "early", "late"
	if _, err := c.EncodeRequest(); err != nil || c.Resp != "" {
		t.Errorf("EncodeRequest left the response %q of an earlier attempt (error %v)", c.Resp, err)
	}
	b, err := other.EncodeReply([]byte{0x01})
	if err != nil {
		t.Fatal(err)
	}
	if fault, err := c.DecodeReply(b); err != nil || c.Resp != "late" || !slices.Equal(fault, []byte{0x01}) {
		t.Errorf("DecodeReply: response %q, fault %v, error %v; want \"late\" and fault 1", c.Resp, fault, err)
	}
}

// An answer that is null is one, with an error that is null. What has neither is no answer to a call of a verb.
func TestRepliesHaveAnAnswerOrAnError(t *testing.T) {
	var table Table[node]
	v := New(&table, SystemRule("v"), func(node, context.Context, int) ([]string, error) { return nil, nil })
	b, err := v.Make(0).EncodeReply(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Encode(&struct{ Joined, Refused string }{"n1", ""})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		reply []byte
		bad   bool
	}{{b, false}, {other, true}, {[]byte{0xa0}, true}, {[]byte{0xf6}, true}} {
		if _, err := v.Make(0).DecodeReply(c.reply); (err != nil) != c.bad {
			t.Errorf("DecodeReply of %x: %v", c.reply, err)
		}
	}
}
