package task

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestScope(t *testing.T) {
	for _, c := range []struct {
		patterns, queue string
		sees            bool
	}{
		{"mail", "mail", true}, {"mail", "mails", false}, {"mail", "email", false}, {"mail", "", false},
		{"mail*", "mail", true}, {"mail*", "mail.x", true}, {"mail*", "xmail", false},
		{"*mail", "xmail", true}, {"*mail", "mailx", false}, {"*", "", true}, {"*", "any", true}, {"**", "a", true},
		{"a*b*c", "abc", true}, {"a*b*c", "aXbYbc", true}, {"a*b*c", "ac", false}, {"a*a", "a", false}, {"a*a", "aa", true},
		{"a.*", "aXb", false}, {"mail,sms*", "sms-1", true}, {"mail,sms*", "sm", false},
	} {
		s := Scope{Queues: strings.Split(c.patterns, ",")}
		if got := s.Sees(c.queue); got != c.sees {
			t.Errorf("patterns %q, queue %q: sees %v, want %v", c.patterns, c.queue, got, c.sees)
		}
	}
	if !(Scope{}).Covers(Scope{}) || !(Scope{}).Sees("any") || (Scope{Queues: []string{}}).Sees("any") {
		t.Error("the zero scope must see everything, and one without patterns nothing")
	}
}

// A pattern matches like the corresponding anchored regular expression, and a scope covers another only if it sees all that the other does.
func TestScopeAgainstExpressions(t *testing.T) {
	random := func(letters string, n int) string {
		var b strings.Builder
		for range rand.IntN(n) {
			b.WriteByte(letters[rand.IntN(len(letters))])
		}
		return b.String()
	}
	expression := func(p string) *regexp.Regexp {
		return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, ".*") + "$")
	}
	for range 20_000 {
		p, q, name := random("ab*", 6), random("ab*", 6), random("ab", 7)
		a, b := Scope{Queues: []string{p}}, Scope{Queues: []string{q, random("ab*", 6)}}
		if rand.IntN(2) == 0 {
			slices.Reverse(b.Queues)
		}
		if got, want := a.Sees(name), expression(p).MatchString(name); got != want {
			t.Fatalf("pattern %q, name %q: sees %v, want %v", p, name, got, want)
		}
		if a.Covers(b) && b.Sees(name) && !a.Sees(name) {
			t.Fatalf("%q covers %q, but does not see %q", p, b.Queues, name)
		}
		if !a.Covers(a) || !(Scope{}).Covers(a) || a.Covers(Scope{}) {
			t.Fatalf("%q must cover itself, be covered by all, and not cover all", p)
		}
	}
}

// A scope covers another only if it covers all of its patterns.
func TestScopeCovers(t *testing.T) {
	for _, c := range []struct {
		patterns, of string
		covers       bool
	}{
		{"mail*", "mail", true}, {"mail*", "sms", false}, {"mail*", "*", false}, {"mail", "mail*", false},
		{"mail*", "mail,sms", false}, {"mail*", "sms,mail", false}, {"mail*", "mail.a,mail.b*", true},
		{"mail,sms", "sms,mail", true}, {"mail,sms", "sms,mail,fax", false},
	} {
		s, of := Scope{Queues: strings.Split(c.patterns, ",")}, Scope{Queues: strings.Split(c.of, ",")}
		if got := s.Covers(of); got != c.covers {
			t.Errorf("patterns %q, others %q: covers %v, want %v", c.patterns, c.of, got, c.covers)
		}
	}
}

func TestScopeCheck(t *testing.T) {
	l := DefaultLimits()
	for patterns, ok := range map[string]bool{"mail": true, "*": true, "a*b:c_d-e.f*": true, "": false, "a b": false, "a\x00": false,
		"(mail|sms)": false, strings.Repeat("*", MaxStars+1): false, strings.Repeat("a", 257): false, "é": false} {
		if err := (Scope{Queues: []string{patterns}}).Check("queues", l); (err == nil) != ok {
			t.Errorf("Check of pattern %q: %v", patterns, err)
		}
	}
	for what, queues := range map[string][]string{"without patterns": {}, "with too many": slices.Repeat([]string{"a"}, MaxPatterns+1),
		"with an invalid one": {"a", "b c"}} {
		if (Scope{Queues: queues}).Check("queues", l) == nil {
			t.Errorf("a scope %s was accepted", what)
		}
	}
}
