package visitor

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"
)

// maxVisitors is the number of clients to keep for visitors who may return. One that is in use is never closed.
const maxVisitors = 32

// Clients holds the API clients, one per visitor.
type Clients struct {
	dial func(ctx context.Context, from string) (net.Conn, error)
	log  *slog.Logger

	mu     sync.Mutex
	known  map[Visitor]*conn
	closed bool
}

// conn is a visitor's client.
type conn struct {
	client *pawl.Client
	users  int // number of requests using it
	last   time.Time
}

// NewClients returns no clients yet. dial connects to the API on behalf of a remote host.
func NewClients(dial func(context.Context, string) (net.Conn, error), log *slog.Logger) *Clients {
	return &Clients{dial: dial, log: log, known: map[Visitor]*conn{}}
}

// Client returns the client for a visitor's request. leave must be called when the request has been answered.
func (c *Clients) Client(who Visitor) (client *pawl.Client, leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, pawltype.ErrClosed
	}
	s := c.known[who]
	if s == nil {
		client, err := pawl.Dial(who.host, pawl.DialOptions{Dialer: c.dial, Token: who.Token, Namespace: who.Namespace, NoRouting: true, Logger: c.log, RetryFor: retryFor})
		if err != nil {
			return nil, nil, err
		}
		c.makeRoom()
		s = &conn{client: client}
		c.known[who] = s
	}
	s.users++
	s.last = time.Now()
	return s.client, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		s.users--
	}, nil
}

// retryFor is how long a page waits for a shard without a leader before it shows an error.
const retryFor = 5 * time.Second

// makeRoom closes the client that has been unused longest, if there are too many.
func (c *Clients) makeRoom() {
	if len(c.known) < maxVisitors {
		return
	}
	var oldest Visitor
	var away *conn
	for who, s := range c.known {
		if s.users == 0 && (away == nil || s.last.Before(away.last)) {
			oldest, away = who, s
		}
	}
	if away != nil {
		delete(c.known, oldest)
		_ = away.client.Close()
	}
}

// Close closes all clients, also those in use. Client fails from then on.
func (c *Clients) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var all []error
	for who, s := range c.known {
		all = append(all, s.client.Close())
		delete(c.known, who)
	}
	return errors.Join(all...)
}
