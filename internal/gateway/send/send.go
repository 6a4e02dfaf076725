// Package send bounds the memory that large answers take until their last bytes have been written, and the time that a client may take to
// read them.
//
// It tells by the descriptions of calls which may be made again, and knows neither what they do nor who may make them.
package send

import (
	"context"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/internal/admission"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/grpcpool"
)

const (
	// maxMemory bounds the memory, in bytes, that large answers of a node take: of calls that only read, and once more of all others, so
	// that nobody who reads lists holds up producers and workers. A namespace may have half of it, a caller a quarter.
	maxMemory = 128 << 20
	// waitTime is how long a call waits for memory.
	waitTime = 30 * time.Second
	// How often an answer is in memory while it is sent: over gRPC as a message and encoded, over REST also as JSON that grows.
	copiesOfGRPC, copiesOfREST = 2, 3
)

// Memory is what the answers of a node may take. Its methods may be called from any goroutine.
type Memory struct{ reads, others *admission.MemoryPool }

// NewMemory returns the memory of a node.
func NewMemory() *Memory {
	return &Memory{admission.NewMemoryPool(maxMemory), admission.NewMemoryPool(maxMemory)}
}

// InUse returns how many bytes are held now, and the most that ever were of calls that only read, and of others.
func (m *Memory) InUse() (now, reads, others int64) {
	now, reads = m.reads.InUse()
	more, others := m.others.InUse()
	return now + more, reads, others
}

// Answer is the memory that the answer of one request takes, or the next message of a stream. It must not be used concurrently. Its zero
// value and that of a context without one count nothing.
type Answer struct {
	memory *Memory
	held   []*admission.Reservation
}

type answerKey struct{}

// Begin returns the context of a request that is answered in bounded memory. The caller must call Release at its end.
func (m *Memory) Begin(ctx context.Context) (context.Context, *Answer) {
	a := &Answer{memory: m}
	return context.WithValue(ctx, answerKey{}, a), a
}

func of(ctx context.Context) *Answer {
	if a, ok := ctx.Value(answerKey{}).(*Answer); ok {
		return a
	}
	return &Answer{}
}

// Handler returns a handler whose answers take bounded memory: over HTTP, where an answer has been sent when its handler returns.
func (m *Memory) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, a := m.Begin(r.Context())
		defer a.Release()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Pages returns the handler of pages, which are built before they are written: a large one waits for memory, by the client's address.
func (m *Memory) Pages(next http.Handler) http.Handler {
	if next == nil {
		return nil
	}
	return m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&page{w, r}, r) }))
}

type page struct {
	http.ResponseWriter
	r *http.Request
}

// Unwrap is for http.ResponseController.
func (p *page) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write implements io.Writer.
func (p *page) Write(b []byte) (int, error) {
	if len(b) > contract.SmallMessage {
		a := of(p.r.Context())
		if err := a.reserve(p.r.Context(), a.memory.reads, "", callinfo.HostOf(p.r.RemoteAddr), int64(len(b))); err != nil {
			return 0, err
		}
		defer a.Release()
	}
	return p.ResponseWriter.Write(b)
}

// Await waits for memory for n bytes that the call of a context is going to read, until stop is closed at the latest. The caller must call
// Release, also after Take.
func Await(ctx context.Context, n int, stop <-chan struct{}) (*Answer, error) {
	a := &Answer{memory: of(ctx).memory}
	if n <= contract.SmallMessage || a.memory == nil {
		return a, nil
	}
	waiting, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-stop:
			end()
		case <-waiting.Done():
		}
	}()
	ns, caller, copies := callerOf(ctx)
	return a, a.reserve(waiting, a.memory.others, ns, caller, int64(n)*copies)
}

// Take reserves memory for n bytes that the call of a context has read and can give back. It does not wait, and uses
// what was awaited first; nil: nothing was.
func Take(ctx context.Context, n int, awaited *Answer) error {
	a := of(ctx)
	if n <= contract.SmallMessage || a.memory == nil {
		return nil
	}
	if awaited != nil {
		a.held, awaited.held = append(a.held, awaited.held...), nil
	}
	ns, caller, copies := callerOf(ctx)
	pool := a.memory.others
	if more := min(int64(n)*copies, pool.PerCaller()) - a.size(); more > 0 && !a.try(pool, ns, caller, more) {
		a.Release()
		return contract.NoRoomToAnswer()
	}
	return nil
}

// Sends notes that the answer over HTTP has been encoded, so that nothing else of it is in memory.
func Sends(ctx context.Context, bytes int) { of(ctx).shrink(int64(bytes)) }

// callerOf returns who shares the memory of a call's answer, and how often the answer is in memory.
func callerOf(ctx context.Context) (ns, caller string, copies int64) {
	c := callinfo.Of(ctx)
	copies = copiesOfGRPC
	if c.Web != nil {
		copies = copiesOfREST
	}
	if caller = c.Principal.Actor(); caller == "" {
		_, caller = callinfo.Source(ctx, c)
	}
	return c.Namespace, caller, copies
}

// try reserves n bytes more if they are free.
func (a *Answer) try(of *admission.MemoryPool, ns, caller string, n int64) bool {
	h := of.TryReserveFor(ns, caller, min(n, of.PerCaller()))
	if h != nil {
		a.held = append(a.held, h)
	}
	return h != nil
}

// reserve waits for n bytes more.
func (a *Answer) reserve(ctx context.Context, of *admission.MemoryPool, ns, caller string, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	h, err := of.ReserveFor(ctx, ns, caller, min(n, of.PerCaller()))
	if err != nil {
		return contract.NoRoomToAnswer()
	}
	a.held = append(a.held, h)
	return nil
}

// size returns how many bytes are held.
func (a *Answer) size() (n int64) {
	for _, h := range a.held {
		n += h.Size()
	}
	return n
}

// shrink gives back all but n bytes.
func (a *Answer) shrink(n int64) {
	for over := a.size() - n; over > 0 && len(a.held) > 0; {
		last := a.held[len(a.held)-1]
		before := last.Size()
		last.Shrink(before - over)
		over -= before - last.Size()
		if last.Size() == 0 {
			last.Release()
			a.held = a.held[:len(a.held)-1]
		}
	}
}

// Release gives back everything.
func (a *Answer) Release() { a.shrink(0) }

// Message returns what gRPC is to send for an answer. It holds the memory until the answer has been written or its connection is gone, and
// closes the connection of a client that reads nothing of it for too long.
func (a *Answer) Message(ctx context.Context, answer any) any {
	m, ok := answer.(proto.Message)
	if !ok || len(a.held) == 0 {
		return answer
	}
	_ = grpc.SetSendCompressor(ctx, "identity") // a compressed copy would not be counted; fails once a stream's headers are sent
	conn := listen.InfoOf(ctx)
	s := &sending{answer: Answer{a.memory, a.held}}
	a.held = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stall = time.AfterFunc(listen.StallTime, conn.Close)
	s.forget = conn.OnClose(func() { s.left(0) })
	return &grpcpool.Watched{Message: m, Left: s.left}
}

// sending is a message that gRPC has been given.
type sending struct {
	mu     sync.Mutex
	answer Answer
	stall  *time.Timer
	forget func() bool
	ended  bool
}

// left notes how many bytes are still to be written.
func (s *sending) left(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.answer.shrink(int64(bytes)); {
	case s.ended:
	case bytes > 0:
		s.stall.Reset(listen.StallTime)
	default:
		s.ended = true
		s.stall.Stop()
		s.forget()
	}
}

// Send sends a message of a stream, a large one once there is memory for it. What was taken for a message that turns
// out to be small is given back. The context is that of the call.
func (a *Answer) Send(ctx context.Context, s grpc.ServerStream, m any) error {
	answer, ok := m.(proto.Message)
	if !ok || a.memory == nil {
		return s.SendMsg(m)
	}
	n := proto.Size(answer)
	if n <= contract.SmallMessage {
		a.Release()
		return s.SendMsg(m)
	}
	if len(a.held) == 0 {
		ns, caller, copies := callerOf(ctx)
		if err := a.reserve(ctx, a.memory.others, ns, caller, int64(n)*copies); err != nil {
			return err
		}
	}
	return s.SendMsg(a.Message(ctx, m))
}
