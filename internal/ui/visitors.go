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

// maxVisitors is how many connections are kept for visitors to come; one of a visitor that is here is never closed.
const maxVisitors = 32

// nameCookie holds the name by which a visitor wants to be known in the audit.
const nameCookie = "pawl-name"

// visitor is as whom a request calls the API.
type visitor struct {
	host string // from which it came
	name string // as they call themselves
	// token is what the request shows; "": nothing.
	token string
	// namespace is that of the address; "": that of the token.
	namespace string
}

// visitors are the clients of the API, one for each visitor.
type visitors struct {
	dial func(ctx context.Context, from string) (net.Conn, error)
	log  *slog.Logger

	mu     sync.Mutex
	known  map[visitor]*visitorClient
	closed bool
}

// visitorClient is the client of a visitor.
type visitorClient struct {
	client *pawl.Client
	users  int // requests that use it now
	last   time.Time
}

func newVisitors(dial func(context.Context, string) (net.Conn, error), log *slog.Logger) *visitors {
	return &visitors{dial: dial, log: log, known: map[visitor]*visitorClient{}}
}

// of is the one place that decides as whom a request calls the API.
func of(r *http.Request) visitor {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = "local"
	}
	return visitor{host: host, name: nameOf(r), token: tokenOf(r), namespace: spaceOf(r)}
}

// nameOf is how a visitor calls themselves. A cookie can hold anything: what the API would refuse is left out.
func nameOf(r *http.Request) string {
	return textCookie(r, nameCookie)
}

// textCookie is a text that a cookie holds, if the API would take it in a header.
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

// client gives the client to answer a request of a visitor with. leave is called when it is answered.
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

// as calls the API once as another visitor than that of the request.
func (v *visit) as(who visitor, call func(admin.Client) error) error {
	client, leave, err := v.visitors.client(who)
	if err != nil {
		return err
	}
	defer leave()
	return call(admin.New(client).WithActor(who.name))
}

// in is the visitor in a namespace; "": in that of their token.
func (v *visit) in(namespace string) visitor {
	who := of(v.r)
	who.namespace = namespace
	return who
}

// known asks the API whether it lets a visitor in.
func (v *visit) known(who visitor) error {
	return v.as(who, func(a admin.Client) error {
		_, err := a.Access().WhoAmI(v.ctx)
		return err
	})
}

// retryFor is how long a page waits for a shard that has no leader, before it says so.
const retryFor = 5 * time.Second

// makeRoom lets the visitor go who has been away longest, if there are many.
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
