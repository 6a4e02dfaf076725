package tokens

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
)

// Tokens are bounded per namespace and in total, with some reserved for tokens of all namespaces.
func TestMayHaveToken(t *testing.T) {
	for _, c := range []struct {
		ns            string
		has, all, any int // in the namespace, in all, and those for all namespaces
		want          string
	}{
		{"team", maxTokensOf - 1, 600, 0, ""}, {"team", maxTokensOf + 1, 600, 0, "the limit of 500"},
		{auth.AllNamespaces, 0, maxTokens + 1, 0,
			"the limit of 5000"}, {"team", maxTokensOf, 600, 0, `the limit of 500 tokens in namespace "team"`},
		{"default", maxTokensOf, 600, 0, ""}, {"default", maxTokensOfDefault - 1, 3000, 0, ""}, {"default", maxTokensOfDefault, 3000, 0,
			`the limit of 2500 tokens in namespace "default"`},
		{"team", 0, maxTokens - keptTokens - 1, 0, ""}, {"team", 0, maxTokens - keptTokens, 0,
			"the limit of 4500 tokens for single namespaces"},
		{"team", 0, maxTokens - keptTokens, 1, ""}, {auth.AllNamespaces, 0, maxTokens - 1, 0, ""}, {auth.AllNamespaces, 0, maxTokens, 0,
			"the limit of 5000 tokens is reached"},
		{"team", 0, maxTokens, keptTokens + 1, "the limit of 5000 tokens is reached"},
	} {
		made := auth.Token{Rights: auth.Rights{Namespace: c.ns}, Name: "new"}
		err := mayHaveToken(&made, map[string]int{c.ns: c.has, auth.AllNamespaces: c.any}, c.all)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// When as many uses wait to be written as there may be tokens, further tokens are ignored, and those that have one are still updated.
func TestNotedUsesAreBounded(t *testing.T) {
	s := New(nil)
	name := func(i int) auth.TokenName { return auth.TokenName{Namespace: "team", Name: fmt.Sprint(i)} }
	for i := range maxTokens + 1 {
		s.NoteUses([]auth.Use{{Token: name(i), At: 10}})
	}
	s.NoteUses([]auth.Use{{Token: name(0), At: 20}, {Token: name(1), At: 5}})
	for i, want := range map[int]store.Time{0: 20, 1: 10, maxTokens - 1: 10, maxTokens: 0} {
		if got := s.usedAt(name(i)); got != want {
			t.Errorf("token %d was last used at %d, want %d", i, got, want)
		}
	}
}
