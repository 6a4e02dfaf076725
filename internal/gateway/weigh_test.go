package gateway

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

// manyOf is a batch of n tasks.
func manyOf(n int, spec func(i int) *pawlv1.TaskSpec) *pawlv1.EnqueueBatchRequest {
	r := &pawlv1.EnqueueBatchRequest{}
	for i := range n {
		r.Tasks = append(r.Tasks, spec(i))
	}
	return r
}

func manyHeaders(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprint(i)] = "x"
	}
	return m
}

// What a message is said to take is no less than what is taken when it is decoded, and not much more.
func TestWeighedAsMuchAsIsMade(t *testing.T) {
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
		if made := int(after.TotalAlloc - before.TotalAlloc); weighed < made*7/10 || weighed > 2*made { // lists leave their old places behind
			t.Errorf("%s: %d bytes are weighed as %d, and %d are made of them", name, len(raw), weighed, made)
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
