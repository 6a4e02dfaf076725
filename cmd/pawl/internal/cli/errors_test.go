package cli

import (
	"context"
	"fmt"
	"testing"

	"github.com/pawlq/pawl/pawltype"
)

// TestTrouble: what a screen says of a server that gives no answer is a few words.
func TestTrouble(t *testing.T) {
	a := &App{Server: "n1:7295"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("stats: %w", errNobody), "no server at n1:7295"},
		{&pawltype.Error{Code: "unavailable", Message: "shard 1 has no leader"}, "unavailable: shard 1 has no leader"},
		{context.DeadlineExceeded, "the server at n1:7295 takes too long"},
		{&pawltype.Error{Code: "unauthenticated", Message: "a token is needed"}, "the server at n1:7295 wants a token"},
		{&pawltype.Error{Code: "permission_denied", Message: "not yours"}, "permission_denied: not yours"},
	} {
		if got := a.Describe(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
