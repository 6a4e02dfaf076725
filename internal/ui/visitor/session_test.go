package visitor

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/pawltype"
)

// keysOf finds the keys of some tokens.
func keysOf(tokens ...string) func(auth.SessionID) (auth.SessionKey, error) {
	return func(id auth.SessionID) (auth.SessionKey, error) {
		for _, token := range tokens {
			if k := auth.SessionKeyOf(auth.HashOf(token)); k.ID == id {
				return k, nil
			}
		}
		return auth.SessionKey{}, auth.ErrNoSession
	}
}

// browser keeps the session cookie.
type browser struct{ cookie string }

func (b *browser) request() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if b.cookie != "" {
		r.AddCookie(&http.Cookie{Name: sessionCookie, Value: b.cookie})
	}
	return r
}

// login begins a session.
func (b *browser) login(s *Sessions, token string) {
	b.keep(func(w http.ResponseWriter) { s.Begin(w, token) })
}

// keep keeps the cookie that a response sets, and reports whether there was one.
func (b *browser) keep(respond func(http.ResponseWriter)) bool {
	w := httptest.NewRecorder()
	respond(w)
	for _, c := range w.Result().Cookies() {
		b.cookie = c.Value
	}
	return len(w.Result().Cookies()) > 0
}

// visit sends a request, by a person or by a page itself, and returns the token and whether the cookie was renewed.
func (b *browser) visit(s *Sessions, byPerson bool) (token string, renewed bool) {
	renewed = b.keep(func(w http.ResponseWriter) {
		s.Open(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if token = Token(r); byPerson {
				s.Renew(w, r)
			}
		})).ServeHTTP(w, b.request())
	})
	return token, renewed
}

// A session ends after some time without use, and what a page does by itself is none.
func TestIdleSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, idle := range []time.Duration{0, MinIdle, MaxAge} {
			s, limit := NewSessions(keysOf("secret"), nil, idle), idle
			if limit == 0 {
				limit = DefaultIdle
			}
			var used, left browser
			used.login(s, "secret")
			left.login(s, "secret")
			for range 3 { // less than MaxAge
				time.Sleep(limit / 4)
				if token, renewed := used.visit(s, true); token != "secret" || !renewed {
					t.Fatalf("limit %v: a session in use: token %q, renewed %v", idle, token, renewed)
				}
				if token, renewed := left.visit(s, false); token != "secret" || renewed {
					t.Fatalf("limit %v: a page that refreshes itself: token %q, renewed %v", idle, token, renewed)
				}
			}
			stream := left.request()
			s.Open(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stream = r })).ServeHTTP(nil, stream)
			time.Sleep(limit/4 - time.Second)
			if token, _ := left.visit(s, false); token != "secret" || !s.Lasts(stream) {
				t.Errorf("limit %v: a second before it, the session has ended", idle)
			}
			time.Sleep(time.Second)
			if token, renewed := left.visit(s, true); token != "" || renewed || s.Lasts(stream) {
				t.Errorf("limit %v: unused for as long: token %q, renewed %v, the stream lasts %v", idle, token, renewed, s.Lasts(stream))
			}
			if token, _ := used.visit(s, false); (token == "secret") != (limit < MaxAge) {
				t.Errorf("limit %v: a session in use: token %q", idle, token)
			}
		}
	})
}

// A session ends MaxAge after its login, even if it is in use. A cookie is renewed once a minute at most.
func TestSessionsEndByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSessions(keysOf("secret"), nil, 0)
		var b browser
		b.login(s, "secret")
		renewals := 0
		for age := 20 * time.Second; age < MaxAge; age += 20 * time.Second {
			time.Sleep(20 * time.Second)
			token, renewed := b.visit(s, true)
			if token != "secret" {
				t.Fatalf("after %v in use: token %q", age, token)
			}
			if renewed {
				renewals++
			}
		}
		if want := int(MaxAge/renewEvery) - 1; renewals != want {
			t.Errorf("renewed %d times, want %d", renewals, want)
		}
		time.Sleep(20 * time.Second)
		if token, renewed := b.visit(s, true); token != "" || renewed {
			t.Errorf("after %v in use: token %q, renewed %v", MaxAge, token, renewed)
		}
	})
}

// The clocks of nodes may differ by a minute. A cookie of a later time is refused: it might not end.
func TestSessionsOfOtherClocks(t *testing.T) {
	s, now := NewSessions(keysOf("secret"), nil, 0), time.Now().Unix()
	for _, c := range []struct {
		begun, used int64
		ok          bool
	}{{0, 0, true}, {60, 60, true}, {62, 62, false}, {0, 62, false}, {62, 0, false}, {-60, -60, true}} {
		b := browser{cookie: seal(session{"secret", auth.Session{Begun: now + c.begun}, now + c.used})}
		if token, renewed := b.visit(s, true); (token == "secret") != c.ok || renewed != (c.used == -60) {
			t.Errorf("begun in %d s, used in %d s: token %q, renewed %v", c.begun, c.used, token, renewed)
		}
	}
}

// A cookie does not show its token, each is different, and one that was changed, cut or put together is none.
func TestSessionsAreSealed(t *testing.T) {
	const token, other = "pawl_secret", "pawl_others"
	s := NewSessions(keysOf(token, other), nil, 0)
	var b, again, another browser
	b.login(s, token)
	again.login(s, token)
	another.login(s, other)
	raw, err := base64.RawURLEncoding.DecodeString(b.cookie)
	if err != nil {
		t.Fatal(err)
	}
	if h := auth.HashOf(token); b.cookie == again.cookie || strings.Contains(string(raw), "secret") ||
		strings.Contains(string(raw), string(h[:8])) {
		t.Errorf("two sessions are %q and %q", b.cookie, again.cookie)
	}
	opens := func(what string, raw []byte, want string) {
		t.Helper()
		if got, _ := (&browser{base64.RawURLEncoding.EncodeToString(raw)}).visit(s, false); got != want {
			t.Errorf("%s: token %q, want %q", what, got, want)
		}
	}
	opens("the cookie", raw, token)
	for i := range raw {
		changed := append([]byte{}, raw...)
		changed[i] ^= 1
		opens("a changed one", changed, "")
		opens("a short one", raw[:i], "")
	}
	opens("a long one", append(append([]byte{}, raw...), make([]byte, 1<<16)...), "")
	theirs, err := base64.RawURLEncoding.DecodeString(another.cookie)
	if err != nil {
		t.Fatal(err)
	}
	opens("one with the key of another", append(append([]byte{}, theirs[:headSize]...), raw[headSize:]...), "")
	for _, text := range []string{"", token, "%", "=", strings.Repeat("A", 100)} {
		if got, _ := (&browser{text}).visit(s, false); got != "" {
			t.Errorf("%q: token %q", text, got)
		}
	}
	if got, _ := b.visit(NewSessions(keysOf(other), nil, 0), true); got != "" {
		t.Errorf("where the token is unknown: token %q", got)
	}
}

// A node that can't know a token has neither ended the session nor opened it.
func TestSessionsOfUnknownTokens(t *testing.T) {
	s := NewSessions(func(auth.SessionID) (auth.SessionKey, error) { return auth.SessionKey{}, errors.New("not yet") }, nil, 0)
	var b browser
	b.login(s, "secret")
	s.Open(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := SessionError(r); !errors.Is(err, pawltype.ErrUnavailable) || Token(r) != "" || !s.Lasts(r) {
			t.Errorf("it is %v, token %q, lasts %v", err, Token(r), s.Lasts(r))
		}
	})).ServeHTTP(nil, b.request())
}

// Logging out ends a session wherever its cookie was copied to, also one that was renewed meanwhile, and no other session of the token.
func TestLogOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended auth.EndedSessions
		find := keysOf("secret")
		calls, refuse := 0, error(nil)
		s := NewSessions(func(id auth.SessionID) (auth.SessionKey, error) {
			k, err := find(id)
			k.Ended = &ended
			return k, err
		}, func(_ context.Context, x auth.Session) error {
			if calls++; refuse != nil {
				return refuse
			}
			if want := auth.SessionKeyOf(auth.HashOf("secret")).ID; x.Key != want {
				t.Errorf("key %x, want %x", x.Key, want)
			}
			ended.Add(x, time.Now())
			return nil
		}, 0)
		end := func(b *browser) (err error) {
			b.keep(func(w http.ResponseWriter) {
				s.Open(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { err = s.End(t.Context(), w, r) })).ServeHTTP(w,
					b.request())
			})
			return err
		}
		var b, other browser
		b.login(s, "secret")
		stolen := b
		time.Sleep(2 * time.Minute)
		if _, renewed := b.visit(s, true); !renewed || b == stolen {
			t.Fatal("the session was not renewed")
		}
		late := b
		other.login(s, "secret")
		refuse = errors.New("no leader")
		still := b
		if err := end(&still); !errors.Is(err, refuse) || still.cookie != "" {
			t.Errorf("logging out without a leader: %v, cookie %q", err, still.cookie)
		}
		refuse = nil
		if err := end(&b); err != nil || b.cookie != "" || calls != 2 {
			t.Errorf("logging out: %v, cookie %q, %d calls", err, b.cookie, calls)
		}
		for what, copied := range map[string]browser{"a copy": stolen, "the last cookie": late} {
			if token, renewed := copied.visit(s, true); token != "" || renewed {
				t.Errorf("%s, after logging out: token %q", what, token)
			}
		}
		if token, _ := other.visit(s, true); token != "secret" {
			t.Error("another session of the token has ended, too")
		}
		if err := end(&browser{}); err != nil || calls != 2 {
			t.Errorf("logging out without a session: %v, %d calls", err, calls)
		}
		time.Sleep(endsAtOnce * time.Second / endsPerSecond)
		began := time.Now()
		for range endsAtOnce + 3*endsPerSecond {
			copied := other
			_ = end(&copied)
			ended = auth.EndedSessions{}
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("%d sessions of a token were ended within %v, want 3s", endsAtOnce+3*endsPerSecond, took)
		}
		for n := range maxEnding {
			s.limiter(auth.SessionID{byte(n), byte(n >> 8), 1})
		}
		if len(s.ends) != 1 { // the first that was one too many
			t.Errorf("%d tokens are told apart, want 1", len(s.ends))
		}
	})
}

// Log-outs that wait write nothing when it is their turn and the token was revoked meanwhile. One that would wait too long says so.
func TestLogOutsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		find, tries, calls := keysOf("secret"), error(nil), 0
		s := NewSessions(func(id auth.SessionID) (auth.SessionKey, error) {
			if tries != nil {
				return auth.SessionKey{}, tries
			}
			return find(id)
		}, func(context.Context, auth.Session) error { calls++; return nil }, 0)
		var b browser
		b.login(s, "secret")
		end := func(after func()) (err error) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			s.Open(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				after()
				err = s.End(ctx, w, r)
			})).ServeHTTP(httptest.NewRecorder(), b.request())
			return err
		}
		for range endsAtOnce {
			if err := end(func() {}); err != nil {
				t.Fatal(err)
			}
		}
		if err := end(func() { tries = errors.New("no leader") }); err != nil || calls != endsAtOnce+1 {
			t.Errorf("one whose token is unknown by then: %v, %d calls, want %d", err, calls, endsAtOnce+1)
		}
		tries = nil
		if err := end(func() { tries = auth.ErrNoSession }); err != nil || calls != endsAtOnce+1 {
			t.Errorf("one whose token was revoked: %v, %d calls, want %d", err, calls, endsAtOnce+1)
		}
		tries = nil
		s.limiter(auth.SessionKeyOf(auth.HashOf("secret")).ID).ReserveN(time.Now(), 3)
		if err := end(func() {}); !errors.Is(err, ErrManyEnd) || calls != endsAtOnce+1 {
			t.Errorf("one too many: %v, %d calls, want %d", err, calls, endsAtOnce+1)
		}
	})
}

// A node that is cut off accepts the sessions that it began since it last heard of the others, until they are logged
// out, and none that another node may have ended.
func TestSessionsOfANodeThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cutOff, heard := false, time.Time{}
		find := func(id auth.SessionID) (auth.SessionKey, error) {
			k, err := keysOf("secret")(id)
			if k.CutOff = cutOff; cutOff {
				k.Heard = heard
			}
			return k, err
		}
		s := NewSessions(find, func(context.Context, auth.Session) error { return errors.New("no answer") }, 0)
		var before, unnoticed, during, copied browser
		before.login(s, "secret")
		time.Sleep(time.Second)
		heard = time.Now()
		unnoticed.login(s, "secret") // the node is cut off, and will notice it when it has heard nothing for a while
		time.Sleep(time.Second)
		cutOff = true
		during.login(s, "secret")
		for range maxOwn - 2 {
			new(browser).login(s, "secret")
		}
		copied = during
		opens := func(what string, b *browser, want string) {
			t.Helper()
			x, err := s.open(b.request(), time.Now())
			if x.token != want || (err != nil) == (want != "") {
				t.Errorf("%s: the session has the token %q, %v, want %q", what, x.token, err, want)
			}
		}
		opens("a session from before", &before, "")
		opens("a session that began here before this was noticed", &unnoticed, "secret")
		opens("a session that began here", &during, "secret")
		s.Open(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := s.End(t.Context(), w, r); err == nil {
				t.Error("nobody was told that the session has ended, and logging out did not fail")
			}
		})).ServeHTTP(httptest.NewRecorder(), during.request())
		opens("a copy of one that was logged out", &copied, "")
		during.login(s, "secret")
		for range maxOwn {
			new(browser).login(s, "secret")
		}
		opens("one of too many", &during, "")
		during.login(s, "secret")
		cutOff = false
		opens("a session from before, later", &before, "secret")
		time.Sleep(time.Second)
		cutOff, heard = true, time.Now()
		opens("a session that began here when the node was cut off before, and that may have ended at another node since", &during, "")
		heard = time.Time{}
		opens("a session that began here, at a node that has never heard of the others", &during, "secret")
	})
}
