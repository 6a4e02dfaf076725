package rest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/admission"
	"google.golang.org/grpc/test/bufconn"

	"google.golang.org/grpc"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// pipe is an in-memory listener of one connection.
type pipe struct{ conns chan net.Conn }

func (p pipe) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipe) Close() error { return nil }

func (p pipe) Addr() net.Addr { return &net.UnixAddr{} }

// serve returns the client's end of a connection to a REST server below /base, with pages.
func serve(t *testing.T, pages http.HandlerFunc) net.Conn {
	return serveConns(t, Config{Pages: pages, BasePath: "/base", Large: admission.NewMemoryPool(128 << 20)}, 1)[0]
}

// serveConns returns the clients' ends of n connections to a REST server.
func serveConns(t *testing.T, cfg Config, n int) (near []net.Conn) {
	server := newServer(cfg)
	l := pipe{make(chan net.Conn, n)}
	for range n {
		here, far := net.Pipe()
		near = append(near, here)
		l.conns <- far
		t.Cleanup(func() { _ = here.Close() })
	}
	close(l.conns)
	_ = server.Serve(l)
	return near
}

func newServer(cfg Config) *http.Server {
	cfg.Namespace = anyNamespace
	if cfg.Call == nil {
		cfg.Call = call
	}
	cfg.Register = func(s grpc.ServiceRegistrar) {
		pawlv1.RegisterProducerServiceServer(s, pawlv1.UnimplementedProducerServiceServer{})
	}
	return &http.Server{Handler: New(cfg), IdleTimeout: 2 * time.Minute, WriteTimeout: AnswerTimeout}
}

func call(r *http.Request, _ *Route, handle func(context.Context) error) (o Outcome) {
	if err := handle(r.Context()); err != nil {
		o.Refusal, _ = task.AsError(err)
	}
	return o
}

func anyNamespace(context.Context) string { return "default" }

// readPages reads the body of requests to /read, and no others.
func readPages(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/read" {
		_, _ = io.ReadAll(r.Body)
	}
	_, _ = io.WriteString(w, "ok")
}

// Bodies that don't arrive time out whether they are read by REST, by a page, or by net/http after handlers that read none, such as
// redirects to clean paths.
func TestSlowBodiesTimeOutOnAllPaths(t *testing.T) {
	for _, path := range []string{"POST /api/v1/tasks", "GET /healthz", "POST /read", "POST /unread", "GET /unread", "PUT //untidy",
		"POST /base/read", "POST /base", "POST /base//untidy"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serve(t, readPages)
				go fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nb", path)
				start := time.Now()
				_ = c.SetReadDeadline(start.Add(10 * BodyTimeout))
				_, err := io.Copy(io.Discard, c)
				if took := time.Since(start); err != nil || took > BodyTimeout+time.Second {
					t.Errorf("the connection ended after %v (%v), want %v", took, err, BodyTimeout)
				}
			})
		})
	}
}

// A body that arrived in time leaves no deadline behind: the next request on its connection may come as late as any other.
func TestBodyTimeoutIsReset(t *testing.T) {
	for _, path := range []string{"/read", "/unread", "/api/v1/tasks"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serve(t, readPages)
				answers := bufio.NewReader(c)
				for range 3 {
					go func() {
						fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nb", path)
						time.Sleep(BodyTimeout - time.Second)
						_, _ = io.WriteString(c, "c")
					}()
					resp, err := http.ReadResponse(answers, nil)
					if err != nil || resp.Close {
						t.Fatalf("response = %v, %v, want one that keeps the connection open", resp, err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					time.Sleep(2*time.Minute - time.Second)
				}
			})
		})
	}
}

// Large bodies wait for memory no longer than a body may take to arrive. Once they have memory, that time starts over.
func TestLargeBodiesWaitForMemory(t *testing.T) {
	const size = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		room := admission.NewMemoryPool(2 * int64(bodyMemory(size)))
		conns, began := serveConns(t, Config{Large: room}, 3), time.Now()
		wants := func(what string, c net.Conn, code int, words string, after time.Duration) {
			t.Helper()
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			answer, err := io.ReadAll(resp.Body)
			if took := time.Since(began); err != nil || resp.StatusCode != code || !resp.Close ||
				!strings.Contains(string(answer), words) || took != after {
				t.Errorf("%s: got %s %s (%v) after %v, want %d %q after %v", what, resp.Status, answer, err, took, code, words, after)
			}
		}
		head := fmt.Sprintf("POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
		say := func(c net.Conn, text string) {
			go io.WriteString(c, text)
			synctest.Wait()
		}
		say(conns[0], head)
		time.Sleep(10 * time.Second)
		say(conns[1], head+"{")
		time.Sleep(15 * time.Second)
		say(conns[2], "POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4000\r\n"+strings.Repeat(" ", 0x4000)+
			"\r\n")
		wants("a body that does not come", conns[0], 400, "did not arrive in full", BodyTimeout)
		wants("one behind that with a longer one in room for it", conns[2], 503, "too many large requests", 25*time.Second+BodyTimeout)
		wants("the one that got its room", conns[1], 400, "did not arrive in full", 2*BodyTimeout)
		if now, _ := room.InUse(); now != 0 {
			t.Errorf("%d bytes of memory are still in use at the end", now)
		}
		time.Sleep(time.Second) // the server closes its connections slowly
	})
}

// A client that sends its whole body before it reads, or that asks to close the connection, still gets the reason why the body was
// refused. Closing a connection with unread bytes would reset it, and the response would be lost.
func TestRefusedBodiesGetTheirAnswer(t *testing.T) {
	long := strings.Repeat(" ", 15<<20)
	for name, c := range map[string]struct {
		head string
		code int
	}{
		"no room, length known": {fmt.Sprintf("POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n",
			len(long)), 503},
		"no room, keep-alive": {fmt.Sprintf("POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(long)), 503},
		"no room, HTTP/1.0":   {fmt.Sprintf("POST /api/v1/tasks HTTP/1.0\r\nContent-Length: %d\r\n\r\n", len(long)), 503},
		"no room, length unknown": {fmt.Sprintf("POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: "+
			"chunked\r\n\r\n%x\r\n", len(long)), 503},
		"too long, by its length": {fmt.Sprintf("POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n",
			20<<20), 413},
		"no such path": {fmt.Sprintf("POST /api/v1/nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n",
			len(long)), 404},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := bufconn.Listen(1 << 16)
				full := admission.NewMemoryPool(4 * contract.MaxMessage)
				server := newServer(Config{Large: full, Call: func(r *http.Request, on *Route, handle func(context.Context) error) Outcome {
					time.Sleep(time.Second) // so that the wait for memory doesn't end at the same moment as the body's deadline
					return call(r, on, handle)
				}})
				go server.Serve(l)
				defer server.Close()
				if _, err := full.Reserve(t.Context(), "default", full.PerNamespace()); err != nil {
					t.Fatal(err)
				}
				conn, err := l.Dial()
				if err != nil {
					t.Fatal(err)
				}
				if n, err := io.WriteString(conn, c.head+long); err != nil {
					t.Fatalf("the connection was closed after %d bytes: %v", n, err)
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil || resp.StatusCode != c.code {
					t.Errorf("response = %v, %v, want status %d", resp, err, c.code)
				}
			})
		})
	}
}

// A body is read in full whether or not its length is known, in pieces of any size, up to the maximum size of a message.
func TestBodiesOfAllSizes(t *testing.T) {
	long := bytes.Repeat([]byte("pawl"), (contract.MaxMessage+8)/4)
	for _, size := range []int{0, 1, contract.SmallMessage - 1, contract.SmallMessage, contract.SmallMessage + 1, growth, growth + 1,
		contract.MaxMessage - 1, contract.MaxMessage, contract.MaxMessage + 1} {
		for name, known := range map[string]int64{"announced": int64(size), "not announced": -1} {
			for _, piece := range []int{1000, 1 << 20, 1 << 30} {
				room := admission.NewMemoryPool(4 * contract.MaxMessage)
				x := exchange{server: &server{Config: Config{Large: room, Namespace: anyNamespace}}, ctx: t.Context(),
					r: httptest.NewRequest("POST",
						"/", pieces{bytes.NewReader(long[:size]), piece}), w: httptest.NewRecorder()}
				x.conn, x.r.ContentLength = http.NewResponseController(x.w), known
				got, err := x.body()
				now, most := room.InUse()
				x.releaseMemory()
				if tooLong := size > contract.MaxMessage; (err != nil) != tooLong || err == nil && !bytes.Equal(got, long[:size]) {
					t.Errorf("body of %d bytes, %s, in pieces of %d: got %d, %v", size, name, piece, len(got), err)
				}
				if small := size < contract.SmallMessage || known >= 0 && (size == contract.SmallMessage ||
					size > contract.MaxMessage); (most == 0) != small {
					t.Errorf("body of %d bytes, %s: %d bytes of memory were used at the peak", size, name, most)
				}
				if err == nil && most != 0 && now != int64(bodyMemory(cap(got))) {
					t.Errorf("body of %d bytes, %s, in a buffer of %d: %d bytes of memory are in use", size, name, cap(got), now)
				}
				if left, _ := room.InUse(); left != 0 {
					t.Errorf("body of %d bytes, %s: %d bytes of memory are in use after its release", size, name, left)
				}
			}
		}
	}
}

// pieces limits the number of bytes per read.
type pieces struct {
	io.Reader
	most int
}

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.most)]) }

// Memory for decoding a body is limited, and no legitimate request comes near the limit.
func TestBodiesOfManyPartsAreRefused(t *testing.T) {
	many := func(before, part, after string, n int) string {
		return before + strings.Repeat(part+",", n-1) + part + after
	}
	headers := make([]string, 64)
	for i := range headers {
		headers[i] = fmt.Sprintf(`"h%d":"x"`, i)
	}
	full := `{"type":"a","payload":1,"tags":` + many("[", `"t"`, "]", task.MaxTags) + `,"headers":{` + strings.Join(headers, ",") + `}}`
	chains := `{"type":"a","then":` + many("[", `{"type":"b"}`, "]", task.MaxThen) + `}`
	branching := `{"type":"a"}`
	for range 6 {
		branching = `{"then":` + many("[", branching, "]", task.MaxThen) + `}`
	}
	for name, c := range map[string]struct {
		task      string
		tasks     int
		ok, extra bool
	}{
		"nothing":         {`{}`, 1, true, false},
		"small tasks":     {`{"type":"a","payload":1}`, 1000, true, false},
		"all that may be": {full, 1000, true, true},
		"short chains":    {chains, 1000, true, true},
		"long payloads":   {`{"type":"a","payload":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`, 15, true, false},
		"long texts":      {`{"type":"a","payload":"` + strings.Repeat("x", 1<<20) + `"}`, 15, true, true},
		"a tree of tasks": {branching, 1, false, true},
	} {
		body := many(`{"tasks":[`, c.task, `]}`, c.tasks)
		extra := admission.NewMemoryPool(2 * contract.MaxExtra)
		x := exchange{server: &server{Config: Config{Extra: extra, Namespace: anyNamespace}}, ctx: t.Context()}
		made := x.budget(len(body))
		m := batch[*pawlv1.TaskSpec]{field: "tasks", max: 1000}
		err := apijson.Read([]byte(body), made, apijson.MaxListed, func(r *apijson.Reader, name string) error { return m.items(r) })
		for _, refused := range m.refused {
			if refused != nil {
				err = errors.New(refused.GetMessage())
			}
		}
		if (err == nil) != c.ok || !c.ok && !strings.Contains(err.Error(), "so many small parts") {
			t.Errorf("%s in %d bytes: error %v", name, len(body), err)
		}
		if _, most := extra.InUse(); (most > 0) != c.extra {
			t.Errorf("%s in %d bytes: %d bytes of extra memory were used", name, len(body), most)
		}
	}
}
