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
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/ui/problem"
	"github.com/pawlq/pawl/pawltype"
)

// A session is a cookie with the visitor's token and two times, encrypted by a key that the token's hash gives and all nodes know: the server keeps
// no state. Browsers send the cookie only to this host, over HTTPS or to the local machine, with requests from the host's own pages, and hide it from
// scripts. It ends with the browser, and earlier by the limits below. All ports and paths of the host receive it: no attribute of a cookie can
// separate them.
const sessionCookie = "__Host-pawl"

const (
	// MaxAge is how long a session lasts, however it is used.
	MaxAge = 12 * time.Hour
	// DefaultIdle is how long a session lasts without use, unless the server's settings say otherwise, within MinIdle and MaxAge.
	DefaultIdle = 30 * time.Minute
	MinIdle     = time.Minute
	// renewEvery is how often a session in use gets another cookie.
	renewEvery = time.Minute
	// maxSkew is how far the clock of the node that wrote a cookie may be ahead.
	maxSkew = time.Minute
)

// maxToken is longer than any token.
const maxToken = 256

// Sessions begins and opens sessions. Its methods may be called from any goroutine.
type Sessions struct {
	find func(auth.SessionID) (auth.SessionKey, error)
	idle time.Duration
}

// NewSessions returns sessions that end after some time without use; 0: DefaultIdle. find returns the key with an id, or auth.ErrNoSession; any other
// error says why it can't be known at present.
func NewSessions(find func(auth.SessionID) (auth.SessionKey, error), idle time.Duration) *Sessions {
	if idle == 0 {
		idle = DefaultIdle
	}
	return &Sessions{find: find, idle: idle}
}

// session is what a cookie contains.
type session struct {
	token       string // "": none
	number      [8]byte
	begun, used int64 // seconds, by the clock of the node that wrote them
}

// ended reports whether a session has ended.
func (s *Sessions) ended(x session, now time.Time) bool {
	age, unused := now.Sub(time.Unix(x.begun, 0)), now.Sub(time.Unix(x.used, 0))
	return age >= MaxAge || unused >= s.idle || min(age, unused) < -maxSkew
}

// The cookie is base64 of: version(1) key's id(16) nonce(12), and encrypted: number(8) begun(8) used(8) token. The version and the id are authenticated.
const (
	cookieVersion = 1
	headSize      = 1 + len(auth.SessionID{})
	bodySize      = 3 * 8 // without the token
	maxCookie     = headSize + 12 + bodySize + maxToken + 16
)

func seal(x session) string {
	k := auth.SessionKeyOf(auth.HashOf(x.token))
	head := append([]byte{cookieVersion}, k.ID[:]...)
	body := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(x.number[:], uint64(x.begun)), uint64(x.used)) // #nosec G115 -- after 1970
	return base64.RawURLEncoding.EncodeToString(cipherOf(k).Seal(head, nil, append(body, x.token...), head))
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
	if err != nil || len(b) < headSize || b[0] != cookieVersion {
		return x, nil
	}
	key, err := s.find(auth.SessionID(b[1:headSize]))
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
	x = session{number: [8]byte(body), begun: int64(binary.BigEndian.Uint64(body[8:])), used: int64(binary.BigEndian.Uint64(body[16:])), token: string(body[bodySize:])} // #nosec G115 -- as it was written
	if s.ended(x, now) || CheckToken(x.token) != nil {
		return session{}, nil
	}
	return x, nil
}

// Begin logs a visitor in by a token. Each session has a number of its own: none that was there before goes on.
func (s *Sessions) Begin(w http.ResponseWriter, token string) {
	now := time.Now().Unix()
	x := session{token: token, begun: now, used: now}
	_, _ = rand.Read(x.number[:]) // never fails: crypto/rand ends the process instead
	setCookie(w, seal(x))
}

// Renew notes that a person uses a session. Pages that refresh themselves must not call it: they would keep the session for ever.
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

// End deletes the cookie.
func (s *Sessions) End(w http.ResponseWriter) { setCookie(w, "") }

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
	return "another node wrote the session, and this one does not accept it: either it has another token in its --admin-token-file, or the clocks of the nodes differ"
}

// CheckToken rejects what can't be part of a header. Whether it is a valid token is for the API to decide.
func CheckToken(token string) error {
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' || c == ';' || c == '"' || c == ',' || c == '\\' }) {
		return problem.BadField("token", "is not a token: tokens consist of letters, digits and _")
	}
	return nil
}
