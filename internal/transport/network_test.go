package transport

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

// network connects nodes by pipes in memory. Addresses are just names.
type network struct {
	mu     sync.Mutex
	at     map[string]*bufconn.Listener
	cables map[string]*cable
}

// cable is the path from everyone to one address. Its fields are guarded by its lock.
type cable struct {
	mu     sync.Mutex
	silent bool           // nothing passes any more, and nobody is notified
	rate   int            // bytes per second that a connection carries to the address; 0: unlimited
	spoil  func(b []byte) // modifies bytes on their way to the address
	conns  map[*wire]bool // to be cut
	dials  int
}

func newNetwork() *network {
	return &network{at: map[string]*bufconn.Listener{}, cables: map[string]*cable{}}
}

func (n *network) listen(address string) net.Listener {
	l := bufconn.Listen(256 << 10)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[address] = l
	return l
}

func (n *network) cable(address string) *cable {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.cables[address]
	if c == nil {
		c = &cable{conns: map[*wire]bool{}}
		n.cables[address] = c
	}
	return c
}

func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	c := n.cable(address)
	n.mu.Lock()
	l := n.at[address]
	n.mu.Unlock()
	c.mu.Lock()
	c.dials++
	silent := c.silent
	c.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if l == nil {
		return nil, fmt.Errorf("dial %q: connection refused", address)
	}
	conn, err := l.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: conn, c: c, closed: make(chan struct{})}
	c.mu.Lock()
	c.conns[w] = true
	c.mu.Unlock()
	return w, nil
}

// silence drops all traffic from now on, in both directions, or stops doing so.
func (c *cable) silence(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = on
}

func (c *cable) slow(rate int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rate = rate
}

func (c *cable) damage(spoil func([]byte)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spoil = spoil
}

// cut closes all connections.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.conns {
		_ = w.Conn.Close()
	}
}

func (c *cable) dialled() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dials
}

// wire is the dialling end of a connection.
type wire struct {
	net.Conn
	c      *cable
	closed chan struct{}
	lost   bool // something was dropped: what follows would make no sense
}

func (w *wire) Read(b []byte) (int, error) {
	for {
		n, err := w.Conn.Read(b)
		w.c.mu.Lock()
		w.lost = w.lost || w.c.silent
		lost := w.lost
		w.c.mu.Unlock()
		if !lost {
			return n, err
		}
		if err != nil { // not even this gets through
			<-w.closed
			return 0, net.ErrClosed
		}
	}
}

func (w *wire) Write(b []byte) (int, error) {
	w.c.mu.Lock()
	rate, spoil := w.c.rate, w.c.spoil
	w.lost = w.lost || w.c.silent
	lost := w.lost
	w.c.mu.Unlock()
	if lost {
		return len(b), nil
	}
	if rate > 0 {
		select {
		case <-time.After(time.Duration(len(b)) * time.Second / time.Duration(rate)):
		case <-w.closed:
			return 0, net.ErrClosed
		}
	}
	if spoil != nil {
		b = append([]byte(nil), b...)
		spoil(b)
	}
	return w.Conn.Write(b)
}

func (w *wire) Close() error {
	w.c.mu.Lock()
	if w.c.conns[w] {
		delete(w.c.conns, w)
		close(w.closed)
	}
	lost := w.lost || w.c.silent
	w.c.mu.Unlock()
	if lost { // the other side isn't notified
		return w.Conn.SetReadDeadline(time.Unix(1, 0))
	}
	return w.Conn.Close()
}
