package work

import (
	"context"
	"errors"
	"io"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/pawltype"
)

// oneStream opens a stream whose methods can fail.
type oneStream struct {
	pawlv1.WorkerServiceClient
	grpc.ClientStream
	opens, sends error
	recvs        []error // nil: a frame
	ctx          context.Context
	md           metadata.MD
	mdErr        error
}

func (s *oneStream) Work(ctx context.Context, _ ...grpc.CallOption) (pawlv1.WorkerService_WorkClient, error) {
	s.ctx = ctx
	return s, s.opens
}

func (s *oneStream) Send(*pawlv1.WorkRequest) error { return s.sends }

func (s *oneStream) Recv() (*pawlv1.WorkResponse, error) {
	err := s.recvs[0]
	s.recvs = s.recvs[1:]
	return &pawlv1.WorkResponse{Draining: len(s.recvs) == 1}, err
}

func (s *oneStream) CloseSend() error             { return nil }
func (s *oneStream) Header() (metadata.MD, error) { return s.md, s.mdErr }

// A session returns the error that ended the stream. That of a failed send is not used: Recv has the reason.
func TestSessionEnds(t *testing.T) {
	denied, large := status.Error(codes.PermissionDenied, "no"), status.Error(codes.ResourceExhausted, "too large")
	for what, x := range map[string]struct {
		stream oneStream
		heard  bool
		want   error
	}{
		"not opened":            {oneStream{opens: denied}, false, pawltype.ErrPermissionDenied},
		"can't be sent to":      {oneStream{sends: large, recvs: []error{denied}}, false, pawltype.ErrRateLimited},
		"ended before":          {oneStream{sends: io.EOF, recvs: []error{denied}}, false, pawltype.ErrPermissionDenied},
		"refused":               {oneStream{recvs: []error{denied}}, false, pawltype.ErrPermissionDenied},
		"closed":                {oneStream{recvs: []error{io.EOF}}, false, io.EOF},
		"closed after words":    {oneStream{recvs: []error{nil, nil, io.EOF}}, true, pawltype.ErrUnavailable},
		"broken after one word": {oneStream{recvs: []error{nil, denied}}, true, pawltype.ErrPermissionDenied},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{T: t}
				w.start(args{of: map[string]string{"slots": "1"}})
				w.run.cfg.Worker = &x.stream
				heard, err := w.run.session(t.Context(), make(chan struct{}))
				if heard != x.heard || !errors.Is(err, x.want) {
					t.Errorf("heard %v, %v, want %v, %v", heard, err, x.heard, x.want)
				}
				if x.stream.ctx.Err() == nil {
					t.Error("the stream was left open")
				}
				if w.run.Stats().Connected {
					t.Error("Stats reports the run as connected")
				}
			})
		})
	}
}

// Nothing is checked before it is due: an idle worker costs nothing.
func TestSweepsAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t}
		w.start(args{of: map[string]string{"slots": "1"}})
		var sweeps atomic.Int64
		go w.run.keep(t.Context())
		go func() {
			for {
				select {
				case <-w.run.sendMore:
					sweeps.Add(1)
				case <-t.Context().Done():
					return
				}
			}
		}()
		after := func(d time.Duration, want int64) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := sweeps.Swap(0); got != want {
				t.Errorf("got %d sweeps, want %d", got, want)
			}
		}
		after(59*time.Minute, 0)
		w.push(args{lone: []string{"1"}, of: map[string]string{"lease": "30s"}}, time.Now())
		after(time.Second, 1) // the push itself
		after(8*time.Second, 0)
		after(2*time.Second, 1)
		after(10*time.Second, 1)
		// Frequent reports of progress cause no further sweeps.
		for range 100 {
			w.run.mu.Lock()
			w.run.sweepAt(time.Now())
			w.run.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		after(0, 3)
	})
}

// A worker's stream belongs where most of its tasks came from, if any did.
func TestPlacement(t *testing.T) {
	const first, second, none = "00dc6acf-ac00-7001-8000-000000000001", "00dc6acf-ac00-7002-8000-000000000001", "x"
	var p placement
	p.count(first)
	if p.pushed != nil {
		t.Error("tasks were counted before the first take")
	}
	for _, x := range []struct {
		pushed []string
		counts map[uint32]int
		shard  uint32
		known  bool
	}{
		{nil, nil, 0, false},
		{[]string{none}, map[uint32]int{}, 0, false},
		{[]string{second}, map[uint32]int{2: 1}, 2, true},
		{nil, map[uint32]int{}, 2, true},
		{[]string{first, second, first, none}, map[uint32]int{1: 2, 2: 1}, 1, true},
		{[]string{first, second, second}, map[uint32]int{1: 1, 2: 2}, 2, true},
	} {
		for _, id := range x.pushed {
			p.count(id)
		}
		if counts := p.take(); !maps.Equal(counts, x.counts) || p.shard != x.shard || p.known != x.known {
			t.Errorf("after %q: %v, shard %d, known %v, want %v, %d, %v", x.pushed, counts, p.shard, p.known, x.counts, x.shard, x.known)
		}
	}
}
