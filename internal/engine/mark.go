package engine

import (
	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// mark gives a task that dies with a failure its fingerprint. If nothing is said of this failure, an earlier one tells.
func (r *Round) mark(ns string, id task.ID, to *schema.Exec, f schema.Failure) {
	if f == (schema.Failure{}) {
		f = schema.LastFailure(schema.ReadAttempts(r.tx, ns, id))
	}
	to.Print = fingerprint.Of(to.Type, fingerprint.Normalise(f.Message))
}
