package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/ui/visitor"
)

// TestManyTabsRefreshLessOften: all open pages together refresh at most maxNoticesPerSecond times a second.
func TestManyTabsRefreshLessOften(t *testing.T) {
	for n, want := range map[int]time.Duration{1: noticeGap, 10: time.Second, 100: 10 * time.Second, maxLive: 50 * time.Second} {
		if got := gapOf(n); got != want {
			t.Errorf("with %d streams the pause between notices is %v, want %v", n, got, want)
		}
	}
}

// A stream ends with its session if nobody uses it, even if the page is refreshed all the time.
func TestStreamsEndWithSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := auth.SessionKeyOf(auth.HashOf("pawl_token"))
		sessions := visitor.NewSessions(func(auth.SessionID) (auth.SessionKey, error) { return key, nil }, nil, 10*time.Minute)
		for what, c := range map[string]struct {
			cookie bool
			want   time.Duration // 0: it goes on
		}{"a session": {true, 10 * time.Minute}, "no session, where no token is required": {false, 0}} {
			r := httptest.NewRequest(http.MethodGet, "/live", nil)
			if c.cookie {
				login := httptest.NewRecorder()
				sessions.Begin(login, "pawl_token")
				r.Header.Set("Cookie", strings.Split(login.Header().Get("Set-Cookie"), ";")[0])
			}
			began, of := time.Now(), NewStreams(nil, sessions)
			w := httptest.NewRecorder()
			s := &stream{of: of, w: w, conn: http.NewResponseController(w), changed: make(chan struct{}, 1), ended: make(chan error, 1)}
			sessions.Open(http.HandlerFunc(func(_ http.ResponseWriter, opened *http.Request) { s.r = opened })).ServeHTTP(w, r)
			written := make(chan struct{})
			go func() { s.write(); close(written) }()
			for time.Since(began) < 20*time.Minute {
				select {
				case s.changed <- struct{}{}:
				default:
				}
				select {
				case <-written:
				case <-time.After(time.Second):
					continue
				}
				break
			}
			if took := time.Since(began); c.want > 0 && (took < c.want || took > c.want+keepAliveEvery) || c.want == 0 &&
				took < 20*time.Minute {
				t.Errorf("%s: the stream took %v, want %v", what, took, c.want)
			}
			of.Close()
			<-written
			if gone := strings.HasSuffix(w.Body.String(), "event: gone\ndata: 1\n\n"); gone != (c.want > 0) {
				t.Errorf("%s: the page is told that the stream is gone: %v", what, gone)
			}
		}
	})
}
