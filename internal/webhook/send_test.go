package webhook

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc/test/bufconn"
)

// serve returns a sender that reaches an in-memory receiver whatever the host.
func serve(t *testing.T, h http.HandlerFunc) *Sender {
	pipe := bufconn.Listen(64 << 10)
	srv := &http.Server{Handler: h}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(pipe) })
	t.Cleanup(func() {
		_ = srv.Close()
		serving.Wait()
	})
	return NewSender(Config{Version: "1", Allow: Networks{"default": {netip.MustParsePrefix("192.0.2.0/24")}},
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }})
}

func letter(url string) Request {
	return Request{Namespace: "default", URL: url, Secrets: []string{NewSecret()}, ID: "msg_1", Body: []byte(`{}`)}
}

func TestSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, c := range []struct {
			name  string
			serve http.HandlerFunc
			want  Outcome
			error string
		}{
			{"ok", func(w http.ResponseWriter, r *http.Request) {
				if r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" || r.UserAgent() != "Pawl/1" ||
					r.Header.Get("Authorization") != "" {
					t.Errorf("receiver got %s with headers %v", r.Method, r.Header)
				}
			}, Outcome{Status: 200}, ""},
			{"accepted", status(202), Outcome{Status: 202}, ""},
			{"bad", status(400), Outcome{Status: 400}, "the receiver answered 400 Bad Request"},
			{"gone", status(410), Outcome{Status: 410, Gone: true}, "the receiver answered 410 Gone"},
			{"redirect", func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://169.254.169.254/latest", http.StatusTemporaryRedirect)
			}, Outcome{Status: 307}, "redirects are not followed"},
			{"busy", busy(429, "120"), Outcome{Status: 429, RetryAfter: 2 * time.Minute}, "429"},
			{"busy until", busy(503, now.Add(10*time.Minute).UTC().Format(http.TimeFormat)),
				Outcome{Status: 503, RetryAfter: 10 * time.Minute}, "503"},
			{"busy until next year", busy(429, now.AddDate(1, 0, 0).UTC().Format(http.TimeFormat)),
				Outcome{Status: 429, RetryAfter: time.Hour}, "429"},
			{"busy until yesterday", busy(429, now.AddDate(0, 0, -1).UTC().Format(http.TimeFormat)), Outcome{Status: 429}, "429"},
			{"busy for long", busy(503, "999999999"), Outcome{Status: 503, RetryAfter: time.Hour}, "503"},
			{"busy, it says nonsense", busy(503, "-5"), Outcome{Status: 503}, "503"},
			{"Retry-After of another status", busy(500, "120"), Outcome{Status: 500}, "500"},
			{"says much", func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(500)
				_, _ = io.WriteString(w, "out of order\x1b[31m\r\n\x00\xff"+strings.Repeat("x", 1<<20))
			}, Outcome{Status: 500}, "500 Internal Server Error: out of order[31m xxx"},
			{"hangs", func(_ http.ResponseWriter, r *http.Request) { hang(r) }, Outcome{Took: 10 * time.Second}, "no answer within 10s"},
			{"hangs within its body", func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(500)
				_ = http.NewResponseController(w).Flush()
				hang(r)
			}, Outcome{Status: 500, Took: 10 * time.Second}, "500"},
			{"ends", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Outcome{}, "EOF"},
		} {
			s := serve(t, c.serve)
			got := s.Send(t.Context(), letter("http://receiver.test/secret?token=secret"))
			if (got.Error == "") != (c.error == "") || !strings.Contains(got.Error, c.error) || strings.Contains(got.Error, "secret") ||
				len(got.Error) > maxError || strings.ContainsAny(got.Error, "\x1b\r\n\x00") {
				t.Errorf("%s: error %q, want %q", c.name, got.Error, c.error)
			}
			if got.Error = ""; got != c.want {
				t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
			}
		}
	})
}

// hang waits until the caller has left, which a server notices once it has read the request.
func hang(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func busy(code int, after string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", after)
		w.WriteHeader(code)
	}
}

// names is a DNS server that answers each query with the next of its addresses, over and over.
type names struct {
	asked   atomic.Int64
	answers []string
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go n.serve(there)
		return here, nil
	}}
}

func (n *names) serve(c net.Conn) {
	defer c.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(b); err != nil {
			return
		}
		m.Response, m.Additionals = true, nil
		q := m.Questions[0]
		if a := netip.MustParseAddr(n.answers[int(n.asked.Load())%len(n.answers)]); q.Type == dnsmessage.TypeA && a.Is4() {
			n.asked.Add(1)
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
				Body: &dnsmessage.AResource{A: a.As4()}}}
		} else if q.Type == dnsmessage.TypeAAAA && a.Is6() {
			n.asked.Add(1)
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
				Body: &dnsmessage.AAAAResource{AAAA: a.As16()}}}
		}
		b, err := m.Pack()
		if err != nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
			return
		}
	}
}

// The address behind a name is checked at each dial: a name that first resolves to a permitted address and then to a forbidden one
// is refused then.
func TestAddressesAreCheckedAtDial(t *testing.T) {
	var reached atomic.Int64
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	port := srv.Listener.Addr().(*net.TCPAddr).Port
	send := func(n *names, allow ...string) Outcome {
		s := NewSender(Config{Allow: networksOf(t, allow...), Resolver: n.resolver(), Roots: roots})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return s.Send(ctx, letter(fmt.Sprintf("https://example.com:%d/hook", port)))
	}
	for _, answer := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "::1", "::ffff:127.0.0.1", "fd00::1",
		"64:ff9b::7f00:1", "0.0.0.0"} {
		if o := send(&names{answers: []string{answer}}); o.Delivered() ||
			!strings.Contains(o.Error, "not an address of the public internet") {
			t.Errorf("request to a name that resolves to %s: %+v, want a refusal", answer, o)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Fatalf("the receiver was reached %d times, want none", n)
	}
	if o := send(&names{answers: []string{"127.0.0.1"}}, "127.0.0.0/8"); !o.Delivered() || reached.Load() != 1 {
		t.Errorf("request to a name in an allowed network: %+v, want delivered", o)
	}
	// It first resolves into the allowed network, and then to another address of the same machine.
	rebinding := &names{answers: []string{"127.0.0.1", "127.0.0.2"}}
	s := NewSender(Config{Allow: networksOf(t, "127.0.0.1/32"), Resolver: rebinding.resolver(), Roots: roots})
	to := letter(fmt.Sprintf("https://example.com:%d/hook", port))
	if o := s.Send(t.Context(), to); !o.Delivered() {
		t.Errorf("first request, to the allowed address: %+v, want delivered", o)
	}
	if o := s.Send(t.Context(), to); o.Delivered() || !strings.Contains(o.Error, "127.0.0.2 is not an address of the public internet") {
		t.Errorf("second request, to another address: %+v, want a refusal", o)
	}
	if n := reached.Load(); n != 2 {
		t.Errorf("the receiver was reached %d times, want 2", n)
	}
}

// What a receiver in an allowed network answers is not shown: it may be a service that was never meant to be reached by those who see
// webhooks. A namespace can't reach the networks of another.
func TestAnswersOfInternalReceivers(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "the secret of this service")
	}))
	defer srv.Close()
	s := NewSender(Config{Allow: networksOf(t, "127.0.0.0/8")})
	if o := s.Send(t.Context(), letter(srv.URL)); o.Status != 500 || o.Error != "the receiver answered 500 Internal Server Error" {
		t.Errorf("an error of an internal receiver: %+v", o)
	}
	other := letter(srv.URL)
	other.Namespace = "shop"
	if o := s.Send(t.Context(), other); o.Status != 0 || !strings.Contains(o.Error, "https") {
		t.Errorf("a request of another namespace: %+v, want a refusal", o)
	}
}

// Nor are the names in its certificate, or what it says in another protocol. That it can't be reached is.
func TestErrorsOfInternalReceivers(t *testing.T) {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	banner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer banner.Close()
	go func() {
		for {
			c, err := banner.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "220 mail.internal ESMTP\r\n")
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	s := NewSender(Config{Allow: networksOf(t, "127.0.0.0/8")})
	for url, want := range map[string]string{
		srv.URL:                             "the receiver's certificate can't be verified",
		"http://" + banner.Addr().String():  "the receiver does not answer as a web server",
		"https://" + banner.Addr().String(): "the receiver does not answer as a web server",
		"http://" + closed.Addr().String():  "dial tcp " + closed.Addr().String() + ": connect: connection refused",
	} {
		if o := s.Send(t.Context(), letter(url)); o.Error != want {
			t.Errorf("%s: %q, want %q", url, o.Error, want)
		}
	}
}

// Proxies from the environment are not used: they would connect to addresses that the sender must not reach.
func TestNoProxy(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	asked := ""
	s := NewSender(Config{Allow: networksOf(t, "192.0.2.0/24"), Dial: func(_ context.Context, _, address string) (net.Conn, error) {
		asked = address
		return nil, errors.New("no way")
	}})
	if o := s.Send(t.Context(), letter("http://example.com/x")); o.Error != "no way" || asked != "example.com:80" {
		t.Errorf("Send = %+v, dialed %s; want \"no way\" and example.com:80", o, asked)
	}
}

// Without TLS, a name may lead only into the allowed networks, and a URL of a forbidden form leads nowhere, even if it was stored before.
func TestForbiddenRequests(t *testing.T) {
	n := &names{answers: []string{"93.184.215.14"}}
	s := NewSender(Config{Allow: networksOf(t, "10.0.0.0/8"), Resolver: n.resolver()})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if o := s.Send(ctx, letter("http://example.com/hook")); o.Delivered() || !strings.Contains(o.Error, "only https may go there") {
		t.Errorf("request without TLS to the public internet: %+v, want a refusal", o)
	}
	s = NewSender(Config{Dial: func(_ context.Context, _, address string) (net.Conn, error) {
		t.Errorf("%s was dialed", address)
		return nil, errors.New("no way")
	}})
	for url, want := range map[string]string{"ftp://example.com/": "must begin with https", "https://u:p@example.com/": "user or password",
		"https://127.1/": "neither a name nor an address", "https://example.com:0/": "not between 1 and 65535",
		"https:example.com": "no host", "https://127.0.0.1/": "not an address of the public internet"} {
		if o := s.Send(t.Context(), letter(url)); o.Delivered() || !strings.Contains(o.Error, want) {
			t.Errorf("request to %s: %+v, want a refusal that says %q", url, o, want)
		}
	}
}
