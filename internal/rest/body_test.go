package rest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// pipe is a listener of one connection, in memory.
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

// serve gives the client's end of a connection to REST below /base, with pages beside it.
func serve(t *testing.T, pages http.HandlerFunc) net.Conn {
	call := func(r *http.Request, _ *Route, handle func(context.Context) error) Outcome {
		_ = handle(r.Context())
		return Outcome{}
	}
	server := &http.Server{Handler: New(Config{Call: call, Pages: pages, BasePath: "/base"}), IdleTimeout: 2 * time.Minute}
	near, far := net.Pipe()
	l := pipe{make(chan net.Conn, 1)}
	l.conns <- far
	close(l.conns)
	_ = server.Serve(l)
	t.Cleanup(func() { _ = near.Close() })
	return near
}

// readPages read what is sent to /read, and nothing else.
func readPages(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/read" {
		_, _ = io.ReadAll(r.Body)
	}
	_, _ = io.WriteString(w, "ok")
}

// Bodies that don't come are given up, whoever reads them: REST, a page, or the server behind those that read none, as what leads to
// tidy addresses.
func TestSlowBodiesOfAllPathsAreGivenUp(t *testing.T) {
	for _, path := range []string{"POST /api/v1/tasks", "GET /healthz", "POST /read", "POST /unread", "GET /unread", "PUT //untidy", "POST /base/read", "POST /base", "POST /base//untidy"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serve(t, readPages)
				go fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nb", path)
				start := time.Now()
				_ = c.SetReadDeadline(start.Add(10 * BodyTimeout))
				_, err := io.Copy(io.Discard, c)
				if took := time.Since(start); err != nil || took > BodyTimeout+time.Second {
					t.Errorf("the connection ends after %v (%v), want %v", took, err, BodyTimeout)
				}
			})
		})
	}
}

// A body that has come in time leaves nothing behind: the next request on its connection may come as late as any.
func TestBodiesLeaveNoLimitBehind(t *testing.T) {
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
						t.Fatalf("got %v, %v", resp, err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					time.Sleep(2*time.Minute - time.Second)
				}
			})
		})
	}
}

// Bodies get all their room at once, as long as those on their way are few; beyond that as much as has come, and some.
func TestRoomOfBodies(t *testing.T) {
	const size = 1 << 20
	body := bytes.Repeat([]byte("pawl"), size/4)
	for _, c := range []struct {
		lent, size int64
		come, room int
	}{
		{0, 0, 0, 0},
		{0, size, size, size},
		{0, 16 * size, 1, 16 * size},
		{maxLent - size, size, size, size},
		{maxLent, 16 * size, 1, firstPart},
		{maxLent, 16 * size, firstPart + 1, partsGrow * firstPart},
		{maxLent, size, size, size},
		{maxLent, 100, 100, 100},
		{1 << 40, 3*firstPart + 7, 3*firstPart + 7, 3*firstPart + 7},
	} {
		var l lender
		l.lent.Store(c.lent)
		got, err := l.readAll(iotest.OneByteReader(bytes.NewReader(body[:c.come])), c.size)
		if whole := int64(c.come) == c.size; (err == nil) != whole || !bytes.Equal(got, body[:c.come]) || cap(got) != c.room {
			t.Errorf("%d of %d bytes while %d are lent: got %d in a room of %d, %v; want a room of %d", c.come, c.size, c.lent, len(got), cap(got), err, c.room)
		}
		if l.lent.Load() != c.lent {
			t.Errorf("%d bytes are lent behind, want %d", l.lent.Load(), c.lent)
		}
	}
}
