package auth

import (
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/task"
)

// Roles is a set of roles.
type Roles uint8

// The roles. Operate includes observe, since operators must see what they operate on; admin includes all.
const (
	Produce Roles = 1 << iota // enqueue
	Consume                   // claim, and settle what was claimed
	Observe                   // read
	Operate                   // cancel, retry, pause, purge, settings, schedules
	Admin                     // tokens; with all namespaces also namespaces and the cluster

	AllRoles = Produce | Consume | Observe | Operate | Admin
)

// RoleNames are the API's words for the roles, in their order.
var RoleNames = []string{"produce", "consume", "observe", "operate", "admin"}

// ParseRoles parses a set of roles, at least one.
func ParseRoles(field string, names []string) (r Roles, err error) {
	for _, name := range names {
		i := slices.Index(RoleNames, name)
		if i < 0 {
			return 0, task.NoneOf(field, name, RoleNames)
		}
		r |= 1 << i
	}
	if r == 0 {
		return 0, task.Invalid(field, "is required: one or more of %s", strings.Join(RoleNames, ", "))
	}
	return r, nil
}

// Names returns the words for the roles.
func (r Roles) Names() (names []string) {
	for i, name := range RoleNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String implements fmt.Stringer.
func (r Roles) String() string { return strings.Join(r.Names(), ", ") }

// Full returns the set together with the roles that its members include.
func (r Roles) Full() Roles {
	if r&Admin != 0 {
		return AllRoles
	}
	if r&Operate != 0 {
		r |= Observe
	}
	return r
}

// HasAny reports whether the set has at least one of the given roles.
func (r Roles) HasAny(of Roles) bool { return r.Full()&of != 0 }

// Covers reports whether r allows everything that o allows.
func (r Roles) Covers(o Roles) bool { return o.Full()&^r.Full() == 0 }
