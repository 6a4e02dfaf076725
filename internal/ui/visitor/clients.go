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

func NewClients(dial func(context.Context, string) (net.Conn, error), log *slog.Logger) *Clients {
	return &Clients{dial: dial, log: log, known: map[Visitor]*conn{}}
}

// Client returns the client for a visitor's request. leave must be called when the request has been answered.
func (v *Clients) Client(who Visitor) (client *pawl.Client, leave func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, nil, pawltype.ErrClosed
	}
	s := v.known[who]
	if s == nil {
		c, err := pawl.Dial(who.host, pawl.DialOptions{Dialer: v.dial, Token: who.Token, Namespace: who.Namespace, NoRouting: true, Logger: v.log, RetryFor: retryFor})
		if err != nil {
			return nil, nil, err
		}
		v.makeRoom()
		s = &conn{client: c}
		v.known[who] = s
	}
	s.users++
	s.last = time.Now()
	return s.client, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		s.users--
	}, nil
}

// retryFor is how long a page waits for a shard without a leader before it shows an error.
const retryFor = 5 * time.Second

// makeRoom closes the client that has been unused longest, if there are too many.
func (v *Clients) makeRoom() {
	if len(v.known) < maxVisitors {
		return
	}
	var oldest Visitor
	var away *conn
	for who, s := range v.known {
		if s.users == 0 && (away == nil || s.last.Before(away.last)) {
			oldest, away = who, s
		}
	}
	if away != nil {
		delete(v.known, oldest)
		_ = away.client.Close()
	}
}

func (v *Clients) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	var all []error
	for who, s := range v.known {
		all = append(all, s.client.Close())
		delete(v.known, who)
	}
	return errors.Join(all...)
}
