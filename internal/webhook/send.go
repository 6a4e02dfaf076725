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
	// attemptTime bounds an attempt, from the name to the end of the answer.
	attemptTime = 10 * time.Second
	// maxAnswer bounds what is read of an answer's body, maxAnswerHead its headers.
	maxAnswer     = 4 << 10
	maxAnswerHead = 32 << 10
	// maxError bounds what is told of a failure.
	maxError = 1 << 10
	// maxRetryAfter bounds for how long a receiver may ask to be left alone.
	maxRetryAfter = time.Hour
)

// Letter is one attempt to send a notice.
type Request struct {
	URL     string
	Secrets []string // each signs
	ID      string   // the same at each attempt
	Body    []byte
}

// Outcome is what came of an attempt.
type Outcome struct {
	Status     int           // of HTTP; 0: there was no answer
	Error      string        // "": it was delivered
	Gone       bool          // the receiver wants no more
	RetryAfter time.Duration // for which the receiver wants to be left alone; 0: it did not say
	Took       time.Duration
}

// Delivered says whether the receiver has taken the notice.
func (o Outcome) Delivered() bool { return o.Error == "" }

// Config is what a Sender is made of.
type Config struct {
	// Allow are the networks that notices may go to beside the public internet.
	Allow   Networks
	Version string // of this program
	// Resolver finds addresses, Roots are whose certificates are believed; nil: those of the system.
	Resolver *net.Resolver
	Roots    *x509.CertPool
	// Dial connects, in place of the network, with nothing refused: for tests. Nil: the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Sender sends notices. Its methods may be called from any goroutine.
type Sender struct {
	cfg    Config
	client *http.Client
}

// NewSender makes a sender.
func NewSender(cfg Config) *Sender {
	s := &Sender{cfg: cfg}
	s.client = &http.Client{
		// No proxy: it would be asked to go where this must not. No connection is kept: each is looked at when it is made.
		Transport: &http.Transport{DialContext: s.dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxAnswerHead,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.Roots}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s
}

// Check refuses an address by its form, as CheckURL.
func (s *Sender) Check(field, text string) error { return CheckURL(field, text, s.cfg.Allow) }

type schemeKey struct{}

// dial connects to an address that notices may go to. It is looked at behind the name, when the socket is about to connect, so that a
// name can't lead elsewhere than where it led when it was looked at.
func (s *Sender) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s.cfg.Dial != nil {
		return s.cfg.Dial(ctx, network, address)
	}
	secure := ctx.Value(schemeKey{}) == "https"
	d := net.Dialer{Resolver: s.cfg.Resolver, ControlContext: func(_ context.Context, _, at string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(at)
		if err != nil {
			return refused{fmt.Errorf("%q is no address", at)}
		}
		if err := permitted(to.Addr(), secure, s.cfg.Allow); err != nil {
			return refused{err}
		}
		return nil
	}}
	return d.DialContext(ctx, network, address)
}

// refused says that nothing was sent, since it must not go there.
type refused struct{ error }

// Send makes one attempt, for up to 10 s. 2xx is success; redirects are not followed.
func (s *Sender) Send(ctx context.Context, l Request) (o Outcome) {
	began := time.Now()
	defer func() { o.Took = time.Since(began) }()
	if err := s.Check("url", l.URL); err != nil {
		return Outcome{Error: clean(err.Error())}
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	scheme, _, _ := strings.Cut(l.URL, ":")
	ctx = context.WithValue(ctx, schemeKey{}, strings.ToLower(scheme))
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
		return Outcome{Error: reason(ctx, err)}
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // what could be read is good enough
	return judge(resp, body, began)
}

// judge says what an answer means.
func judge(resp *http.Response, body []byte, now time.Time) Outcome {
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
	if said := clean(string(body)); said != "" {
		o.Error = task.Cut(o.Error+": "+said, maxError)
	}
	return o
}

// retryAfter reads how long a receiver wants to be left alone: seconds, or a date.
func retryAfter(said string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(said, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(said)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// reason says why there was no answer, without the address: it may be a secret.
func reason(ctx context.Context, err error) string {
	if no, ok := errors.AsType[refused](err); ok {
		return clean(no.Error())
	}
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %v", attemptTime)
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	return clean(err.Error())
}

// clean makes one line of what others said, without what could move a terminal.
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
