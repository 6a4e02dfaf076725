package node

import (
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/auth/bearer"
)

// A login to the web UI, and one that is refused, are each recorded once, with the visitor's address. Pages that are opened later are not.
func TestLoginsAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		operator, lines := bearer.New(), &logLines{}
		seen := 0 // lines
		s := start(t, Config{InMemory: true, Tokens: TokensAlways, AdminToken: func() string { return operator },
			Trail: trail.New(trail.Config{Kinds: trail.Usual(), Log: slog.New(slog.NewTextHandler(lines, nil))})})
		pass(time.Second)
		if _, err := admin.New(s.as(operator, "")).Namespaces().Create(t.Context(), "team", admin.QuotaChange{}); err != nil {
			t.Fatal(err)
		}
		lena, err := admin.New(s.as(operator, "team")).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "lena",
			Queues: []string{"*"}, Roles: []admin.Role{admin.RoleObserve}})
		if err != nil {
			t.Fatal(err)
		}
		all, err := admin.New(s.as(operator, "")).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "lena", Queues: []string{"*"},
			AllNamespaces: true, Roles: []admin.Role{admin.RoleObserve}})
		if err != nil {
			t.Fatal(err)
		}
		wrong := bearer.New()
		for _, c := range []struct{ token, want string }{
			{lena.Secret, `msg="a visitor logged in" event=logins code=ok actor=lena namespace=team interface=ui address=192.0.2.1`},
			{all.Secret, `msg="a visitor logged in" event=logins code=ok actor=*/lena namespace=default interface=ui address=192.0.2.1`},
			{wrong, `msg="a caller was refused" event=refusals code=unauthenticated`},
		} {
			r := httptest.NewRequest("POST", "http://localhost/login", strings.NewReader(url.Values{"token": {c.token}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			w := httptest.NewRecorder()
			s.gateway.Handler().ServeHTTP(w, r)
			if got := lines.about("event=")[seen:]; len(got) != 1 || !strings.Contains(got[0], c.want) ||
				!strings.Contains(got[0], "interface=ui address=192.0.2.1") || strings.Contains(got[0], c.token) {
				t.Errorf("status %d; recorded: %q, want %s", w.Code, got, c.want)
			}
			seen++
			for _, cookie := range w.Result().Cookies() {
				r := httptest.NewRequest("GET", "http://localhost/queues", nil)
				r.AddCookie(cookie)
				s.gateway.Handler().ServeHTTP(httptest.NewRecorder(), r)
			}
			if got := lines.about("event=")[seen:]; len(got) != 0 {
				t.Errorf("a page left %q", got)
			}
		}
	})
}
