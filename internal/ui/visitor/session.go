package visitor

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/ui/format"
	"github.com/pawlq/pawl/pawltype"
)

// A session is a cookie with the visitor's token and two times, encrypted by a key that the token's hash gives and all nodes know: the
// servers keep only which sessions were logged out. Browsers send the cookie only to this host, over HTTPS or to the local machine, with
// requests from the host's own pages, and hide it from scripts. It ends with the browser, and earlier by the limits below. All ports and
// paths of the host receive it: no attribute of a cookie can separate them.
const sessionCookie = "__Host-pawl"

const (
	// MaxAge is how long a session lasts, even in use.
	MaxAge = auth.MaxSession
	// DefaultIdle is how long a session lasts without use, unless the server's settings say otherwise, within MinIdle and MaxAge.
	DefaultIdle = 30 * time.Minute
	MinIdle     = time.Minute
	// renewEvery is how often a session in use gets another cookie.
	renewEvery = time.Minute
	// endsPerSecond bounds the log-outs of a token at a node, after a few at once: each is a write, and a token with any rights can log in
	// and out as fast as it likes. maxEnding is how many tokens are told apart.
	endsPerSecond, endsAtOnce = 1, 5
	maxEnding                 = 1000
	// maxOwn is how many of the last sessions that began here are known, for when the node is cut off.
	maxOwn = 100
	// maxSkew is how far the clock of the node that wrote a cookie may be ahead.
	maxSkew = time.Minute
)

// maxToken is longer than any token.
const maxToken = 256

// Sessions begins and opens sessions. Its methods may be called from any goroutine.
type Sessions struct {
	find func(auth.SessionID) (auth.SessionKey, error)
	end  func(context.Context, auth.Session) error
	idle time.Duration

	mu   sync.Mutex
	ends map[auth.SessionID]*rate.Limiter // calls of end
	own  []ownSession                     // the last that began here
}

// ownSession is a session that began here: its number, and when.
type ownSession struct {
	number uint64
	begun  time.Time
}

// NewSessions returns sessions that end after some time without use; 0: DefaultIdle. find returns the key with an id, or auth.ErrNoSession;
// any other error says why it can't be known at present. end ends a session on all nodes.
func NewSessions(find func(auth.SessionID) (auth.SessionKey, error),
	end func(context.Context, auth.Session) error, idle time.Duration) *Sessions {
	if idle == 0 {
		idle = DefaultIdle
	}
	return &Sessions{find: find, end: end, idle: idle, ends: map[auth.SessionID]*rate.Limiter{}}
}

// session is what a cookie contains.
type session struct {
	token string // "": none
	auth.Session
	used int64 // Unix seconds, like Begun by the clock of the node that wrote it
}

// ended reports whether a session has ended.
func (s *Sessions) ended(x session, now time.Time) bool {
	age, unused := now.Sub(time.Unix(x.Begun, 0)), now.Sub(time.Unix(x.used, 0))
	return age >= MaxAge || unused >= s.idle || min(age, unused) < -maxSkew
}

// The cookie is base64 of: key's id(16) nonce(12), and encrypted: number(8) begun(8) used(8) token. The id is authenticated, too.
const (
	headSize  = len(auth.SessionID{})
	bodySize  = 3 * 8 // without the token
	maxCookie = headSize + 12 + bodySize + maxToken + 16
)

func seal(x session) string {
	k := auth.SessionKeyOf(auth.HashOf(x.token))
	var body []byte
	for _, n := range []uint64{x.Number, uint64(x.Begun), uint64(x.used)} { // #nosec G115 -- after 1970
		body = binary.BigEndian.AppendUint64(body, n)
	}
	return base64.RawURLEncoding.EncodeToString(cipherOf(k).Seal(k.ID[:], nil, append(body, x.token...), k.ID[:]))
}

func cipherOf(k auth.SessionKey) cipher.AEAD {
	block, err := aes.NewCipher(k.Secret[:])
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return gcm
}

// open returns the session in a request, the zero session if there is none that has not ended, and an error if that can't be known.
func (s *Sessions) open(r *http.Request, now time.Time) (x session, err error) {
	c, err := r.Cookie(sessionCookie)
	if err != nil || len(c.Value) > base64.RawURLEncoding.EncodedLen(maxCookie) {
		return x, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || len(b) < headSize {
		return x, nil
	}
	key, err := s.find(auth.SessionID(b))
	if err != nil {
		if errors.Is(err, auth.ErrNoSession) {
			return x, nil
		}
		return x, &pawltype.Error{Code: pawltype.ErrUnavailable, Message: err.Error()}
	}
	body, err := cipherOf(key).Open(nil, nil, b[headSize:], b[:headSize])
	if err != nil || len(body) < bodySize {
		return x, nil
	}
	number := func(i int) uint64 { return binary.BigEndian.Uint64(body[8*i:]) }
	x = session{string(body[bodySize:]), auth.Session{Key: key.ID, Number: number(0), Begun: int64(number(1))},
		int64(number(2))} // #nosec G115 -- as it was written
	if s.ended(x, now) || key.Ended.Has(x.Session) || CheckToken(x.token) != nil {
		return session{}, nil
	}
	if key.CutOff && !s.beganHere(x.Number, key.Heard) {
		return session{}, errCutOff
	}
	return x, nil
}

// errCutOff is why a session can't be opened that another node may have ended.
var errCutOff = &pawltype.Error{Code: pawltype.ErrUnavailable,
	Message: "this node is cut off from its cluster and can't know whether you have logged out elsewhere: log in again here, " +
		"at /login, or use another node"}

// beganHere reports whether a session began here, at some time or later.
func (s *Sessions) beganHere(number uint64, since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.own, func(o ownSession) bool { return o.number == number && !o.begun.Before(since) })
}

// Begin logs a visitor in by a token. Each session has a number of its own.
func (s *Sessions) Begin(w http.ResponseWriter, token string) {
	var number [8]byte
	_, _ = rand.Read(number[:]) // never fails: crypto/rand ends the process instead
	now := time.Now()
	x := session{token, auth.Session{Number: binary.BigEndian.Uint64(number[:]), Begun: now.Unix()}, now.Unix()}
	s.mu.Lock()
	s.own = append(s.own[max(len(s.own)-maxOwn+1, 0):], ownSession{x.Number, now})
	s.mu.Unlock()
	setCookie(w, seal(x))
}

// Renew notes that a person uses a session. Pages that refresh themselves must not call it: they would keep the session forever.
func (s *Sessions) Renew(w http.ResponseWriter, r *http.Request) {
	x, now := sessionOf(r).session, time.Now().Unix()
	if x.token == "" || now-x.used < int64(min(renewEvery, s.idle/10)/time.Second) {
		return
	}
	x.used = now
	setCookie(w, seal(x))
}

// Lasts reports whether the session of a request that was opened a while ago has not ended since.
func (s *Sessions) Lasts(r *http.Request) bool {
	x, err := s.open(r, time.Now())
	return x.token == Token(r) || err != nil
}

// ErrManyEnd is returned if so many sessions of a token are being ended that this one would have to wait for too long.
var ErrManyEnd = errors.New("many sessions of the token are ending")

// End deletes the cookie, and ends the session wherever the cookie was copied to. If that fails, copies last until the session ends by
// itself.
func (s *Sessions) End(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	setCookie(w, "")
	o := sessionOf(r)
	if o.err != nil || o.token == "" {
		return o.err
	}
	s.mu.Lock()
	s.own = slices.DeleteFunc(s.own, func(own ownSession) bool { return own.number == o.Number })
	s.mu.Unlock()
	if s.limiter(o.Key).Wait(ctx) != nil {
		return ErrManyEnd
	}
	if x, err := s.open(r, time.Now()); err == nil && x.token == "" { // it has ended meanwhile, perhaps with its token
		return nil
	}
	return s.end(ctx, o.Session)
}

func (s *Sessions) limiter(id auth.SessionID) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ends[id]
	if l == nil {
		if len(s.ends) >= maxEnding {
			clear(s.ends)
		}
		l = rate.NewLimiter(endsPerSecond, endsAtOnce)
		s.ends[id] = l
	}
	return l
}

// setCookie sets the session cookie; "" deletes it.
func setCookie(w http.ResponseWriter, value string) {
	c := &http.Cookie{Name: sessionCookie, Value: value, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

type sessionKey struct{}

// opened is the session of a request, or why it can't be opened at present.
type opened struct {
	session
	err error
}

// Open serves requests with their sessions opened.
func (s *Sessions) Open(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, err := s.open(r, time.Now())
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sessionKey{}, &opened{x, err})))
	})
}

func sessionOf(r *http.Request) *opened {
	if o, ok := r.Context().Value(sessionKey{}).(*opened); ok {
		return o
	}
	return &opened{}
}

// Token returns the token in a request's session; "": there is none, or it has ended.
func Token(r *http.Request) string { return sessionOf(r).token }

// SessionError returns why it can't be known at present whether a request has a session; nil: it is known.
func SessionError(r *http.Request) error { return sessionOf(r).err }

// WhyNoSession returns why a request has no session although its visitor has just logged in.
func WhyNoSession(r *http.Request) string {
	if _, err := r.Cookie(sessionCookie); err != nil {
		return "the browser did not keep the session: browsers do so only over HTTPS, or for a server on the same machine"
	}
	return "another node wrote the session, and this one does not accept it: " +
		"either it has another token in its --admin-token-file, or the clocks of the nodes differ"
}

// CheckToken rejects what can't be part of a header. Whether it is a valid token is for the API to decide.
func CheckToken(token string) error {
	bad := func(c rune) bool { return c <= ' ' || c > '~' || c == ';' || c == '"' || c == ',' || c == '\\' }
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token, bad) {
		return format.BadField("token", "is not a token: tokens consist of letters, digits and _")
	}
	return nil
}
