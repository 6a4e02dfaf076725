package form

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// TestFallbackShowsNoToken: a form that can't be rebuilt asks for the token again, and keeps the other input.
func TestFallbackShowsNoToken(t *testing.T) {
	for _, sent := range [][]string{{"pawl_secret"}, {"pawl_secret", "pawl_secret"}, {"\r\npawl_secret"}, {""}} {
		f := Fallback(url.Values{TokenField: sent, "name": {"shop"}}, "/tokens")
		if all := fmt.Sprintf("%+v", f.Fields); strings.Contains(all, "pawl_secret") || !strings.Contains(all, "shop") {
			t.Errorf("a form with the token %q became %s", sent, all)
		}
		if at := f.fieldOf(TokenField); at == nil || at.Kind != "secret" || !at.Required {
			t.Errorf("the token %q is not asked for again, but has the field %+v", sent, at)
		}
	}
}
