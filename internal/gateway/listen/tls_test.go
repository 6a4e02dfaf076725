package listen

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"
)

// Over TCP, a plaintext client receives the error response and EOF while the server still reads.
func TestPlaintextOverTCP(t *testing.T) {
	mute, far := net.Pipe()
	go func() {
		newAcceptor(Config{Logger: slog.New(slog.DiscardHandler)}).failed(&sniffedConn{Conn: far, raw: far},
			tls.RecordHeaderError{RecordHeader: [5]byte{'G', 'E', 'T', ' ', '/'}})
		far.Close()
	}()
	if answer, err := io.ReadAll(mute); len(answer) > 0 || err != nil {
		t.Errorf("client that already used TLS got %q, %v, want nothing", answer, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	d := newAcceptor(Config{Logger: slog.New(slog.DiscardHandler)})
	failed := make(chan struct{})
	go func() {
		defer close(failed)
		d.failed(&sniffedConn{Conn: there, raw: there, acceptor: d}, tls.RecordHeaderError{Conn: there, RecordHeader: [5]byte{'G',
			'E', 'T', ' ', '/'}})
	}()
	_ = here.SetReadDeadline(time.Now().Add(time.Minute))
	answer, err := io.ReadAll(here) // returns although the connection was not closed
	if err != nil || !bytes.Equal(answer, plainRefusal) {
		t.Errorf("plaintext client got %q, %v", answer, err)
	}
	here.Close()
	<-failed
}

// A plaintext HTTP request begins with capital letters.
func TestRequestsBeginWithCapitals(t *testing.T) {
	for head, want := range map[string]bool{"GET /": true, "AZA  ": true, "ZAZ  ": true, "@ET  ": false, "G[T  ": false, "GEt  ": false,
		"\x16\x03\x01  ": false} {
		if got := startsHTTP([5]byte([]byte(head))); got != want {
			t.Errorf("startsHTTP(%q) = %t", head, got)
		}
	}
}
