package receive

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

func manyHeaders(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprint(i)] = "x"
	}
	return m
}

// The estimate for a message is at least what decoding allocates, and not much more.
func TestEstimateMatchesAllocation(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for name, m := range map[string]proto.Message{
		"nothing in them": manyOf(10_000, func(int) *pawlv1.TaskSpec { return &pawlv1.TaskSpec{} }),
		"payloads":        manyOf(10, func(int) *pawlv1.TaskSpec { return &pawlv1.TaskSpec{Type: "a", Payload: make([]byte, 100_000)} }),
		"headers":         manyOf(1000, func(int) *pawlv1.TaskSpec { return &pawlv1.TaskSpec{Type: "a", Headers: manyHeaders(64)} }),
		"few headers":     manyOf(1000, func(int) *pawlv1.TaskSpec { return &pawlv1.TaskSpec{Type: "a", Headers: manyHeaders(9)} }),
		"tags": manyOf(1000, func(int) *pawlv1.TaskSpec {
			return &pawlv1.TaskSpec{Type: "a", Tags: strings.Split("a b c d e f g h i", " ")}
		}),
		"followers": manyOf(1000, func(int) *pawlv1.TaskSpec {
			return &pawlv1.TaskSpec{Type: "a", Then: manyOf(8, func(int) *pawlv1.TaskSpec { return &pawlv1.TaskSpec{Type: "b"} }).Tasks}
		}),
		"what is not known": unknownFields(10_000),
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		into := m.ProtoReflect().New().Interface()
		weighed := weigh(t, into, raw)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := decoding.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		// lists leave their old arrays behind
		if made := int(after.TotalAlloc - before.TotalAlloc); weighed < made*7/10 || weighed > 2*made {
			t.Errorf("%s: message of %d bytes weighs %d, decoding allocated %d", name, len(raw), weighed, made)
		}
	}
}

func unknownFields(n int) proto.Message {
	m := &pawlv1.EnqueueBatchRequest{}
	m.ProtoReflect().SetUnknown(bytes.Repeat([]byte{0xf8, 0x7f, 1}, n))
	return m
}

func weigh(t testing.TB, m proto.Message, raw []byte) int {
	s := shapeOf(m.ProtoReflect())
	n, err := s.weigh(raw, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s.size + n
}

func BenchmarkWeigh(b *testing.B) {
	raw, _ := proto.Marshal(manyOf(1000, func(int) *pawlv1.TaskSpec {
		return &pawlv1.TaskSpec{Type: "a", Payload: make([]byte, 1000), Headers: manyHeaders(3)}
	}))
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		weigh(b, &pawlv1.EnqueueBatchRequest{}, raw)
	}
}

// A malformed message is refused with the reason and weighs nothing. Packed numbers weigh as much as the decoded list.
func TestExactEstimates(t *testing.T) {
	s := shapeOf((&pawlv1.EnqueueBatchRequest{}).ProtoReflect())
	for words, raw := range map[string][]byte{"invalid field number": {0, 1}, "unexpected EOF": {10, 9, 1},
		"invalid field number ": {10, 2, 0, 1}} {
		if n, err := s.weigh(raw, 0); n != 0 || err == nil || !strings.Contains(err.Error(), strings.TrimSpace(words)) {
			t.Errorf("weigh(%v) = %d, %v, want %q", raw, n, err, words)
		}
	}
	if n, err := s.weigh([]byte{10, 0}, maxNesting+1); n != 0 || err == nil {
		t.Errorf("weigh of a message nested too deep = %d, %v", n, err)
	}
	if _, err := s.weigh([]byte{0xf8, 0x7f, 1}, maxNesting); err != nil {
		t.Errorf("weigh of a message at the maximum depth: %v", err)
	}
	states, retry := (&pawlv1.Filter{States: []pawlv1.State{1, 2, 3}}), shapeOf((&pawlv1.RetryPolicy{}).ProtoReflect())
	for _, c := range []struct {
		what string
		m    proto.Message
		want int
	}{
		{"numbers side by side", states, 16 * 3},
		{"a text", &pawlv1.TaskSpec{Type: "abc"}, textCost + 3},
		{"a number", &pawlv1.TaskSpec{MaxAttempts: 5}, 2*1 + 16},
		{"an entry of a map", &pawlv1.TaskSpec{Headers: map[string]string{"a": "bc"}}, textCost + entryCost + 2*textCost + 3},
		{"a message", &pawlv1.TaskSpec{Retry: &pawlv1.RetryPolicy{Factor: 2}}, textCost + retry.size + 2*8 + 16},
	} {
		raw, err := proto.Marshal(c.m)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := shapeOf(c.m.ProtoReflect()).weigh(raw, 0); n != c.want || err != nil {
			t.Errorf("%s: weigh = %d, %v, want %d", c.what, n, err, c.want)
		}
	}
}

// Messages in a map are weighed too, and messages may be nested up to the limit.
func TestNestedEstimates(t *testing.T) {
	rules := shapeOf((&pawlv1.KeyRules{}).ProtoReflect())
	settings := &pawlv1.QueueSettings{Keys: map[string]*pawlv1.KeyRules{"abc": {MaxRunning: 3}}}
	raw, err := proto.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	n, err := shapeOf(settings.ProtoReflect()).weigh(raw, 0)
	if want := textCost + entryCost + textCost + len("abc") + textCost + rules.size + 2*1 + 16; err != nil || n != want {
		t.Errorf("map entry with a message: weigh = %d, %v, want %d", n, err, want)
	}
	for depth, good := range map[int]bool{maxNesting: true, maxNesting + 1: false} {
		deep := &pawlv1.TaskSpec{}
		for range depth {
			deep = &pawlv1.TaskSpec{Then: []*pawlv1.TaskSpec{deep}}
		}
		raw, err := proto.Marshal(deep)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := shapeOf(deep.ProtoReflect()).weigh(raw, 0); (err == nil) != good {
			t.Errorf("weigh at depth %d: %v", depth, err)
		}
	}
}

// manyOf returns a batch of n tasks.
func manyOf(n int, spec func(i int) *pawlv1.TaskSpec) *pawlv1.EnqueueBatchRequest {
	r := &pawlv1.EnqueueBatchRequest{}
	for i := range n {
		r.Tasks = append(r.Tasks, spec(i))
	}
	return r
}
