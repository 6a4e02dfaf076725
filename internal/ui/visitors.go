package ui

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

// maxVisitors is the number of clients to keep for visitors who may return. One that is in use is never closed.
const maxVisitors = 32

// nameCookie holds the name that the audit log shows for a visitor.
const nameCookie = "pawl-name"

// visitor identifies as whom a request calls the API.
type visitor struct {
	host string // remote host
	name string // self-chosen
	// token is the one in the request; "": none.
	token string
	// namespace is the one in the URL; "": the token's.
	namespace string
}

// visitors holds the API clients, one per visitor.
type visitors struct {
	dial func(ctx context.Context, from string) (net.Conn, error)
	log  *slog.Logger

	mu     sync.Mutex
	known  map[visitor]*visitorClient
	closed bool
}

// visitorClient is a visitor's client.
type visitorClient struct {
	client *pawl.Client
	users  int // number of requests using it
	last   time.Time
}

func newVisitors(dial func(context.Context, string) (net.Conn, error), log *slog.Logger) *visitors {
	return &visitors{dial: dial, log: log, known: map[visitor]*visitorClient{}}
}

// visitorOf is the one place that decides as whom a request calls the API.
func visitorOf(r *http.Request) visitor {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = "local"
	}
	return visitor{host: host, name: nameOf(r), token: tokenOf(r), namespace: spaceOf(r)}
}

// nameOf returns a visitor's self-chosen name. A cookie can contain anything: what the API would reject is ignored.
func nameOf(r *http.Request) string {
	return textCookie(r, nameCookie)
}

// textCookie returns the text in a cookie, if the API would accept it in a header.
func textCookie(r *http.Request, cookie string) string {
	c, err := r.Cookie(cookie)
	if err != nil {
		return ""
	}
	text, err := url.QueryUnescape(c.Value)
	if err != nil || checkOwnName(text) != nil {
		return ""
	}
	return text
}

// client returns the client for a visitor's request. leave must be called when the request has been answered.
func (v *visitors) client(who visitor) (client *pawl.Client, leave func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, nil, pawltype.ErrClosed
	}
	s := v.known[who]
	if s == nil {
		c, err := pawl.Dial(who.host, pawl.DialOptions{Dialer: v.dial, Token: who.token, Namespace: who.namespace, NoRouting: true, Logger: v.log, RetryFor: retryFor})
		if err != nil {
			return nil, nil, err
		}
		v.makeRoom()
		s = &visitorClient{client: c}
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

// as calls the API once as another visitor than the request's.
func (v *visit) as(who visitor, call func(admin.Client) error) error {
	client, leave, err := v.visitors.client(who)
	if err != nil {
		return err
	}
	defer leave()
	return call(admin.New(client).WithActor(who.name))
}

// in returns the visitor in another namespace; "": that of the token.
func (v *visit) in(namespace string) visitor {
	who := visitorOf(v.r)
	who.namespace = namespace
	return who
}

// known checks whether the API accepts a visitor.
func (v *visit) known(who visitor) error {
	return v.as(who, func(a admin.Client) error {
		_, err := a.Access().WhoAmI(v.ctx)
		return err
	})
}

// retryFor is how long a page waits for a shard without a leader before it shows an error.
const retryFor = 5 * time.Second

// makeRoom closes the client that has been unused longest, if there are too many.
func (v *visitors) makeRoom() {
	if len(v.known) < maxVisitors {
		return
	}
	var oldest visitor
	var away *visitorClient
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

func (v *visitors) close() error {
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
