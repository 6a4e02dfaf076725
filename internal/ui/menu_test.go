package ui_test

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
)

// getAs gets a page with a token.
func (w *world) getAs(t *testing.T, token, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	return w.get(t, path, append(headers, as(token)...)...)
}

// TestMenuCounts: the menu counts what may need attention, in whole pages and in refreshes, for visitors who may see it all.
func TestMenuCounts(t *testing.T) {
	w := startGuarded(t)
	w.enqueue(t, 3, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail"), pawl.MaxAttempts(1)) })
	claimed, err := claims.New(w.client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail"}, Max: 2})
	must(t, err)
	for _, c := range claimed {
		_, err := claims.New(w.client).Fail(t.Context(), c, errors.New("no"))
		must(t, err)
	}
	all := w.tokenFor(t, "all", admin.RoleObserve)
	some, err := admin.New(w.client).Access().CreateToken(t.Context(), admin.TokenSpec{Name: "some", Roles: []admin.Role{admin.RoleObserve},
		Queues: []string{"other*"}})
	must(t, err)
	for _, c := range []struct{ token, dead, header string }{
		{all, `data-count="/dead" title="dead letters">2</b>`, "/dead=2"},
		{some.Secret, `data-count="/dead" title="dead letters" hidden>0</b>`, ""},
	} {
		if _, body := w.getAs(t, c.token, "/queues"); !strings.Contains(body, c.dead) {
			t.Errorf("the menu lacks %s", c.dead)
		}
		resp, _ := w.getAs(t, c.token, "/queues", "HX-Request", "true")
		if got := resp.Header.Get("Pawl-Menu"); c.header == "" && strings.Contains(got, "/dead") || !strings.Contains(got, c.header) {
			t.Errorf("a refresh has the counts %q, want them to contain %q", got, c.header)
		}
	}
}

// TestMenusOnAPhone: the menu and the actions of a page open from buttons, with scripts and without, and axe-core finds
// nothing wrong with them or with a form on top of the page.
func TestMenusOnAPhone(t *testing.T) {
	b := startBrowser(t)
	w := startWorld(t, "")
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail")) })
	axe := axeCore(t)
	b.size(390, 844, true)
	for _, scripts := range []bool{true, false} {
		b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": !scripts}, nil)
		b.visit(w.url + "/queues/mail")
		if got := b.seen(`.menu a, .pop-list a, .actions a[href*="/pause"]`); got != "" {
			t.Errorf("scripts %t: before anything is opened, these are visible: %q", scripts, got)
		}
		b.click(".pop summary")
		if got := b.eval(
			`[...document.querySelectorAll(".pop-list a")].filter((a) => a.checkVisibility()).map((a) => a.textContent).join()`); got !=
			"Pause…,Settings…,Tasks,Dead letters,Purge…,Delete…" {
			t.Errorf("scripts %t: the actions are %q", scripts, got)
		}
		if scripts {
			b.accessible(axe, "the actions of a page")
			b.key("Escape")
			b.until(`document.querySelector(".pop[open]") === null && document.activeElement.matches(".pop summary")`)
			b.click(`.pop-list a[href$="/pause"]`)
			b.until(`document.querySelector("dialog[open] form") !== null && document.querySelector(".pop[open]") === null`)
			b.accessible(axe, "a form over a page")
			b.key("Escape")
			b.until(`document.querySelector("dialog[open]") === null`)
		}
		b.click(".menu-switch")
		if got := b.eval(`String([...document.querySelectorAll(".menu a")].filter((a) => a.checkVisibility()).length > 10)`); got !=
			"true" {
			t.Errorf("scripts %t: the menu did not open", scripts)
		}
		if scripts {
			b.accessible(axe, "the menu")
		}
		b.shoot("phone-menu")
		b.loading(func() { b.click(`.menu a[href="/tasks"]`) })
		if got := b.eval("location.pathname"); got != "/tasks" {
			t.Errorf("scripts %t: the menu's link leads to %s, want /tasks", scripts, got)
		}
	}
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": false}, nil)
	b.check(w.url)
}

// TestPagesAskForWhatVisitorsMay: pages make no calls that their visitor has no right to. Each would count as a refusal in the audit log.
func TestPagesAskForWhatVisitorsMay(t *testing.T) {
	w := startGuarded(t)
	w.enqueue(t, 1, func(int) pawl.Item { return job("a", `{}`, pawl.Queue("mail"), pawl.MaxAttempts(1)) })
	w.finish(t, "mail", 1, func(*pawl.Claim, int) error { return errors.New("no") })
	id := w.newest(t, admin.Filter{Queue: "mail"})
	refused := func() string {
		t.Helper()
		_, body := w.get(t, "/metrics", "Authorization", "Bearer "+w.token)
		return regexp.MustCompile(`pawl_access_refused_total\{[^}]*reason="denied"\} (\d+)`).FindString(body)
	}
	before := refused()
	for name, spec := range map[string]admin.TokenSpec{
		"observer":     {Roles: []admin.Role{admin.RoleObserve}, Queues: []string{"*"}},
		"operator":     {Roles: []admin.Role{admin.RoleObserve, admin.RoleOperate}, Queues: []string{"*"}},
		"of-some":      {Roles: []admin.Role{admin.RoleObserve, admin.RoleOperate}, Queues: []string{"mail"}},
		"watches-some": {Roles: []admin.Role{admin.RoleObserve}, Queues: []string{"mail"}},
	} {
		spec.Name = name
		token, err := admin.New(w.client).Access().CreateToken(t.Context(), spec)
		must(t, err)
		_, menu := w.getAs(t, token.Secret, "/queues")
		paths := []string{"/queues/mail", "/tasks/" + id, "/types/a"}
		menu, _, _ = strings.Cut(menu[strings.Index(menu, `<nav class="menu"`):], "</nav>")
		for _, m := range regexp.MustCompile(`href="(/[a-z]*)"`).FindAllStringSubmatch(menu, -1) {
			paths = append(paths, m[1])
		}
		if len(paths) < 10 {
			t.Fatalf("the menu of %s has only %q", name, paths)
		}
		for _, path := range paths {
			for _, script := range []string{"false", "true"} {
				if resp, body := w.getAs(t, token.Secret, path, "HX-Request", script); resp.StatusCode != 200 {
					t.Errorf("%s of %s has status %d: %s", path, name, resp.StatusCode, body)
				}
				if now := refused(); now != before {
					t.Errorf("%s of %s, with scripts %s, makes calls that are refused: %s, before %s", path, name, script, now, before)
					before = now
				}
			}
		}
	}
}
