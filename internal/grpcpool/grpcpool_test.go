package grpcpool

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// A buffer has the requested length, and at most twice the capacity.
func TestPool(t *testing.T) {
	p := new(pool)
	for _, n := range []int{0, 1, 1<<least - 1, 1 << least, 1<<least + 1, 5000, 1 << 16, 1<<16 + 1, 1<<most - 1, 1 << most, 1<<most + 1} {
		for range 3 {
			b := p.Get(n)
			if len(*b) != n || cap(*b) > max(2*n, 1<<least) {
				t.Errorf("Get(%d) = %d bytes with a capacity of %d", n, len(*b), cap(*b))
			}
			*b = (*b)[:n/2] // gRPC returns a prefix
			p.Put(b)
		}
	}
	foreign := make([]byte, 5000)
	p.Put(&foreign)
	small := make([]byte, 10)
	p.Put(&small)
	for _, n := range []int{10, 4097, 5000, 8192} {
		if b := p.Get(n); len(*b) != n {
			t.Errorf("Get(%d) after a foreign buffer = %d bytes", n, len(*b))
		}
	}
}

// Messages of all sizes arrive unchanged, however many are encoded at a time.
func TestCodec(t *testing.T) {
	var senders sync.WaitGroup
	for sender := range 8 {
		senders.Go(func() {
			for i := range 200 {
				size := []int{0, 10, 900, 1100, 40_000, 300_000}[(i+sender)%6]
				sent := &pawlv1.TaskSpec{Type: "t", Payload: bytes.Repeat([]byte{byte(sender*31 + i)}, size)}
				data, err := codec{}.Marshal(sent)
				if err != nil {
					t.Error(err)
					return
				}
				got := &pawlv1.TaskSpec{}
				if err := (codec{}).Unmarshal(split(data), got); err != nil || !protobuf.Equal(got, sent) {
					t.Errorf("a message of %d bytes: %v, equal %t", size, err, protobuf.Equal(got, sent))
				}
				data.Free()
			}
		})
	}
	senders.Wait()
}

// split returns data in two pieces, as it arrives over a connection.
func split(data mem.BufferSlice) mem.BufferSlice {
	b := data.Materialize()
	return mem.BufferSlice{mem.SliceBuffer(b[:len(b)/3]), mem.SliceBuffer(b[len(b)/3:])}
}

// A watched message is written in pieces, and reports what is left after each, until nothing is; also if nobody frees the pieces.
func TestWatched(t *testing.T) {
	m := &pawlv1.TaskSpec{Type: "t", Payload: bytes.Repeat([]byte("pawl"), 2*pieceSize/4)}
	size := protobuf.Size(m)
	var left []int
	data, err := codec{}.Marshal(&Watched{Message: m, Left: func(n int) { left = append(left, n) }})
	if err != nil {
		t.Fatal(err)
	}
	got := &pawlv1.TaskSpec{}
	if err := protobuf.Unmarshal(data.Materialize(), got); err != nil || !protobuf.Equal(got, m) {
		t.Errorf("the message has changed, %v", err)
	}
	data[0].Ref()
	data.Free()
	data[0].Free()
	if want := []int{size, size - (size - size/2), 0}; !slices.Equal(left, want) {
		t.Errorf("left = %v of %d bytes, want %v", left, size, want)
	}
	dropped := make(chan int, 2)
	if _, err := (codec{}).Marshal(&Watched{Message: m, Left: func(n int) { dropped <- n }}); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	if all, none := <-dropped, <-dropped; all != size || none != 0 {
		t.Errorf("%d and then %d bytes are left of a message that was dropped, want %d and 0", all, none, size)
	}
	if _, err := (codec{}).Marshal(&Watched{Message: &pawlv1.TaskSpec{Type: "\xff"}, Left: func(n int) { dropped <- n }}); err == nil ||
		<-dropped != 0 {
		t.Errorf("a message that can't be encoded: %v", err)
	}
}

func TestCodecRefuses(t *testing.T) {
	if _, err := (codec{}).Marshal("text"); err == nil {
		t.Error("a string was encoded")
	}
	if err := (codec{}).Unmarshal(nil, "text"); err == nil {
		t.Error("a string was decoded")
	}
	bad := mem.BufferSlice{mem.SliceBuffer{0xff}}
	if err := (codec{}).Unmarshal(bad, &pawlv1.TaskSpec{}); err == nil {
		t.Error("an invalid message was decoded")
	}
	if _, err := (codec{}).Marshal(&pawlv1.TaskSpec{Type: "\xff" + string(make([]byte, 5000))}); err == nil {
		t.Error("a string that is not UTF-8 was encoded")
	}
}

// BenchmarkCodec encodes and decodes a frame, with this codec and with gRPC's own.
func BenchmarkCodec(b *testing.B) {
	for _, tasks := range []int{1, 40, 1000} {
		frame := &pawlv1.WorkResponse{}
		for range tasks {
			frame.Tasks = append(frame.Tasks, &pawlv1.ClaimedTask{TaskId: "0199f3c2-9bd3-7001-a53e-e7987e9fb3ca", Type: "bench",
				Payload: make([]byte, 1024)})
		}
		for _, c := range []struct {
			name string
			encoding.CodecV2
		}{{"ours", codec{}}, {"grpc", encoding.GetCodecV2(proto.Name)}} {
			b.Run(fmt.Sprintf("%d/%s", tasks, c.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					data, err := c.Marshal(frame)
					if err != nil {
						b.Fatal(err)
					}
					if err := c.Unmarshal(data, &pawlv1.WorkResponse{}); err != nil {
						b.Fatal(err)
					}
					data.Free()
				}
			})
		}
	}
}
