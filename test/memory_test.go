package test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// mostOfRequests is the maximum memory of large requests, including everything written for them, in MiB, as
// docs/limits.md says. It includes what a busy machine flushes and collects late.
const mostOfRequests = 640

// TestMemoryOfLargeRequests sends many concurrent requests of maximum size, each in a different way, to a server of its
// own: the server serves all of them, and uses no more memory than documented.
func TestMemoryOfLargeRequests(t *testing.T) {
	for _, c := range []struct {
		name  string
		n     int
		sends func(t *testing.T, addr string) func() error
	}{
		{"gRPC, packed", 40, func(t *testing.T, addr string) func() error { return largeRPC(t, addr, grpc.UseCompressor(gzip.Name)) }},
		{"gRPC", 40, func(t *testing.T, addr string) func() error { return largeRPC(t, addr) }},
		{"REST", 40, func(t *testing.T, addr string) func() error { return largeREST(t, addr, false) }},
		{"REST, chunked", 40, func(t *testing.T, addr string) func() error { return largeREST(t, addr, true) }},
		{"gRPC, of empty tasks", 8, manyEmpty},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			s.start()
			send, before := c.sends(t, s.addr), s.memory("VmRSS")
			var calls sync.WaitGroup
			for range c.n {
				calls.Go(func() {
					err := send()
					for errors.Is(err, errNoRoom) { // which depends on how busy the machine is
						err = send()
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			calls.Wait()
			took := s.memory("VmHWM") - before
			t.Logf("%d concurrent requests: %d MiB before, %d MiB more at the peak", c.n, before, took)
			if took > mostOfRequests {
				t.Errorf("the server used %d MiB for the requests, more than the documented %d", took, mostOfRequests)
			}
		})
	}
}

// errNoRoom is the error of a request that waited in vain or was too slow, and may be sent again.
var errNoRoom = errors.New("no room in time")

const (
	largeBatch = 15
	largeTask  = 1<<20 - 1<<10
)

func largeRPC(t *testing.T, addr string, opts ...grpc.CallOption) func() error {
	text := []byte(`"` + strings.Repeat("x", largeTask-2) + `"`)
	batch := &pawlv1.EnqueueBatchRequest{}
	for range largeBatch {
		batch.Tasks = append(batch.Tasks, &pawlv1.TaskSpec{Type: "large", Payload: text})
	}
	message, err := proto.Marshal(batch)
	if err != nil {
		t.Fatal(err)
	}
	return func() error {
		got, err := enqueueRPC(t, addr, message, opts...)
		if err != nil {
			return err
		}
		for _, r := range got.GetResults() {
			if r.GetError() != nil {
				return errors.New(r.GetError().GetMessage())
			}
		}
		return nil
	}
}

// encoded is a codec of requests that are encoded already, once for all calls.
type encoded struct{}

// Marshal implements encoding.Codec.
func (encoded) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

// Unmarshal implements encoding.Codec.
func (encoded) Unmarshal(b []byte, v any) error { return proto.Unmarshal(b, v.(proto.Message)) }

// Name implements encoding.Codec.
func (encoded) Name() string { return "proto" }

// enqueueRPC sends an encoded EnqueueBatchRequest on a connection of its own.
func enqueueRPC(t *testing.T, addr string, message []byte, opts ...grpc.CallOption) (*pawlv1.EnqueueBatchResponse, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	got := &pawlv1.EnqueueBatchResponse{}
	err = conn.Invoke(t.Context(), pawlv1.ProducerService_EnqueueBatch_FullMethodName, message, got,
		append(opts, grpc.ForceCodec(encoded{}))...)
	if status.Code(err) == codes.Unavailable || strings.Contains(fmt.Sprint(err), "did not arrive in full within") {
		err = errNoRoom
	}
	return got, err
}

// manyEmpty sends tasks of two bytes each, for which a server must not allocate objects.
func manyEmpty(t *testing.T, addr string) func() error {
	one, err := proto.Marshal(&pawlv1.EnqueueBatchRequest{Tasks: []*pawlv1.TaskSpec{{}}})
	if err != nil {
		t.Fatal(err)
	}
	batch := bytes.Repeat(one, 7<<20)
	return func() error {
		_, err := enqueueRPC(t, addr, batch)
		if errors.Is(err, errNoRoom) {
			return err
		}
		if err == nil || !strings.Contains(err.Error(), "small parts") {
			return fmt.Errorf("7 million tasks in a message: %v", err)
		}
		return nil
	}
}

func largeREST(t *testing.T, addr string, chunked bool) func() error {
	one := `{"type":"large","payload":"` + strings.Repeat("x", largeTask-2) + `"}`
	body := []byte(`{"tasks":[` + strings.Repeat(one+",", largeBatch-1) + one + `]}`)
	return func() error {
		web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		var from io.Reader = bytes.NewReader(body)
		if chunked {
			from = io.MultiReader(from) // which has no length
		}
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/api/v1/tasks/batch", from)
		if err != nil {
			return err
		}
		resp, err := web.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if resp.StatusCode == http.StatusServiceUnavailable {
			return errNoRoom
		}
		if err != nil || strings.Count(string(answer), `"task_id"`) != largeBatch {
			return fmt.Errorf("%s: %.300s (%v)", resp.Status, answer, err)
		}
		return nil
	}
}
