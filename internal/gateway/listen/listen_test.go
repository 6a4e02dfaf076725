package listen

import (
	"errors"
	"io"
	"net"
	"testing"
)

// The first bytes of a connection, which were examined, are read again first, in pieces of any size.
func TestPeekedBytesAreReplayed(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	go func() { _, _ = there.Write([]byte("cd")); there.Close() }()
	g := &sniffedConn{Conn: here, head: []byte("ab")}
	var got []byte
	for b := make([]byte, 1); ; {
		n, err := g.Read(b)
		if got = append(got, b[:n]...); err != nil {
			break
		}
	}
	if string(got) != "abcd" {
		t.Errorf("read %q, want abcd", got)
	}
	if c := CertificateOfREST(withConn(t.Context(), here)); c != nil {
		t.Errorf("a connection without a client certificate has %v", c)
	}
}

// A connection that no server accepts any more is closed.
func TestUnacceptedConnectionsClose(t *testing.T) {
	for what, end := range map[string]func(closed chan struct{}, p *connQueue){
		"the listener": func(closed chan struct{}, _ *connQueue) { close(closed) }, "the server": func(_ chan struct{}, p *connQueue) {
			_ = p.Close()
		},
	} {
		closed := make(chan struct{})
		p := newConnQueue(nil, closed)
		here, there := net.Pipe()
		end(closed, p)
		p.deliver(there)
		if _, err := here.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("after %s closed: read error %v, want EOF", what, err)
		}
		if _, err := p.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after %s closed: Accept = %v, want net.ErrClosed", what, err)
		}
	}
}
