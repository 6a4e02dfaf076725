package auth

import (
	"strings"

	"github.com/pawlq/pawl/internal/task"
)

// Names of namespaces: the one that always exists, and the word for all.
const (
	DefaultNamespace = "default"
	AllNamespaces    = "*"
)

// maxNamespace bounds the name of a namespace: it is in the key of every row.
const maxNamespace = 63

// CheckNamespace rejects an invalid name of a namespace.
func CheckNamespace(field, name string) error {
	if name == "" || len(name) > maxNamespace {
		return task.Invalid(field, "%q has %d bytes, 1 to %d are allowed", task.Cut(name, 64), len(name), maxNamespace)
	}
	for i, c := range []byte(name) {
		inner := c == '-' && i > 0 && i < len(name)-1
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || inner) {
			return task.Invalid(field, "%q is not a namespace name: use a to z, 0 to 9, and - within it", name)
		}
	}
	return nil
}

// Rights is what a token allows.
type Rights struct {
	Namespace string   `json:"namespace"` // "*": all
	Roles     Roles    `json:"roles"`
	Queues    []string `json:"queues,omitempty"` // patterns; nil: all
}

// Everything is the rights of the cluster's administrator.
var Everything = Rights{Namespace: AllNamespaces, Roles: AllRoles}

// Scope returns the queues that calls with these rights are limited to.
func (r Rights) Scope() task.Scope { return task.Scope{Queues: r.Queues} }

// InAll reports whether the rights apply to all namespaces.
func (r Rights) InAll() bool { return r.Namespace == AllNamespaces }

// Covers reports whether r allows everything that o allows.
func (r Rights) Covers(o Rights) bool {
	return (r.InAll() || r.Namespace == o.Namespace) && r.Roles.Covers(o.Roles) && r.Scope().Covers(o.Scope())
}

// Check rejects invalid rights.
func (r Rights) Check(l task.Limits) error {
	if r.Roles == 0 || r.Roles&^AllRoles != 0 {
		return task.Invalid("roles", "is required: one or more of %s", strings.Join(RoleNames, ", "))
	}
	if err := r.Scope().Check("queues", l); err != nil || r.InAll() {
		return err
	}
	return CheckNamespace("namespace", r.Namespace)
}
