package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/rest"
)

// perCaller is what the answers to one caller may take.
const perCaller = 32 << 20

// withLargeTasks adds twelve tasks of almost 1 MB each to a fake, whose lists return all of them.
func withLargeTasks(t *testing.T, f *fake, g *Gateway) {
	f.rows = 1000
	for range 12 {
		w := serveChecked(t, g.Handler(), requestOf("POST", "/api/v1/tasks", `{"type":"a","queue":"mail","payload":"`+strings.Repeat("x",
			900<<10)+`"}`), nil)
		if w.Code >= 300 {
			t.Fatalf("enqueue: %d %.300s", w.Code, w.Body)
		}
	}
}

func requestOf(method, path, body string) *http.Request {
	r, err := http.NewRequest(method, ours+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.RemoteAddr = "192.0.2.1:1"
	r.Header.Set("Content-Type", "application/json")
	return r
}

// The answers to calls whose clients do not read them take bounded memory together. The connections are closed after a
// time, and the memory is free again.
func TestUnreadAnswersTakeBoundedMemory(t *testing.T) {
	for _, c := range []struct {
		what string
		ask  func(t *testing.T, l *pipes) (closed func() bool)
	}{
		{"lists over gRPC", func(t *testing.T, l *pipes) func() bool {
			c := newRudeClient(t, l.dial)
			for range 20 {
				c.send(c.call("/pawl.v1.ProducerService/ListTasks", ""), &pawlv1.ListTasksRequest{Limit: 1000, WithPayload: true}, true)
			}
			return func() bool { return isClosed(c.closed) }
		}},
		{"lists over gRPC, to a client that compresses", func(t *testing.T, l *pipes) func() bool {
			c := newRudeClient(t, l.dial)
			for range 20 {
				c.send(c.call("/pawl.v1.ProducerService/ListTasks", "", "grpc-encoding", "gzip", "grpc-accept-encoding", "gzip"),
					&pawlv1.ListTasksRequest{Limit: 1000, WithPayload: true}, true)
			}
			return func() bool { return isClosed(c.closed) }
		}},
		{"lists over REST", func(t *testing.T, l *pipes) func() bool {
			return askUnread(t, l, "GET /api/v1/tasks?limit=1000&fields=payload")
		}},
		{"claims over REST", func(t *testing.T, l *pipes) func() bool {
			return askUnread(t, l, "POST /api/v1/claim", `{"queues":["mail"],"worker":"w","max":6,"max_bytes":12000000}`)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				g, l := serve(t, f)
				withLargeTasks(t, f, g)
				if now, _, _ := g.answers.InUse(); now != 0 {
					t.Fatalf("%d bytes in use at the start", now)
				}
				closed := c.ask(t, l)
				pass(time.Second)
				if now, reads, others := g.answers.InUse(); now < 5<<20 || max(reads, others) > perCaller {
					t.Errorf("%d bytes in use, %d at the peak, want some, and at most %d", now, max(reads, others), perCaller)
				}
				if now, _, _ := g.answers.InUse(); strings.Contains(c.what, "REST") && now > 13<<20 {
					t.Errorf("%d bytes in use, want no more than the encoded answers have", now)
				}
				pass(2 * listen.StallTime)
				if now, _, _ := g.answers.InUse(); now != 0 || !closed() {
					t.Errorf("%d bytes are still in use after %v, closed: %v", now, 2*listen.StallTime, closed())
				}
			})
		})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// askUnread sends a request over each of 20 connections, and reads no answer.
func askUnread(t *testing.T, l *pipes, line string, body ...string) (closed func() bool) {
	var conns []net.Conn
	for range 20 {
		c, err := l.dial(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		content := strings.Join(body, "")
		_, _ = fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", line, len(content), content)
		conns = append(conns, c)
	}
	return func() bool {
		for _, c := range conns {
			if _, err := io.Copy(io.Discard, c); err != nil {
				return false
			}
		}
		return true
	}
}

// A claim whose answer finds no memory is refused, and its tasks are released.
func TestClaimsWithoutMemoryAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		g, l := serve(t, f)
		for range 3 {
			withLargeTasks(t, f, g)
		}
		c := newRudeClient(t, l.dial)
		for range 2 { // what somebody reads does not hold up claims
			c.send(c.call("/pawl.v1.ProducerService/ListTasks", ""), &pawlv1.ListTasksRequest{Limit: 1000, WithPayload: true}, true)
			pass(time.Second)
		}
		for range 6 {
			c.send(c.call("/pawl.v1.WorkerService/Claim", ""), &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: "mail"}},
				Worker: "w", Max: 6, MaxBytes: 12 << 20}, true)
			pass(time.Second)
		}
		refused := c.next - 2
		select {
		case e := <-c.ended[refused]:
			if e.code != codes.Unavailable {
				t.Errorf("the claim ended with %v: %s", e.code, e.said)
			}
		default:
			t.Error("the claim that found no memory was not refused")
		}
		f.set(func() {
			if len(f.released) != 6 {
				t.Errorf("%d tasks were released, want 6", len(f.released))
			}
		})
		c.close()
		pass(time.Second)
		if now, _, _ := g.answers.InUse(); now != 0 {
			t.Errorf("%d bytes are still in use after the connection was closed", now)
		}
	})
}

// A client that reads slowly gets all of its answer, however long that takes.
func TestSlowReadersGetTheirAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		g, l := serve(t, f)
		withLargeTasks(t, f, g)
		c, err := l.dial(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = fmt.Fprint(c, "GET /api/v1/tasks?limit=1000&fields=payload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		read, began := 0, time.Now()
		piece := make([]byte, 256<<10)
		for {
			n, err := io.ReadFull(c, piece)
			if read += n; err != nil {
				break
			}
			time.Sleep(listen.StallTime - time.Second)
		}
		if want := 12 * 900 << 10; read < want || time.Since(began) < 10*rest.AnswerTimeout {
			t.Errorf("read %d bytes in %v, want more than %d", read, time.Since(began), want)
		}
	})
}

// A stream's large message takes memory until it is read.
func TestUnreadStreamTakesBoundedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		g, l := serve(t, f)
		withLargeTasks(t, f, g)
		c := newRudeClient(t, l.dial)
		for i := range 4 {
			hello := &pawlv1.WorkRequest{Hello: &pawlv1.WorkHello{Queues: []*pawlv1.QueueShare{{Queue: "mail"}}, Worker: fmt.Sprint("w", i),
				MaxBytes: 12 << 20}, Grant: 6}
			c.send(c.call("/pawl.v1.WorkerService/Work", ""), hello, false)
		}
		pass(time.Second)
		if now, reads, others := g.answers.InUse(); now < 5<<20 || max(reads, others) > perCaller {
			t.Errorf("%d bytes in use, %d at the peak, want some, and at most %d", now, max(reads, others), perCaller)
		}
		pass(2 * listen.StallTime)
		if now, _, _ := g.answers.InUse(); now != 0 || !isClosed(c.closed) {
			t.Errorf("%d bytes are still in use, closed: %v", now, isClosed(c.closed))
		}
	})
}

// The largest claim over REST is answered at once, though its copies take more than a caller may hold.
func TestLargestClaimOverREST(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		g, _ := serve(t, f)
		withLargeTasks(t, f, g)
		withLargeTasks(t, f, g)
		began := time.Now()
		w := serveChecked(t, g.Handler(), requestOf("POST", "/api/v1/claim", fmt.Sprintf(`{"queues":["mail"],"worker":"w","max":20,`+
			`"max_bytes":%d}`, contract.MaxClaimBytes)), nil)
		if n := strings.Count(w.Body.String(), `"claim_token"`); w.Code != http.StatusOK || n < 13 || time.Since(began) > 0 {
			t.Errorf("status %d with %d tasks after %v, want 200 with at least 13 at once", w.Code, n, time.Since(began))
		}
		if now, _, _ := g.answers.InUse(); now != 0 {
			t.Errorf("%d bytes are still in use", now)
		}
	})
}

// Frames of small tasks hold no memory once they are sent, though they are estimated as large.
func TestSmallFramesOfAStreamHoldNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		g, l := serve(t, f)
		s, err := pawlv1.NewWorkerServiceClient(dial(t, l)).Work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&pawlv1.WorkRequest{Hello: hello("mail"), Grant: 100}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			items := strings.Repeat(`{"type":"a","queue":"mail"},`, 30)
			w := serveChecked(t, g.Handler(), requestOf("POST", "/api/v1/tasks/batch", `{"tasks":[`+items[:len(items)-1]+`]}`), nil)
			if w.Code >= 300 {
				t.Fatalf("enqueue: %d %.300s", w.Code, w.Body)
			}
			for n := 0; n < 30; {
				frame, err := s.Recv()
				if err != nil {
					t.Fatal(err)
				}
				n += len(frame.GetTasks())
			}
		}
		synctest.Wait()
		if now, _, _ := g.answers.InUse(); now != 0 {
			t.Errorf("%d bytes are in use for frames that were sent", now)
		}
	})
}

// A stream whose tasks find no memory claims them again only when there is some, and stops waiting when the server shuts down.
func TestStreamsWaitForMemory(t *testing.T) {
	for _, drains := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			g, l := serve(t, f)
			for range 4 {
				withLargeTasks(t, f, g)
			}
			c := newRudeClient(t, l.dial)
			for range 5 {
				c.send(c.call("/pawl.v1.WorkerService/Claim", ""), &pawlv1.ClaimRequest{Queues: []*pawlv1.QueueShare{{Queue: "mail"}},
					Worker: "w", Max: 6, MaxBytes: 12 << 20}, true)
				pass(time.Second)
			}
			s, err := pawlv1.NewWorkerServiceClient(dial(t, l)).Work(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			first := &pawlv1.WorkRequest{Hello: hello("mail"), Grant: 6}
			first.Hello.MaxBytes = 12 << 20
			if err := s.Send(first); err != nil {
				t.Fatal(err)
			}
			pass(20 * time.Second)
			f.set(func() {
				if len(f.claims) != 5+1 || len(f.released) != 6 {
					t.Errorf("%d claims, %d tasks were released, want 6 and 6", len(f.claims), len(f.released))
				}
			})
			if drains {
				close(f.draining)
			} else {
				c.close()
			}
			began := time.Now()
			frame, err := s.Recv()
			if err != nil || time.Since(began) > 0 || frame.GetDraining() != drains || (len(frame.GetTasks()) == 6) == drains {
				t.Errorf("%d tasks, draining %v, %v after %v", len(frame.GetTasks()), frame.GetDraining(), err, time.Since(began))
			}
			c.close()
			pass(time.Second)
			if now, _, _ := g.answers.InUse(); now != 0 {
				t.Errorf("%d bytes are still in use", now)
			}
		})
	}
}
