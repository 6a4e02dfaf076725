package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/pawlq/pawl/pawltype"
)

// Of a list that lacks something, the items that it has are known; another error ends it as such.
func TestKnown(t *testing.T) {
	lacking := fmt.Errorf("workers: %w", &pawltype.IncompleteError{Missing: []pawltype.Missing{{Node: "n3", Reason: "is away"}}})
	for _, c := range []struct{ ends, want error }{{nil, nil}, {lacking, nil}, {pawltype.ErrUnavailable, pawltype.ErrUnavailable}} {
		list := func(yield func(string, error) bool) {
			if yield("a", nil) && yield("b", nil) && c.ends != nil {
				yield("", c.ends)
			}
		}
		if got, err := collect(list, func(name string) string { return name }); !errors.Is(err, c.want) || err == nil &&
			fmt.Sprint(got) != "[a b]" {
			t.Errorf("a list that ends with %v: %q, %v; want the error %v", c.ends, got, err, c.want)
		}
		for range Known(list) {
			break
		}
	}
}
