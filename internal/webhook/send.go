package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"github.com/pawlq/pawl/internal/task"
)

// Headers of Standard Webhooks.
const (
	headerID        = "webhook-id"
	headerTimestamp = "webhook-timestamp"
	headerSignature = "webhook-signature"
)

const (
	// attemptTime bounds an attempt, from name resolution to the end of the response.
	attemptTime = 10 * time.Second
	// maxAnswer bounds how much is read of a response body, maxAnswerHead its headers.
	maxAnswer     = 4 << 10
	maxAnswerHead = 32 << 10
	// maxError bounds the description of a failure.
	maxError = 1 << 10
	// maxRetryAfter bounds how long a receiver may ask us to wait.
	maxRetryAfter = time.Hour
)

// Request is one attempt to send a notification.
type Request struct {
	// Namespace is that of the webhook: it decides which networks the request may go to.
	Namespace string
	URL       string
	Secrets   []string // each adds a signature
	ID        string   // the same for every attempt
	Body      []byte
}

// Outcome is the outcome of an attempt.
type Outcome struct {
	Status     int           // of HTTP; 0: no response
	Error      string        // "": it was delivered
	Gone       bool          // the receiver wants no more notifications
	RetryAfter time.Duration // how long the receiver asked us to wait; 0: it did not
	Took       time.Duration
}

// Delivered reports whether the receiver accepted the notification.
func (o Outcome) Delivered() bool { return o.Error == "" }

// Config holds the settings of a Sender.
type Config struct {
	// Allow are the networks that notifications of each namespace may go to besides the public internet.
	Allow   Networks
	Version string // of this program
	// Resolver resolves names, Roots are the trusted authorities; nil: the system's.
	Resolver *net.Resolver
	Roots    *x509.CertPool
	// Dial, for tests, connects instead of the network, with no address refused; nil: the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Sender sends notifications. Its methods may be called from any goroutine.
type Sender struct {
	cfg    Config
	client *http.Client
}

// NewSender returns a sender.
func NewSender(cfg Config) *Sender {
	s := &Sender{cfg: cfg}
	s.client = &http.Client{
		// No proxy, which would go where this process must not. No keep-alive: the address is checked for each new connection.
		Transport: &http.Transport{DialContext: s.dial, DisableKeepAlives: true, DisableCompression: true,
			MaxResponseHeaderBytes: maxAnswerHead, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.Roots}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s
}

// Check rejects a URL by its form, as CheckURL does.
func (s *Sender) Check(field, ns, text string) error { return CheckURL(field, ns, text, s.cfg.Allow) }

// attempt is what dial must know about the request, and tells about it.
type attempt struct {
	secure   bool
	allow    networks
	internal atomic.Bool // an address of an allowed network was dialed
}

type attemptKey struct{}

// dial connects to a permitted address. The address is checked after name resolution, just before the socket connects, so that a
// name cannot resolve to one address for the check and to another for the connection.
func (s *Sender) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s.cfg.Dial != nil {
		return s.cfg.Dial(ctx, network, address)
	}
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	d := net.Dialer{Resolver: s.cfg.Resolver, ControlContext: func(_ context.Context, _, at string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(at)
		if err != nil {
			return forbiddenError{fmt.Errorf("%q is not an address", at)}
		}
		if err := checkAddress(to.Addr(), a.secure, a.allow); err != nil {
			return forbiddenError{err}
		}
		if a.allow.contains(plain(to.Addr())) {
			a.internal.Store(true)
		}
		return nil
	}}
	return d.DialContext(ctx, network, address)
}

// forbiddenError is the error when nothing was sent because the address is not permitted.
type forbiddenError struct{ error }

// Send makes one attempt, of up to 10 s. 2xx is success; redirects are not followed.
func (s *Sender) Send(ctx context.Context, l Request) (o Outcome) {
	began := time.Now()
	defer func() { o.Took = time.Since(began) }()
	a := &attempt{allow: s.cfg.Allow.of(l.Namespace)}
	if err := checkURL("url", l.URL, a.allow); err != nil {
		return Outcome{Error: clean(err.Error())}
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	scheme, _, _ := strings.Cut(l.URL, ":")
	a.secure = strings.EqualFold(scheme, "https")
	ctx = context.WithValue(ctx, attemptKey{}, a)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL, bytes.NewReader(l.Body))
	if err != nil {
		return Outcome{Error: "the request can't be made"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Pawl/"+s.cfg.Version)
	req.Header.Set(headerID, l.ID)
	req.Header.Set(headerTimestamp, strconv.FormatInt(began.Unix(), 10))
	req.Header.Set(headerSignature, signatures(l.Secrets, l.ID, began, l.Body))
	resp, err := s.client.Do(req)
	if err != nil {
		return Outcome{Error: reason(ctx, err, a.internal.Load())}
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // what could be read is good enough
	if a.internal.Load() {
		body = nil // not everyone who may see webhooks may see it
	}
	return outcomeOf(resp, body, began)
}

// outcomeOf returns the outcome that a response stands for.
func outcomeOf(resp *http.Response, body []byte, now time.Time) Outcome {
	o := Outcome{Status: resp.StatusCode}
	if o.Status >= 200 && o.Status < 300 {
		return o
	}
	o.Error = fmt.Sprintf("the receiver answered %d %s", o.Status, http.StatusText(o.Status))
	switch o.Status {
	case http.StatusGone:
		o.Gone = true
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		o.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), now)
	}
	if o.Status >= 300 && o.Status < 400 {
		o.Error += " (redirects are not followed)"
	}
	if text := clean(string(body)); text != "" {
		o.Error = task.Cut(o.Error+": "+text, maxError)
	}
	return o
}

// retryAfter parses how long a receiver asks us to wait: seconds, or a date.
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// reason describes why there was no response, without the URL, which may be a secret, and without anything that an internal receiver sent:
// a banner of another protocol, or the names in its certificate.
func reason(ctx context.Context, err error, internal bool) string {
	if no, ok := errors.AsType[forbiddenError](err); ok {
		return clean(no.Error())
	}
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %v", attemptTime)
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	if _, ofNetwork := errors.AsType[*net.OpError](err); internal && !ofNetwork && !errors.Is(err, context.Canceled) {
		if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
			return "the receiver's certificate can't be verified"
		}
		return "the receiver does not answer as a web server"
	}
	return clean(err.Error())
}

// clean makes foreign text a single line without characters that could control a terminal.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return task.Cut(strings.Join(strings.Fields(s), " "), maxError)
}
