// Package policies lists the engine's policies, in the order in which they act. A new policy is a package next to this
// one and a line here. It knows nothing of what they do.
package policies

import (
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/engine/check"
	"github.com/pawlq/pawl/internal/engine/notify"
	"github.com/pawlq/pawl/internal/engine/once"
	"github.com/pawlq/pawl/internal/engine/operation"
	"github.com/pawlq/pawl/internal/engine/schedule"
	"github.com/pawlq/pawl/internal/engine/workflow"
	"github.com/pawlq/pawl/internal/store"
)

// All lists the policies of every shard.
var All = []engine.Policy{
	workflow.Policy,
	schedule.Policy,
	operation.Policy,
	once.Policy,
	actions.Policy,
	notify.Policy, // last: it reports what the others have done
}

// Check compares all rows of a namespace with its tasks, and returns what does not agree.
func Check(from store.Reader, ns string) []string { return check.Namespace(from, ns, All) }
