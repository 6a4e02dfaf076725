package auth

import (
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/task"
)

// Roles is a set of roles.
type Roles uint8

// The roles. Operate may look at what it operates on, so it has observe; admin has all of them.
const (
	Produce Roles = 1 << iota // enqueue
	Consume                   // claim, and settle what was claimed
	Observe                   // read
	Operate                   // cancel, retry, pause, purge, settings, schedules
	Admin                     // tokens; with all namespaces also namespaces and the cluster

	AllRoles = Produce | Consume | Observe | Operate | Admin
)

// RoleNames are the words of the API, in the order of the roles.
var RoleNames = []string{"produce", "consume", "observe", "operate", "admin"}

// ParseRoles reads a set of roles, at least one.
func ParseRoles(field string, names []string) (r Roles, err error) {
	for _, name := range names {
		i := slices.Index(RoleNames, name)
		if i < 0 {
			return 0, task.NoneOf(field, name, RoleNames)
		}
		r |= 1 << i
	}
	if r == 0 {
		return 0, task.Invalid(field, "is needed: one or more of %s", strings.Join(RoleNames, ", "))
	}
	return r, nil
}

// Names are the words for the roles.
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

// Full is the set with what its roles bring along.
func (r Roles) Full() Roles {
	if r&Admin != 0 {
		return AllRoles
	}
	if r&Operate != 0 {
		r |= Observe
	}
	return r
}

// HasAny says whether the set has one of some roles.
func (r Roles) HasAny(of Roles) bool { return r.Full()&of != 0 }

// Covers says whether whoever has r may do all that o may.
func (r Roles) Covers(o Roles) bool { return o.Full()&^r.Full() == 0 }
