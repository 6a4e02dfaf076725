package visitor

import (
	"slices"
	"strings"

	"github.com/pawlq/pawl/admin"
)

// Rights returns the visitor's rights as words by which pages hide actions. Whatever pages show, the API decides.
func Rights(me *admin.Identity) string {
	if me == nil || !me.TokenRequired {
		return "observe operate produce admin cluster"
	}
	var all []string
	for _, r := range me.Roles {
		all = append(all, string(r))
	}
	if slices.Contains(me.Roles, admin.RoleAdmin) && me.AllNamespaces {
		all = append(all, "cluster")
	}
	return strings.Join(all, " ")
}
