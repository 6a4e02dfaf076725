package visitor

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"
)

// maxVisitors is how many unused clients are kept, and maxIdle how long, for visitors who may return.
const (
	maxVisitors = 32
	maxIdle     = 5 * time.Minute
)

// Clients holds the API clients, one per visitor.
type Clients struct {
	dial func(ctx context.Context, from string) (net.Conn, error)
	log  *slog.Logger

	mu     sync.Mutex
	known  map[Visitor]*conn
	sweep  *time.Timer // while there are unused clients
	closed bool
}

// conn is a visitor's client.
type conn struct {
	client *pawl.Client
	users  int       // number of requests using it
	last   time.Time // when the last one ended
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
		client, err := pawl.Dial(who.host, pawl.DialOptions{Dialer: c.dial, Token: who.Token, Namespace: who.Namespace, NoRouting: true,
			Logger: c.log, RetryFor: retryFor})
		if err != nil {
			return nil, nil, err
		}
		s = &conn{client: client}
		c.known[who] = s
	}
	s.users++
	return s.client, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		s.users--
		s.last = time.Now()
		c.closeUnused()
	}, nil
}

// retryFor is how long a page waits for a shard without a leader before it shows an error.
const retryFor = 5 * time.Second

// closeUnused closes the clients that have been unused for maxIdle, and those that have been unused longest if there
// are more than maxVisitors.
func (c *Clients) closeUnused() {
	var unused []Visitor
	for who, s := range c.known {
		if s.users == 0 {
			unused = append(unused, who)
		}
	}
	slices.SortFunc(unused, func(a, b Visitor) int { return c.known[a].last.Compare(c.known[b].last) })
	for len(unused) > maxVisitors || len(unused) > 0 && time.Since(c.known[unused[0]].last) >= maxIdle {
		_ = c.known[unused[0]].client.Close()
		delete(c.known, unused[0])
		unused = unused[1:]
	}
	if len(unused) > 0 && c.sweep == nil && !c.closed {
		c.sweep = time.AfterFunc(maxIdle-time.Since(c.known[unused[0]].last), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.sweep = nil
			c.closeUnused()
		})
	}
}

// Close closes all clients, also those in use. Client fails from then on.
func (c *Clients) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.sweep != nil {
		c.sweep.Stop()
	}
	var all []error
	for who, s := range c.known {
		all = append(all, s.client.Close())
		delete(c.known, who)
	}
	return errors.Join(all...)
}
