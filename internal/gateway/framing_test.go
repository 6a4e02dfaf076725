package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hidden is a request in the body of another, as seen by an intermediary that uses the Content-Length.
const hidden = "DELETE /api/v1/queues/hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"

const okBody = `{"type":"a"}`

// postChunked returns a request with a body of one chunk.
func postChunked(headers string) string {
	return fmt.Sprintf("POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", headers, len(okBody), okBody)
}

func postLength(headers string) string {
	return fmt.Sprintf("POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n%s", len(okBody), headers, okBody)
}

const chunked = "Transfer-Encoding: chunked\r\n"

// A request with both a length and chunks is answered according to its chunks, and is the last of its connection, because an intermediary
// may take what follows as part of its body (RFC 9112, sections 6.1 and 6.3). So is an HTTP/1.0 request with chunks. Other requests keep
// the connection open, at least if the next one waits for the response.
func TestAmbiguousFramingClosesConnection(t *testing.T) {
	both := postChunked("Content-Length: 4\r\n" + chunked)
	for _, c := range []struct {
		name  string
		sends string // a bar waits for the responses so far
		want  []int  // statuses of the responses, after which the connection ends
	}{
		{"length and chunks", both + hidden, []int{202}},
		{"chunks and length", postChunked(chunked+"Content-Length: 4\r\n") + hidden, []int{202}},
		{"small letters, bare line feeds", "POST /api/v1/tasks " +
			"HTTP/1.1\nhost:localhost\ncontent-length:4\ntransfer-encoding:chunked\n\nc\r\n" +
			okBody + "\r\n0\r\n\r\n" + hidden, []int{202}},
		{"a length of no digits", postChunked("Content-Length: x\r\n"+chunked) + hidden, []int{400}},
		{"behind one with a length", postLength("") + both + hidden, []int{202, 202}},
		{"behind one with chunks", postChunked(chunked) + "|" + both + hidden, []int{202, 202}},
		{"refused", strings.Replace(both, "tasks", "nothing", 1) + hidden, []int{404}},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n" + chunked + "\r\n0\r\n\r\n" + hidden, []int{400}},
		{"HTTP/1.0 with chunks", strings.Replace(postLength("Connection: keep-alive\r\n"+chunked), "HTTP/1.1", "HTTP/1.0", 1) + hidden,
			[]int{202}},
		{"a short first line", "POST / HTTP/1.1\ncontent-length:4\ntransfer-encoding:chunked\nhost:localhost\n\n0\r\n\r\n" + hidden,
			[]int{404}},
		{"two lengths", postLength("Content-Length: 4\r\n") + hidden, []int{400}},
		{"two codings", postChunked(chunked+"Transfer-Encoding: identity\r\n") + hidden, []int{501}},

		{"chunks alone", postChunked(chunked) + "|" + postChunked(chunked) +
			"|GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", []int{202, 202, 200}},
		{"by turns", postLength("") + "|" + postChunked(chunked) + "|" + postLength("") + "|" +
			postChunked(chunked+"Connection: close\r\n"),
			[]int{202, 202, 202, 202}},
		{"one length twice", postLength(fmt.Sprintf("Content-Length: %d\r\n", len(okBody))) + "|" + postLength("Connection: close\r\n"),
			[]int{202, 202}},
		{"other names", postChunked("X-Content-Length: 4\r\nContent-Length-X: 4\r\nX: Content-Length: 4\r\n"+chunked) + "|" +
			postLength("Connection: close\r\n"), []int{202, 202}},
		{"HTTP/1.0 with a length", strings.Replace(postLength("Connection: keep-alive\r\n"), "HTTP/1.1", "HTTP/1.0", 1) + "|" +
			postLength("Connection: close\r\n"), []int{202, 202}},
		{"HTTP/1.0 behind one with chunks", postChunked(chunked) + "|" + strings.Replace(postLength("Connection: keep-alive\r\n"),
			"HTTP/1.1", "HTTP/1.0", 1) + "|" + postLength("Connection: close\r\n"), []int{202, 202, 202}},
		{"a long name", postChunked(strings.Repeat("X", 18)+"Content-Length: 4\r\n"+chunked) + "|" + postLength("Connection: close\r\n"),
			[]int{202, 202}},
		{"sent ahead of the answers", postLength("") + postLength("") + postLength("Connection: close\r\n"), []int{202, 202, 202}},
	} {
		for _, way := range []struct {
			name string
			tls  bool
			step int // bytes sent at a time
		}{{"plain", false, 1 << 20}, {"TLS", true, 1 << 20}, {"byte by byte", false, 1}} {
			t.Run(c.name+", "+way.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { askRaw(t, pipeTo(t, way.tls), way.step, c.sends, c.want) })
			})
		}
		t.Run(c.name+", TCP", func(t *testing.T) { askRaw(t, tcpTo(t), 1<<20, c.sends, c.want) })
	}
}

// pipeTo connects to a gateway in memory.
func pipeTo(t *testing.T, encrypted bool) net.Conn {
	f := newFake()
	if encrypted {
		_, l, v := serveTLS(t, f)
		conn, err := shake(t, l, v.client("n1", "http/1.1"))
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	_, l := serve(t, f)
	conn, _ := l.dial(t.Context(), "")
	return conn
}

// tcpTo connects to a gateway over TCP. A connection that should have ended but did not fails the test after half a minute.
func tcpTo(t *testing.T) net.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(newFake())
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// askRaw sends bytes over a connection, and expects responses and then the end of the connection.
func askRaw(t *testing.T, conn net.Conn, step int, sends string, want []int) {
	defer conn.Close()
	answered := make(chan struct{}, len(want))
	go func() {
		for i, part := range strings.Split(sends, "|") {
			if i > 0 {
				<-answered
			}
			for rest := part; len(rest) > 0; {
				n, err := io.WriteString(conn, rest[:min(step, len(rest))])
				if err != nil {
					return
				}
				rest = rest[n:]
			}
		}
	}()
	from := bufio.NewReader(conn)
	for i, status := range want {
		resp, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatalf("response %d: %v", i+1, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status || resp.Close != (i == len(want)-1) {
			t.Fatalf("response %d: %s (closes: %t) %s, %v, want %d", i+1, resp.Status, resp.Close, body, err, status)
		}
		answered <- struct{}{}
	}
	rest, err := io.ReadAll(from)
	if len(rest) > 0 {
		t.Errorf("got %q after the last response", rest)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection was still open after the last response")
	}
}
