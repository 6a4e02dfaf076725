package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/pawltype"
)

// as returns a client with a token, in a namespace ("": the token's).
func (s *server) as(token, namespace string) *pawl.Client {
	s.t.Helper()
	c, err := pawl.Dial("node", pawl.DialOptions{Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
		return s.pipe.DialContext(ctx)
	}, Token: token, Namespace: namespace, RetryFor: -1, NoRouting: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// web makes a REST call to the node.
func (s *server) web(token, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	s.gateway.Handler().ServeHTTP(w, r)
	return w
}

// When the call that creates or revokes a token returns, all nodes know, and calls that used it have ended. A node that hears
// nothing for long trusts no token but its own.
func TestTokensOnThreeNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.admin = bearer.New()
		w.form()
		boss := admin.New(w.nodes["n1"].as(w.admin, ""))
		if _, err := boss.Namespaces().Create(t.Context(), "team", admin.QuotaChange{}); err != nil {
			t.Fatal(err)
		}
		made, err := admin.New(w.nodes["n2"].as(w.admin, "team")).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "worker",
			Queues: []string{"*"}, Roles: []admin.Role{admin.RoleConsume, admin.RoleObserve}})
		if err != nil || len(made.Unconfirmed) != 0 {
			t.Fatalf("a token: %+v, %v", made, err)
		}
		ends := make(chan *httptest.ResponseRecorder, 3)
		for name, s := range w.nodes {
			if me, err := admin.New(s.as(made.Secret, "")).Access().WhoAmI(t.Context()); err != nil || me.Name != "worker" ||
				me.Namespace != "team" || !me.TokenRequired {
				t.Fatalf("%s, just after the token was made: %+v, %v", name, me, err)
			}
			go func() {
				ends <- s.web(made.Secret, "POST", "/api/v1/claim", `{"queues":["mail"],"wait":"20s","worker":"w"}`)
			}()
		}
		pass(3 * time.Second)
		began := time.Now()
		behind, err := admin.New(w.nodes["n3"].as(w.admin, "team")).Access().RevokeToken(t.Context(), admin.TokenName{Name: "worker"})
		if took := time.Since(began); err != nil || len(behind) != 0 || took > time.Second {
			t.Errorf("revoked: %v, %v after %v", behind, err, took)
		}
		for name, s := range w.nodes {
			if _, err := admin.New(s.as(made.Secret, "")).Access().WhoAmI(t.Context()); !errors.Is(err, pawltype.ErrUnauthenticated) {
				t.Errorf("%s, just after the token was revoked: %v", name, err)
			}
		}
		for range w.nodes {
			if end := <-ends; end.Code != http.StatusUnauthorized {
				t.Errorf("a poll ended with %d %s", end.Code, end.Body)
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("all that took %v", took)
		}

		kept, err := boss.Access().CreateToken(t.Context(), admin.TokenSpec{Name: "kept", Queues: []string{"*"},
			Roles: []admin.Role{admin.RoleObserve}, AllNamespaces: true, Life: admin.NeverExpires})
		if err != nil {
			t.Fatal(err)
		}
		last := w.nodes["n1"]
		w.crash("n2")
		if _, err := admin.New(last.as(kept.Secret, "")).Access().WhoAmI(t.Context()); err != nil {
			t.Errorf("one of three nodes is gone: %v", err)
		}
		pass(15 * time.Second)
		if _, err := admin.New(last.as(kept.Secret, "")).Access().WhoAmI(t.Context()); err != nil {
			t.Errorf("one of three nodes is gone for long: %v", err)
		}
		w.crash("n3")
		pass(5 * time.Second)
		if _, err := admin.New(last.as(kept.Secret, "")).Access().WhoAmI(t.Context()); err != nil {
			t.Errorf("the majority is gone for a moment: %v", err)
		}
		pass(10 * time.Second)
		if _, err := admin.New(last.as(kept.Secret, "")).Access().WhoAmI(t.Context()); !errors.Is(err, pawltype.ErrUnavailable) {
			t.Errorf("the majority is gone: %v", err)
		}
		if me, err := admin.New(last.as(w.admin, "")).Access().WhoAmI(t.Context()); err != nil || me.Name != "admin-token-file" {
			t.Errorf("the node's own token: %+v, %v", me, err)
		}
	})
}

// A session of the web UI that began at one node goes on at all, and at one that restarts. Logging out at one ends it at all.
func TestSessionsOnThreeNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.admin = bearer.New()
		dirs := w.grow()
		made, err := admin.New(w.nodes["n1"].as(w.admin, "")).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "oncall",
			Queues: []string{"*"}, Roles: []admin.Role{admin.RoleObserve}})
		if err != nil {
			t.Fatal(err)
		}
		send := func(node, method, path, body, cookie string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Cookie", cookie)
			answer := httptest.NewRecorder()
			w.nodes[node].gateway.Handler().ServeHTTP(answer, r)
			return answer
		}
		login := func() string {
			t.Helper()
			answer := send("n1", "POST", "/login", "token="+made.Secret, "")
			cookie, _, _ := strings.Cut(answer.Header().Get("Set-Cookie"), ";")
			if answer.Code != http.StatusSeeOther || !strings.HasPrefix(cookie, "__Host-pawl=") {
				t.Fatalf("login: %d %q", answer.Code, answer.Header())
			}
			return cookie
		}
		see := func(what, cookie string, want int) {
			t.Helper()
			for name := range w.nodes {
				if got := send(name, "GET", "/queues", "", cookie).Code; got != want {
					t.Errorf("%s: a page at %s has status %d, want %d", what, name, got, want)
				}
			}
		}
		first, second := login(), login()
		see("a session", first, http.StatusOK)
		if out := send("n2", "POST", "/logout", "", first); out.Code != http.StatusSeeOther ||
			strings.Contains(out.Header().Get("Set-Cookie"), "pawl-said") {
			t.Errorf("logout: %d %q", out.Code, out.Header())
		}
		see("a copy of an ended session", first, http.StatusSeeOther)
		see("another session", second, http.StatusOK)
		w.crash("n3")
		w.start("n3", dirs["n3"], "n1")
		pass(10 * time.Second)
		see("a copy of an ended session, after a restart", first, http.StatusSeeOther)
		see("another session, after a restart", second, http.StatusOK)
		if _, err := admin.New(w.nodes["n1"].as(w.admin, "")).Access().RevokeToken(t.Context(),
			admin.TokenName{Name: "oncall"}); err != nil {
			t.Fatal(err)
		}
		see("a session of a revoked token", second, http.StatusSeeOther)
	})
}

// A slow node is waited for, whichever it is, also when a token is created.
func TestTokensWaitForSlowNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 400 * time.Millisecond
		w := newNetwork(t)
		w.admin = bearer.New()
		w.form()
		pass(10 * time.Second) // leaders are balanced
		leader := w.leaderOf(systemShard)
		for slow, s := range w.nodes {
			client := w.nodes[leader].as(w.admin, "")
			inTime := func(what string, began time.Time, behind []string, err error) {
				t.Helper()
				if took := time.Since(began); err != nil || len(behind) > 0 || took >= time.Second || slow != leader && took < late/2 {
					t.Errorf("%s while %s is slow to hear: behind are %v, %v after %v", what, slow, behind, err, took)
				}
			}
			pass(time.Second)
			w.dropAnswers(slow, late)
			began := time.Now()
			made, err := admin.New(client).Access().CreateToken(t.Context(), admin.TokenSpec{Name: slow, Queues: []string{"*"},
				Roles: []admin.Role{admin.RoleObserve}})
			if err != nil {
				t.Fatal(err)
			}
			inTime("made", began, made.Unconfirmed, err)
			if _, err := admin.New(s.as(made.Secret, "")).Access().WhoAmI(t.Context()); err != nil {
				t.Errorf("%s, which is slow to hear, just after the token was made: %v", slow, err)
			}
			pass(time.Second)
			w.dropAnswers(slow, late)
			began = time.Now()
			behind, err := admin.New(client).Access().RevokeToken(t.Context(), admin.TokenName{Name: slow})
			inTime("revoked", began, behind, err)
			if _, err := admin.New(s.as(made.Secret, "")).Access().WhoAmI(t.Context()); !errors.Is(err, pawltype.ErrUnauthenticated) {
				t.Errorf("%s, which is slow to hear, just after the token was revoked: %v", slow, err)
			}
		}
	})
}

// A node without a setting requires tokens as soon as another one does, and after a restart even before it has heard of that.
func TestNodesAgreeOnTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		dir := t.TempDir()
		n1 := w.start("n1", dir, "n1")
		if _, err := admin.New(n1.client()).Cluster().Server(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.admin = bearer.New()
		w.start("n2", t.TempDir(), "n1")
		w.until("n1 wants tokens, too", func() error {
			if _, err := admin.New(n1.as("", "")).Cluster().Server(t.Context()); !errors.Is(err, pawltype.ErrUnauthenticated) {
				return fmt.Errorf("without a token: %v", err)
			}
			return nil
		})
		made, err := admin.New(w.nodes["n2"].as(w.admin, "")).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "a",
			Queues: []string{"*"}, Roles: []admin.Role{admin.RoleObserve}})
		if err != nil {
			t.Fatal(err)
		}
		w.crash("n1")
		w.admin = ""
		n1 = w.start("n1", dir, "n1")
		for range 100 { // from the first moment on
			if _, err := admin.New(n1.as("", "")).Cluster().Server(t.Context()); err == nil {
				t.Fatal("a node that was started again lets everybody in")
			}
			pass(50 * time.Millisecond)
		}
		if _, err := admin.New(n1.as(made.Secret, "")).Cluster().Server(t.Context()); err != nil {
			t.Errorf("with a token: %v", err)
		}
	})
}

// estate is everything in a namespace, all marked with one word that nobody else may see.
type estate struct {
	s                                           *server
	token                                       string
	task, claimed, claim, dead, group, schedule string
	operation                                   string
}

const canary = "canary"

// estate creates one of everything in the queue "canary-q".
func (s *server) estate(token string) *estate {
	e := &estate{s: s, token: token, schedule: "canary-s"}
	field := func(w *httptest.ResponseRecorder, name string) string {
		s.t.Helper()
		_, rest, ok := strings.Cut(w.Body.String(), `"`+name+`":"`)
		if w.Code >= 300 || !ok {
			s.t.Fatalf("no %s: %d %s", name, w.Code, w.Body)
		}
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	enqueue := func() string {
		return field(s.web(token, "POST", "/api/v1/tasks", `{"type":"canary-t","queue":"canary-q","payload":"canary","tags":["canary"]}`),
			"task_id")
	}
	take := func() string {
		return field(s.web(token, "POST", "/api/v1/claim", `{"queues":["canary-q"],"worker":"canary-w","lease":"1h"}`), "claim_token")
	}
	s.web(token, "PUT", "/api/v1/queues/other", `{"settings":{}}`) // strangers with the right to would create it
	e.dead = enqueue()
	s.web(token, "POST", "/api/v1/tasks/"+e.dead+"/fail", `{"claim_token":"`+take()+`","error":{"message":"canary"},"outcome":"dead"}`)
	e.claimed = enqueue()
	e.claim = take()
	e.task = enqueue()
	e.group = field(s.web(token, "POST", "/api/v1/groups", `{"name":"canary","tasks":[{"type":"canary-t","queue":"canary-q"}]}`),
		"group_id")
	s.web(token, "POST", "/api/v1/schedules", `{"name":"canary-s","cron":"@yearly","task":{"type":"canary-t","queue":"canary-q"}}`)
	e.operation = field(s.web(token, "POST", "/api/v1/operations", `{"action":"set_priority","priority":"low",`+
		`"filter":{"queue":"canary-q","type":"none"}}`), "operation_id")
	pass(time.Second) // it ends
	return e
}

// attempts returns calls on everything in the estate, by names and ids.
func (e *estate) attempts() (all [][3]string) {
	add := func(method, path, body string) { all = append(all, [3]string{method, "/api/v1/" + path, body}) }
	claim := `{"claim_token":"` + e.claim + `"}`
	for _, id := range []string{e.task, e.claimed, e.dead} {
		add("GET", "tasks/"+id, "")
		add("GET", "tasks/"+id+"?consistency=stale", "")
		add("GET", "tasks/"+id+"/explain", "")
		add("DELETE", "tasks/"+id, "")
		add("PATCH", "tasks/"+id, `{"priority":"high"}`)
		for _, verb := range []string{"retry", "run_now", "discard"} {
			add("POST", "tasks/"+id+"/"+verb, "")
		}
	}
	add("POST", "tasks/"+e.claimed+"/extend", `{"claim_token":"`+e.claim+`","lease":"10s"}`)
	for _, verb := range []string{"ack", "fail", "release"} {
		add("POST", "tasks/"+e.claimed+"/"+verb, claim)
		add("POST", "tasks/"+verb, `{"items":[{"task_id":"`+e.claimed+`","claim_token":"`+e.claim+`"}]}`)
	}
	for _, verb := range []string{"begin", "finish", "abandon"} {
		add("POST", "tasks/"+e.claimed+"/once/"+verb, `{"claim_token":"`+e.claim+`","key":"k"}`)
	}
	add("GET", "groups/"+e.group, "")
	add("GET", "groups/"+e.group+"/members", "")
	add("POST", "groups/"+e.group+"/close", "")
	add("POST", "groups/"+e.group+"/cancel", "")
	add("POST", "groups/"+e.group+"/tasks", `{"tasks":[{"type":"t","queue":"other"}]}`)
	add("GET", "schedules/"+e.schedule, "")
	add("GET", "schedules/"+e.schedule+"/history", "")
	for _, verb := range []string{"pause", "resume", "trigger"} {
		add("POST", "schedules/"+e.schedule+"/"+verb, "")
	}
	add("DELETE", "schedules/"+e.schedule, "")
	add("GET", "operations/"+e.operation, "")
	for _, verb := range []string{"pause", "resume", "abort"} {
		add("POST", "operations/"+e.operation+"/"+verb, "")
	}
	for _, verb := range []string{"pause", "purge", "resume", "spread", "breakers/close"} {
		add("POST", "queues/canary-q/"+verb, "")
	}
	for _, path := range []string{"queues/canary-q", "queues/canary-q/explain", "queues/canary-q/dead", "queues/canary-q/stats",
		"tasks?queue=canary-q"} {
		add("GET", path, "")
	}
	add("DELETE", "queues/canary-q", "")
	return all
}

// lists are calls that may be answered, but without anything of others.
var lists = []string{"tasks", "tasks?fields=payload", "tasks?state=dead", "tasks?q=canary", "queues", "groups", "schedules", "operations",
	"audit", "workers", "tokens", "namespaces", "me"}

// passing matches what time alone changes in answers: ages, rates and percentiles of a queue, and when a token was last used.
var passing = regexp.MustCompile(`"oldest_ready_age_seconds":[^,]*|"rates":\{[^}]*\}|"(wait|run)":\{"count"[^}]*\}|"drain_seconds":[^,` +
	`}]*|"workers":\d+|,"used_at":"[^"]*"`)

// answers returns everything that its owner is told of an estate, except what time changes.
func (e *estate) answers() string {
	var b strings.Builder
	for _, path := range []string{"tasks?fields=payload", "queues", "groups", "groups/" + e.group, "groups/" + e.group + "/members",
		"schedules", "schedules/" + e.schedule + "/history", "operations", "audit", "limits", "namespaces", "tasks/" + e.task,
		"tasks/" + e.claimed, "tasks/" + e.dead, "tokens"} {
		w := e.s.web(e.token, "GET", "/api/v1/"+path, "")
		fmt.Fprintf(&b, "%s: %d %s\n", path, w.Code, w.Body)
	}
	return passing.ReplaceAllString(b.String(), "")
}

// stranger makes calls with ids and names of an estate that it must not see: it learns nothing and changes nothing.
func (e *estate) stranger(who, token string) {
	e.s.t.Helper()
	before := e.answers()
	if strings.Count(before, canary) < 20 {
		e.s.t.Fatalf("there is little to be seen: %s", before)
	}
	for _, c := range e.attempts() {
		w := e.s.web(token, c[0], c[1], c[2])
		told := strings.ReplaceAll(strings.ReplaceAll(w.Body.String(), "canary-q", ""), "canary-s", "") // what the caller sent itself
		if w.Code < 300 && !strings.Contains(told, `"code":"not_found"`) && !strings.Contains(w.Body.String(), `"items":[]`) ||
			w.Code == http.StatusConflict || strings.Contains(told, canary) {
			e.s.t.Errorf("%s: %s %s %s: %d %s", who, c[0], c[1], c[2], w.Code, w.Body)
		}
	}
	for _, path := range lists {
		if w := e.s.web(token, "GET", "/api/v1/"+path, ""); strings.Contains(w.Body.String(), canary) {
			e.s.t.Errorf("%s: GET %s: %d %s", who, path, w.Code, w.Body)
		}
	}
	if after := e.answers(); after != before {
		e.s.t.Errorf("%s changed something: before\n%s\nafter\n%s", who, before, after)
	}
}

// With another namespace, or other queues, a caller finds nothing by ids, names, claim tokens or lists, whatever its roles.
func TestObjectsOfOtherNamespacesAreNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		operator := bearer.New()
		s := start(t, Config{InMemory: true, DataShards: 2, Tokens: TokensAlways, AdminToken: func() string { return operator }})
		boss := func(ns string) admin.Client { return admin.New(s.as(operator, ns)) }
		every := []admin.Role{admin.RoleAdmin}
		cut := func(ns, name string, queues ...string) string {
			t.Helper()
			if len(queues) == 0 {
				queues = []string{"*"}
			}
			made, err := boss(ns).Access().CreateToken(t.Context(), admin.TokenSpec{Name: name, Roles: every, Queues: queues})
			if err != nil {
				t.Fatal(err)
			}
			return made.Secret
		}
		for _, ns := range []string{"a", "b"} {
			if _, err := boss("").Namespaces().Create(t.Context(), ns, admin.QuotaChange{}); err != nil {
				t.Fatal(err)
			}
		}
		e := s.estate(cut("b", "canary-owner"))
		e.stranger("who has other queues of the namespace", cut("b", "narrow", "other*"))
		e.stranger("who has another namespace", cut("a", "foreign"))
		e.stranger("who has the default namespace", cut("", "default"))

		// What a limited token creates, it may use; what others create of the same kind, it may not.
		within := cut("b", "within", "canary-*")
		for path, want := range map[string]int{"tasks/" + e.task: 200, "tasks/" + e.task + "/explain": 200, "schedules/canary-s": 200,
			"queues/canary-q": 200, "groups/" + e.group: 404, "operations/" + e.operation: 404} {
			if w := s.web(within, "GET", "/api/v1/"+path, ""); w.Code != want {
				t.Errorf("GET %s with a token of its queue: %d, want %d (%s)", path, w.Code, want, w.Body)
			}
		}
		made := s.web(within, "POST", "/api/v1/groups", `{"open":true,"tasks":[{"type":"t","queue":"canary-q"}]}`)
		_, id, _ := strings.Cut(made.Body.String(), `"group_id":"`)
		if id = id[:36]; s.web(within, "GET", "/api/v1/groups/"+id, "").Code != 200 ||
			!strings.Contains(s.web(within, "GET", "/api/v1/groups",
				"").Body.String(), id) {
			t.Errorf("a group of its own is not there: %s", made.Body)
		}
		if w := s.web(e.token, "POST", "/api/v1/groups/"+id+"/tasks", `{"tasks":[{"type":"t","queue":"other"}]}`); !strings.Contains(
			w.Body.String(), "is not one of the queues that group") {
			t.Errorf("a member beyond what the group's maker could see: %d %s", w.Code, w.Body)
		}
		if w := s.web(within, "POST", "/api/v1/operations", `{"action":"cancel","filter":{}}`); w.Code != 202 {
			t.Errorf("an operation on what it sees: %d %s", w.Code, w.Body)
		}
		pass(2 * time.Second)
		if w := s.web(within, "GET", "/api/v1/operations", ""); strings.Count(w.Body.String(), "operation_id") != 1 {
			t.Errorf("its operations: %s", w.Body)
		}
	})
}

// A namespace with the name of a removed one shows nothing of it, whatever is listed: its names, its errors, its
// workers, what was done in it.
func TestRemovedNamespacesLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		operator := bearer.New()
		s := start(t, Config{InMemory: true, Tokens: TokensAlways, AdminToken: func() string { return operator }})
		spaces, inB := admin.New(s.as(operator, "")).Namespaces(), admin.New(s.as(operator, "b"))
		var token string
		do := func(method, path, body string) string {
			t.Helper()
			w := s.web(token, method, "/api/v1/"+path, body)
			if w.Code >= 300 {
				t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
			}
			return w.Body.String()
		}
		create := func(owner string) {
			t.Helper()
			if _, err := spaces.Create(t.Context(), "b", admin.QuotaChange{}); err != nil {
				t.Fatal(err)
			}
			made, err := inB.Access().CreateToken(t.Context(), admin.TokenSpec{Name: owner, Queues: []string{"*"},
				Roles: []admin.Role{admin.RoleAdmin}})
			if err != nil {
				t.Fatal(err)
			}
			token = made.Secret
		}
		field := func(text, name string) string {
			_, value, _ := strings.Cut(text, `"`+name+`":"`)
			value, _, _ = strings.Cut(value, `"`)
			return value
		}
		create("theirs")
		do("POST", "tasks", `{"type":"theirs","queue":"theirs","key":"theirs","payload":"theirs"}`)
		claimed := do("POST", "claim", `{"queues":["theirs"],"worker":"theirs"}`)
		id := field(claimed, "task_id")
		do("POST", "tasks/"+id+"/fail", `{"claim_token":"`+field(claimed, "claim_token")+`","error":{"message":"theirs"},"outcome":"dead"}`)
		do("POST", "queues/theirs/pause", `{"reason":"theirs"}`)
		worker := field(do("GET", "workers", ""), "worker_id")
		do("POST", "workers/"+url.PathEscape(worker)+"/quiet", `{"reason":"theirs"}`)
		do("POST", "markers", `{"kind":"deploy","title":"theirs"}`)
		do("POST", "tasks/"+id+"/discard", "")
		do("DELETE", "queues/theirs", "")
		if _, err := inB.Access().RevokeToken(t.Context(), admin.TokenName{Name: "theirs"}); err != nil {
			t.Fatal(err)
		}
		if _, err := spaces.Delete(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Second)
		create("ours")
		for _, path := range []string{"stats", "stats?window=2m", "types", "types?window=5m", "types/theirs", "workers", "audit", "queues",
			"dead?group_by=error", "poisoned?group_by=error", "tasks", "groups", "operations", "schedules", "markers", "tokens",
			"webhooks", "namespaces/b"} {
			if found := do("GET", path, ""); strings.Contains(strings.Replace(found, `"type":"theirs"`, "", 1), "theirs") {
				t.Errorf("%s of the new namespace: %s", path, found)
			}
		}
		do("POST", "tasks", `{"type":"t","queue":"theirs"}`)
		if claimed := do("POST", "claim", `{"queues":["theirs"],"worker":"theirs"}`); field(claimed, "task_id") == "" {
			t.Errorf("a worker of the new namespace gets %s: it may be quiet", claimed)
		}
		if found := do("GET", "queues/theirs/stats", ""); !strings.Contains(found, `"enqueued":1,`) {
			t.Errorf("the statistics of the new queue: %s", found)
		}
		if page, err := inB.Audit().ListPage(t.Context(), admin.AuditFilter{}, pawltype.PageRequest{}); err != nil ||
			!slices.ContainsFunc(page.Items, func(e *admin.AuditEntry) bool { return e.Target == "theirs" }) {
			t.Errorf("a token for all namespaces finds %d entries and none of the earlier namespace, %v", len(page.Items), err)
		}
	})
}

// Whatever is done in one namespace, in any order, changes nothing in another with the same names.
func TestNamespacesAreIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		operator := bearer.New()
		s := start(t, Config{InMemory: true, Tokens: TokensAlways, AdminToken: func() string { return operator }})
		token := map[string]string{}
		for _, ns := range []string{"a", "b"} {
			if _, err := admin.New(s.as(operator, "")).Namespaces().Create(t.Context(), ns, admin.QuotaChange{}); err != nil {
				t.Fatal(err)
			}
			made, err := admin.New(s.as(operator, ns)).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "owner",
				Queues: []string{"*"}, Roles: []admin.Role{admin.RoleAdmin}})
			if err != nil {
				t.Fatal(err)
			}
			token[ns] = made.Secret
		}
		b, a := s.estate(token["b"]), s.estate(token["a"])
		before := b.answers()
		steps := slices.Concat(a.attempts(), [][3]string{
			{"POST", "/api/v1/tasks", `{"type":"canary-t","queue":"canary-q","idempotency_key":"k","unique":{"key":"u",` +
				`"on_conflict":"replace"}}`},
			{"POST", "/api/v1/claim", `{"queues":["canary-q"],"worker":"canary-w","max":3}`},
			{"PUT", "/api/v1/queues/canary-q", `{"settings":{"max_length":5}}`},
			{"PUT", "/api/v1/schedules/canary-s", `{"cron":"@hourly","task":{"type":"t","queue":"canary-q"}}`},
			{"POST", "/api/v1/operations", `{"action":"discard","filter":{}}`},
			{"POST", "/api/v1/tokens", `{"name":"more","queues":["*"],"roles":["admin"]}`},
			{"DELETE", "/api/v1/tokens/more", ""},
		})
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		done := 0
		none := map[task.Quota]int64{}
		for _, quota := range task.AllQuotas {
			none[quota] = 0
		}
		noQuotas, _ := json.Marshal(map[string]any{"quotas": none})
		for i := range 300 {
			if i%10 == 0 { // otherwise what the quotas leave is random
				s.web(operator, "PATCH", "/api/v1/namespaces/a", string(noQuotas))
				pass(time.Second)
			}
			c := steps[random.IntN(len(steps))]
			if w := s.web(token["a"], c[0], c[1], c[2]); w.Code < 300 {
				done++
			}
			if random.IntN(5) == 0 { // of everything, often less than there is
				quota := task.AllQuotas[random.IntN(len(task.AllQuotas))]
				body := fmt.Sprintf(`{"quotas":{"%s":%d}}`, quota, []int{0, 1, 10, 1000}[random.IntN(4)])
				if w := s.web(operator, "PATCH", "/api/v1/namespaces/a", body); w.Code != 200 {
					t.Errorf("%s: %d %s", body, w.Code, w.Body)
				}
			}
			if random.IntN(20) == 0 {
				pass(time.Second)
			}
		}
		if after := b.answers(); after != before {
			t.Errorf("seed %d: before\n%s\nafter\n%s", seed, before, after)
		}
		if done < 50 {
			t.Errorf("seed %d: only %d calls of 300 did something", seed, done)
		}
	})
}

// Refused callers are counted by reason, and recorded in the audit log once a minute.
func TestRefusedCallersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		operator := bearer.New()
		s := start(t, Config{InMemory: true, Tokens: TokensAlways, AdminToken: func() string { return operator }})
		pass(time.Second)
		weak, err := admin.New(s.as(operator, "")).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "weak", Queues: []string{"*"},
			Roles: []admin.Role{admin.RoleProduce}, Life: 5 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range []string{bearer.New(), bearer.New(), "guess", weak.Secret} {
			s.web(token, "GET", "/api/v1/queues", "")
		}
		for range 31 {
			pass(10 * time.Second)
		}
		s.web(weak.Secret, "GET", "/api/v1/queues", "")
		noted := s.web(operator, "GET", "/api/v1/audit?action=access.refused", "").Body.String()
		for _, want := range []string{`"malformed":1`, `"unknown":2`, `"denied":1`, `"actor":"n1"`, `"address":"192.0.2.1"`} {
			if strings.Count(noted, `"access.refused"`) != 1 || !strings.Contains(noted, want) {
				t.Errorf("the audit has no %s, or more than one entry: %s", want, noted)
			}
		}
		page := s.web(operator, "GET", "/metrics", "").Body.String()
		for reason, want := range map[string]int{"none": 0, "malformed": 1, "unknown": 2, "denied": 1, "expired": 1} {
			if line := fmt.Sprintf("pawl_access_refused_total{reason=%q} %d\n", reason, want); !strings.Contains(page, line) {
				t.Errorf("the page has no %q", line)
			}
		}
	})
}

// Whatever claim token is presented for a task of another namespace, the answer is the same as for a task that does not exist: a
// copied or guessed token reveals nothing.
func TestClaimTokensRevealNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		operator := bearer.New()
		s := start(t, Config{InMemory: true, Tokens: TokensAlways, AdminToken: func() string { return operator }})
		for _, ns := range []string{"a", "b"} {
			if _, err := admin.New(s.as(operator, "")).Namespaces().Create(t.Context(), ns, admin.QuotaChange{}); err != nil {
				t.Fatal(err)
			}
		}
		owner, err := admin.New(s.as(operator, "b")).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "owner", Queues: []string{"*"},
			Roles: []admin.Role{admin.RoleAdmin}})
		if err != nil {
			t.Fatal(err)
		}
		thief, err := admin.New(s.as(operator, "a")).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "thief", Queues: []string{"*"},
			Roles: []admin.Role{admin.RoleAdmin}})
		if err != nil {
			t.Fatal(err)
		}
		client := s.as(owner.Secret, "")
		ref, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "t"})
		if err != nil {
			t.Fatal(err)
		}
		claimed, err := claims.New(client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"default"}, Worker: "w"})
		if err != nil || len(claimed) != 1 {
			t.Fatalf("%d claims, %v", len(claimed), err)
		}
		good := claimed[0].Token
		nowhere := ref.ID[:len(ref.ID)-6] + "000000"
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 1))
		tokens := []string{good, "", "x", strings.Repeat("A", 100)}
		for range 200 {
			b := []byte(good)
			for range 1 + random.IntN(3) {
				b[random.IntN(len(b))] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[random.IntN(64)]
			}
			tokens = append(tokens, string(b[:len(b)-random.IntN(2)]))
		}
		for _, token := range tokens {
			for _, verb := range []string{"ack", "fail", "extend", "release"} {
				body := fmt.Sprintf(`{"claim_token":%q}`, token)
				theirs, nobodys := s.web(thief.Secret, "POST", "/api/v1/tasks/"+ref.ID+"/"+verb, body),
					s.web(thief.Secret, "POST", "/api/v1/tasks/"+
						nowhere+"/"+verb, body)
				if a, b := strings.ReplaceAll(theirs.Body.String(), ref.ID, "ID"), strings.ReplaceAll(nobodys.Body.String(),
					nowhere, "ID"); a != b ||
					theirs.Code != nobodys.Code || theirs.Code < 400 {
					t.Fatalf("seed %d: %s with %q: %d %s of a task of others, %d %s of none", seed, verb, token, theirs.Code,
						a, nobodys.Code, b)
				}
			}
		}
		if err := claims.New(client).Ack(t.Context(), claimed[0]); err != nil {
			t.Errorf("the holder's ack: %v", err)
		}
	})
}
