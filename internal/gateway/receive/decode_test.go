package receive

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
)

// newDecoder returns a decoder with the memory for a message of the given size, and counts how often it asks for more.
func newDecoder(into proto.Message, room int, asked *int) *decoder {
	return &decoder{into: into, shape: shapeOf(into.ProtoReflect()), most: contract.MaxMessage, room: room + contract.MemoryFor(room) +
		fieldRoom, extra: func() error {
		*asked++
		return nil
	}}
}

// A message that arrives in pieces of any size is decoded or refused like one that arrives whole.
func TestDecodeInPieces(t *testing.T) {
	batch := manyOf(50, func(i int) *pawlv1.TaskSpec {
		return &pawlv1.TaskSpec{Type: "a", Payload: bytes.Repeat([]byte{byte(i)}, i*i+i/20*40_000), Headers: manyHeaders(i % 5),
			Retry: &pawlv1.RetryPolicy{Factor: float64(i)}}
	})
	whole, err := proto.Marshal(batch)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	messages := 1000
	if testing.Short() { // a single goroutine reads them
		messages = 50
	}
	for i := range messages {
		raw := bytes.Clone(whole)
		for range i % 4 {
			raw[random.IntN(len(raw))] = byte(random.IntN(256))
		}
		if i%5 == 4 {
			raw = raw[:random.IntN(len(raw))]
		}
		want, got, asked := &pawlv1.EnqueueBatchRequest{}, &pawlv1.EnqueueBatchRequest{}, 0
		wanted := proto.UnmarshalOptions{RecursionLimit: maxNesting}.Unmarshal(raw, want)
		err := newDecoder(got, len(raw), &asked).readFrom(iotest.HalfReader(bytes.NewReader(raw)), false, "")
		if (err == nil) != (wanted == nil) || err == nil && !proto.Equal(want, got) {
			t.Fatalf("message %d of %d bytes: in pieces %v, whole %v", i, len(raw), err, wanted)
		}
	}
}

// A message takes no more memory than was reserved, and asks for more at most once.
func TestDecodeWithinReservation(t *testing.T) {
	deep := &pawlv1.TaskSpec{}
	for range maxNesting + 1 {
		deep = &pawlv1.TaskSpec{Then: []*pawlv1.TaskSpec{deep}}
	}
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	long := &pawlv1.TaskSpec{Type: "a", Payload: make([]byte, contract.MaxMessage-100)}
	for name, c := range map[string]struct {
		into  proto.Message
		raw   []byte
		asks  int
		words string // expected in the error
	}{
		"small tasks": {&pawlv1.EnqueueBatchRequest{},
			marshal(manyOf(1000, func(int) *pawlv1.TaskSpec { return &pawlv1.TaskSpec{Type: "a", Payload: []byte("1")} })), 0, ""},
		"large tasks": {&pawlv1.EnqueueBatchRequest{},
			marshal(manyOf(15, func(int) *pawlv1.TaskSpec { return &pawlv1.TaskSpec{Type: "a", Payload: make([]byte, 1<<20)} })), 0, ""},
		"all headers": {&pawlv1.EnqueueBatchRequest{},
			marshal(manyOf(1000, func(int) *pawlv1.TaskSpec { return &pawlv1.TaskSpec{Type: "a", Headers: manyHeaders(64)} })), 1, ""},
		"one long field": {&pawlv1.EnqueueRequest{}, marshal(&pawlv1.EnqueueRequest{Task: long}), 1, ""},
		"cut off":        {&pawlv1.EnqueueRequest{}, marshal(&pawlv1.EnqueueRequest{Task: long})[:9_000_000], 1, "EOF"},
		"cut off in tag": {&pawlv1.EnqueueRequest{}, []byte{10, 0, 10}, 0, "EOF"},
		"nested deep":    {&pawlv1.TaskSpec{}, marshal(deep), 0, "nested deeper than 100"},
		"too long": {&pawlv1.EnqueueRequest{}, marshal(manyOf(17, func(int) *pawlv1.TaskSpec {
			return &pawlv1.TaskSpec{Payload: make([]byte, 1<<20)}
		})), 0, "more than 16777216 bytes"},
		"field too long": {&pawlv1.EnqueueRequest{}, []byte{10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1}, 0,
			"more than 16777216 bytes"},
		"no field":    {&pawlv1.EnqueueRequest{}, []byte{0, 1}, 0, "invalid field number"},
		"empty tasks": {&pawlv1.EnqueueBatchRequest{}, bytes.Repeat([]byte{10, 0}, contract.MaxMessage/2), 1, "so many small parts"},
		"unknown numbers": {&pawlv1.EnqueueBatchRequest{}, bytes.Repeat([]byte{0xf8, 0x7f, 1}, contract.MaxMessage/3), 1,
			"so many small parts"},
	} {
		for _, packed := range []bool{false, true} {
			if packed && testing.Short() {
				continue
			}
			asked, raw, room := 0, c.raw, min(len(c.raw), contract.MaxMessage)
			if packed {
				raw = pack(t, raw)
			}
			d := newDecoder(c.into.ProtoReflect().New().Interface(), room, &asked)
			had := d.room
			err := d.readFrom(bytes.NewReader(raw), packed, "gzip")
			if c.words == "" && err != nil || c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)) {
				t.Errorf("%s: %v, want %q", name, err, c.words)
			}
			if asked != c.asks {
				t.Errorf("%s: extra memory was requested %d times, want %d", name, asked, c.asks)
			}
			if most := had + asked*contract.MaxExtra; err == nil && d.made > most {
				t.Errorf("%s: decoding took %d bytes, %d were reserved", name, d.made, most)
			}
		}
	}
}

func pack(t testing.TB, raw []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(raw)
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Invalid or truncated gzip is refused, and so is a message that can't get more memory.
func TestUndecodable(t *testing.T) {
	asked := 0
	packed := pack(t, bytes.Repeat([]byte{10, 0}, 1000))
	for name, raw := range map[string][]byte{"nothing": nil, "no gzip": []byte("no gzip at all"), "cut off": packed[:len(packed)-9],
		"more behind it": append(packed, 1)} {
		err := newDecoder(&pawlv1.EnqueueBatchRequest{}, 10_000, &asked).readFrom(bytes.NewReader(raw), true, "gzip")
		if err == nil || !strings.Contains(err.Error(), "can't be decompressed") {
			t.Errorf("%s: %v, want an error", name, err)
		}
	}
	d := newDecoder(&pawlv1.EnqueueBatchRequest{}, 10_000, &asked)
	d.extra = func() error { return io.ErrNoProgress }
	if err := d.readFrom(bytes.NewReader(bytes.Repeat([]byte{10, 0}, 50_000)), false, ""); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("message that can't get more memory: %v", err)
	}
}

// Field boundaries are found by field headers alone, and the size of the next field is known as early as possible.
func TestFieldBoundaries(t *testing.T) {
	for _, c := range []struct {
		raw         []byte
		whole, next int
		words       string // expected in the error
	}{
		{nil, 0, 0, ""}, {[]byte{10, 0}, 2, 0, ""}, {[]byte{10, 0, 10, 1, 5}, 5, 0, ""}, {[]byte{10, 0, 10, 3, 5}, 2, 5, ""},
		{[]byte{10, 0, 10}, 2, 2, ""}, {[]byte{8}, 0, 2, ""}, {[]byte{8, 1}, 2, 0, ""}, {[]byte{8, 0x80}, 0, 4, ""},
		{[]byte{10, 0, 0x80}, 2, 2,
			""}, {[]byte{0x0d, 1, 2}, 0, 6, ""}, {[]byte{0x0d, 1, 2, 3, 4}, 5, 0, ""},
		{[]byte{10, 98}, 0, 100, ""}, {[]byte{10, 99}, 0, 0, "more than 100 bytes"}, {[]byte{10, 0, 0, 1}, 0, 0, "invalid field number"},
		{[]byte{0x0c}, 0, 0, "mismatching end group"},
	} {
		whole, next, err := wholeFields(c.raw, 100)
		if whole != c.whole || next != c.next || (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("wholeFields(%v) = %d, next %d, %v; want %d, %d, %q", c.raw, whole, next, err, c.whole, c.next, c.words)
		}
	}
}

// A message may be as long as the maximum, compressed or not.
func TestDecodeUpToMaximum(t *testing.T) {
	raw := bytes.Repeat([]byte{10, 0}, 40_000)
	for most, good := range map[int]bool{len(raw): true, len(raw) - 1: false} {
		for _, packed := range []bool{false, true} {
			asked, from := 0, raw
			if packed {
				from = pack(t, raw)
			}
			d := newDecoder(&pawlv1.EnqueueBatchRequest{}, contract.MaxMessage, &asked)
			d.most = most
			if err := d.readFrom(bytes.NewReader(from), packed, "gzip"); (err == nil) != good {
				t.Errorf("%d bytes with a maximum of %d, compressed %t: %v", len(raw), most, packed, err)
			}
		}
	}
}

// Extra memory is granted once, and must be enough.
func TestInsufficientMemory(t *testing.T) {
	for _, c := range []struct{ unread, asks int }{{10, 0}, {11, 1}, {10 + contract.MaxExtra, 1}, {11 + contract.MaxExtra, -1}} {
		asked := 0
		d := &decoder{room: 15, made: 5, extra: func() error { asked++; return nil }}
		err := d.reserve(c.unread)
		if c.asks < 0 && (err == nil || !strings.Contains(err.Error(), "so many small parts")) || c.asks >= 0 &&
			(err != nil || asked != c.asks) {
			t.Errorf("reserve for %d bytes: %v after %d requests for more", c.unread, err, asked)
		}
	}
}

// scriptedWire is the wire of a stream that has received all its bytes.
type scriptedWire struct {
	b      []byte
	packed string // the compressor
	fails  error  // after the bytes; nil: the stream ends
	asked  []int
	ended  *status.Status
	taken  heap
}

// heap counts the buffers of a wire that have not been freed.
type heap struct{ n int }

func (h *heap) Get(n int) *[]byte { h.n++; b := make([]byte, n); return &b }

func (h *heap) Put(*[]byte) { h.n-- }

func (w *scriptedWire) ReadMessageHeader(head []byte) error {
	if len(w.b) == 0 {
		return cmp.Or(w.fails, io.EOF)
	}
	n := copy(head, w.b)
	if w.b = w.b[n:]; n < len(head) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func (w *scriptedWire) Read(n int) (mem.BufferSlice, error) {
	w.asked = append(w.asked, n)
	if len(w.b) < n {
		return nil, cmp.Or(w.fails, io.ErrUnexpectedEOF)
	}
	some := mem.Copy(w.b[:n], &w.taken)
	w.b = w.b[n:]
	return mem.BufferSlice{some}, nil
}

func (w *scriptedWire) RecvCompress() string { return w.packed }

func (w *scriptedWire) WriteStatus(s *status.Status) error { w.ended = s; return nil }

// A message is read from its wire in pieces, exactly up to its end.
func TestWiresAreReadInPieces(t *testing.T) {
	for size, pieces := range map[int][]int{0: nil, 1: {1}, pieceSize - 1: {pieceSize - 1}, pieceSize: {pieceSize},
		pieceSize + 1: {pieceSize,
			1}, 2*pieceSize + 7: {pieceSize, pieceSize, 7}} {
		whole := make([]byte, size+3)
		for i := range whole {
			whole[i] = byte(i % 251)
		}
		wire := &scriptedWire{b: bytes.Clone(whole)}
		r := &wireReader{wire: wire, left: size}
		got, err := io.ReadAll(r)
		if r.close(); err != nil || !bytes.Equal(got, whole[:size]) || len(wire.b) != 3 || !slices.Equal(wire.asked, pieces) ||
			r.failed != nil || wire.taken.n != 0 {
			t.Errorf("message of %d bytes: read %d in pieces %v, %v; %d buffers are not freed", size, len(got),
				wire.asked, err, wire.taken.n)
		}
	}
	wire := &scriptedWire{b: make([]byte, pieceSize)}
	part := &wireReader{wire: wire, left: pieceSize}
	if n, err := part.Read(make([]byte, 9)); n != 9 || err != nil || wire.taken.n != 1 {
		t.Errorf("partial read: %d bytes, %v, %d buffers in use", n, err, wire.taken.n)
	}
	if part.close(); wire.taken.n != 0 {
		t.Errorf("after close of a partly read message %d buffers are not freed", wire.taken.n)
	}
	broken := errors.New("reset by peer")
	r := &wireReader{wire: &scriptedWire{fails: broken}, left: 1}
	if n, err := r.Read(make([]byte, 9)); n != 0 || err != broken || r.failed != broken {
		t.Errorf("broken wire: read %d bytes, %v, failed = %v", n, err, r.failed)
	}
}
