package forward

import (
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// A shard may be led by a node of an older release as long as the cluster's feature level allows it. This node's copy of the map may be out
// of date, but levels only rise.

// Level returns the feature level that all nodes work at; 0: not known yet.
func (f *Forwarder) Level() int { return f.cfg.Map.Level() }

// RequireLevel returns an error if a shard may be led by a node that does not know a field.
func (f *Forwarder) RequireLevel(field string) error {
	switch level := f.Level(); {
	case level == 0:
		return task.Unavailable(NoLeaderRetry, "%s: this node does not know the cluster's feature level yet", field)
	case level < cluster.PoliciesLevel:
		return &task.Error{Code: task.CodeWrongState, Field: field, Message: task.Invalid(field,
			"needs feature level %d, and the cluster is at %d: see `pawl cluster raise-level`", cluster.PoliciesLevel, level).Message}
	}
	return nil
}

// AuditAuthor returns the author to record for an operator's call: none while a shard may be led by a node that would not know how to expire
// the entries.
func (f *Forwarder) AuditAuthor(by task.Author) (task.Author, error) {
	if by.IsZero() {
		return by, nil
	}
	switch level := f.Level(); {
	case level == 0:
		return by, task.Unavailable(NoLeaderRetry, "this node does not know the cluster's feature level yet")
	case level < cluster.PoliciesLevel:
		return task.Author{}, nil
	}
	return by, nil
}
