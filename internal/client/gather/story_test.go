package gather

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/rpc"
)

// TestStories has callers that enqueue tasks, and a server that answers on command.
//
//	gatherer [repeats=D] [eager=N]   starts over
//	enqueue NAME... [size=N] [shard=N]   callers, each with a task of N bytes; 1..9 is many of them
//	late NAME                   one whose context has ended
//	send NAME...                one caller with a batch
//	leave NAME                  a caller's context ends
//	answer N [item=CODE] [fails=CODE] [short]   the server answers its request N: CODE is that of the first task, or of the whole
//	pass D                      time passes
//	close
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{}
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return w.step(t, d) })
			w.g.caller.End()
			w.g.Close()
		})
	})
}

// world is a gatherer between its callers and a server.
type world struct {
	pawlv1.ProducerServiceClient
	g *Gatherer

	mu      sync.Mutex
	said    []string // output of this step
	asked   int      // requests so far
	replies map[string]chan reply
	leave   map[string]context.CancelFunc
}

type reply struct {
	resp *pawlv1.EnqueueBatchResponse
	err  error
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, fmt.Sprintf(format, args...)+"\n")
}

// EnqueueBatch waits until a step answers.
func (w *world) EnqueueBatch(ctx context.Context, r *pawlv1.EnqueueBatchRequest, _ ...grpc.CallOption) (*pawlv1.EnqueueBatchResponse,
	error) {
	w.mu.Lock()
	w.asked++
	n, answer := strconv.Itoa(w.asked), make(chan reply, 1)
	w.replies[n] = answer
	w.mu.Unlock()
	names := make([]string, len(r.Tasks))
	for i, t := range r.Tasks {
		names[i] = t.GetRequestId()
	}
	if len(names) > 9 {
		names = []string{names[0], "to", names[len(names)-1] + ",", strconv.Itoa(len(names))}
	}
	w.note("request %s: %s", n, strings.Join(names, " "))
	select {
	case a := <-answer:
		if a.resp != nil && a.resp.Results == nil {
			for range r.Tasks {
				a.resp.Results = append(a.resp.Results, &pawlv1.EnqueueResult{Task: &pawlv1.Enqueued{TaskId: "id"}})
			}
		} else if a.resp != nil && a.resp.Results[0] != nil {
			for _, t := range r.Tasks[1:] {
				a.resp.Results = append(a.resp.Results, &pawlv1.EnqueueResult{Task: &pawlv1.Enqueued{TaskId: "id of " + t.GetRequestId()}})
			}
		}
		return a.resp, a.err
	case <-ctx.Done():
		w.note("request %s is given up", n)
		return nil, ctx.Err()
	}
}

func (w *world) step(t *testing.T, d *datadriven.TestData) string {
	var names []string
	of := map[string]string{}
	for _, x := range d.CmdArgs {
		first, last, many := strings.Cut(x.Key, "..")
		switch {
		case len(x.Vals) > 0:
			of[x.Key] = x.Vals[0]
		case many:
			from, _ := strconv.Atoi(first)
			to, _ := strconv.Atoi(last)
			for n := from; n <= to; n++ {
				names = append(names, strconv.Itoa(n))
			}
		default:
			names = append(names, x.Key)
		}
	}
	switch d.Cmd {
	case "gatherer":
		repeats, err := time.ParseDuration(of["repeats"])
		if err != nil {
			repeats = -1
		}
		w.g = New(rpc.NewCaller(nil, repeats), w, func(queue string) Lane {
			shard, _ := strconv.Atoi(queue)
			return Lane{Shard: uint32(shard)}
		})
		if eager, err := strconv.Atoi(of["eager"]); err == nil {
			w.g.eager = eager
		}
		w.asked, w.replies, w.leave = 0, map[string]chan reply{}, map[string]context.CancelFunc{}
	case "enqueue", "late":
		for _, name := range names {
			ctx, cancel := context.WithCancel(t.Context())
			if w.leave[name] = cancel; d.Cmd == "late" {
				cancel()
			}
			spec := task(name, of["size"])
			if of["shard"] != "" {
				spec.Queue = new(of["shard"])
			}
			go func() {
				answer, err := w.g.Enqueue(ctx, spec)
				w.note("%s: %s %v", name, answer.GetTaskId(), err)
			}()
			synctest.Wait()
		}
	case "send":
		calls := make([]*Call, len(names))
		for i, name := range names {
			calls[i] = NewCall(task(name, ""))
		}
		go func() {
			w.g.Send(t.Context(), calls)
			for i, c := range calls {
				answer, err := c.Outcome()
				w.note("%s: %s %v", names[i], answer.GetTaskId(), err)
			}
		}()
	case "leave":
		w.leave[names[0]]()
	case "answer":
		w.replies[names[0]] <- replyOf(of, slices.Contains(names, "short"))
	case "pass":
		pause, _ := time.ParseDuration(names[0])
		time.Sleep(pause)
	case "close":
		go w.g.Close() // which waits for requests: they end with the caller
		synctest.Wait()
		w.g.caller.End()
	}
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	if slices.Sort(said); len(said) > 9 {
		said = append(said[:1:1], fmt.Sprintf("and %d more\n", len(said)-1))
	}
	return strings.Join(said, "") + w.lanes()
}

// lanes returns the state of each lane that is not idle, and of the first.
func (w *world) lanes() (out string) {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	for shard := range uint32(100) {
		l := w.g.lanes[Lane{Shard: shard}]
		switch {
		case l == nil:
		case shard == 0:
			out = fmt.Sprintf("%d in flight, %d wait\n", l.inFlight, len(l.waiting))
		case l.inFlight > 0:
			out += fmt.Sprintf("shard %d: %d in flight, %d wait\n", shard, l.inFlight, len(l.waiting))
		}
	}
	if out == "" {
		out = "0 in flight, 0 wait\n"
	}
	return out
}

// Idle lanes are dropped beyond a number.
func TestIdleLanesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{replies: map[string]chan reply{}}
		w.g = New(rpc.NewCaller(nil, -1), w, func(queue string) Lane { return Lane{Queue: queue} })
		const queues = 128
		for n := range queues {
			go func() { _, _ = w.g.Enqueue(t.Context(), &pawlv1.TaskSpec{Queue: new(strconv.Itoa(n))}) }()
		}
		if synctest.Wait(); len(w.g.lanes) != queues {
			t.Errorf("%d requests to as many queues are in %d lanes", queues, len(w.g.lanes))
		}
		for _, answer := range w.replies {
			answer <- reply{resp: &pawlv1.EnqueueBatchResponse{}}
		}
		if synctest.Wait(); len(w.g.lanes) != 64 {
			t.Errorf("%d lanes are idle, want 64", len(w.g.lanes))
		}
		w.g.caller.End()
		w.g.Close()
	})
}

// However many lanes there are, one with a request in flight is kept: its limit on requests would be lost with it.
func TestBusyLanesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{replies: map[string]chan reply{}}
		w.g = New(rpc.NewCaller(nil, -1), w, func(queue string) Lane { return Lane{Queue: queue} })
		enqueue := func(queue string) {
			go func() { _, _ = w.g.Enqueue(t.Context(), &pawlv1.TaskSpec{Queue: new(queue)}) }()
			synctest.Wait()
		}
		for range 3 { // two requests, and a task that waits
			enqueue("busy")
		}
		for n := range 100 {
			enqueue(strconv.Itoa(n))
		}
		for _, c := range []struct {
			answer   string
			inFlight int // then; 0: the lane is gone
		}{{"1", 2}, {"2", 1}, {"103", 0}} {
			w.replies[c.answer] <- reply{resp: &pawlv1.EnqueueBatchResponse{}}
			synctest.Wait()
			if l := w.g.lanes[Lane{Queue: "busy"}]; (l != nil) != (c.inFlight > 0) || l != nil && l.inFlight != c.inFlight {
				t.Errorf("after the answer to request %s the lane is %+v, want %d requests in flight", c.answer, l, c.inFlight)
			}
		}
		for _, answer := range w.replies {
			select {
			case answer <- reply{resp: &pawlv1.EnqueueBatchResponse{}}:
			default:
			}
		}
		w.g.caller.End()
		w.g.Close()
	})
}

// slowToEnd is a server that answers one request, and takes a second to notice that its caller gives up the next.
type slowToEnd struct {
	pawlv1.ProducerServiceClient
	first chan struct{}
	asked int
}

func (s *slowToEnd) EnqueueBatch(ctx context.Context, r *pawlv1.EnqueueBatchRequest, _ ...grpc.CallOption) (*pawlv1.EnqueueBatchResponse,
	error) {
	if s.asked++; s.asked == 1 {
		<-s.first
		return &pawlv1.EnqueueBatchResponse{Results: make([]*pawlv1.EnqueueResult, len(r.Tasks))}, nil
	}
	<-ctx.Done()
	time.Sleep(time.Second)
	return nil, ctx.Err()
}

// Close waits for the requests that no caller sends itself.
func TestCloseWaitsForSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowToEnd{first: make(chan struct{})}
		g := New(rpc.NewCaller(nil, -1), s, func(string) Lane { return Lane{} })
		g.eager = 1
		for range 2 {
			go func() { _, _ = g.Enqueue(t.Context(), &pawlv1.TaskSpec{}) }()
			synctest.Wait()
		}
		close(s.first)
		synctest.Wait()
		g.caller.End()
		began := time.Now()
		if g.Close(); time.Since(began) != time.Second {
			t.Errorf("Close took %s while a request took 1s to end", time.Since(began))
		}
	})
}

// A caller may leave while the gatherer closes, which has already taken its call.
func TestLeavingWhileItCloses(t *testing.T) {
	w := &world{}
	g := New(rpc.NewCaller(nil, -1), w, nil)
	e := &Call{lane: &lane{}}
	g.Close()
	if g.leave(e); !e.left || len(e.lane.waiting) != 0 {
		t.Errorf("after leave: left = %v, %d calls are waiting", e.left, len(e.lane.waiting))
	}
}

// task returns a task of this size on the wire.
func task(name, size string) *pawlv1.TaskSpec {
	t := &pawlv1.TaskSpec{RequestId: new(name)}
	if n, err := strconv.Atoi(size); err == nil {
		t.Payload = make([]byte, n)
		t.Payload = t.Payload[:n-(proto.Size(t)-n)]
	}
	return t
}

func replyOf(of map[string]string, short bool) reply {
	switch {
	case of["fails"] != "":
		code := map[string]codes.Code{"unavailable": codes.Unavailable, "denied": codes.PermissionDenied}[of["fails"]]
		return reply{err: status.Error(code, "no")}
	case of["item"] != "":
		return reply{resp: &pawlv1.EnqueueBatchResponse{Results: []*pawlv1.EnqueueResult{{Error: &pawlv1.Error{Code: of["item"]}}}}}
	case short:
		return reply{resp: &pawlv1.EnqueueBatchResponse{Results: []*pawlv1.EnqueueResult{nil}}}
	}
	return reply{resp: &pawlv1.EnqueueBatchResponse{}}
}
