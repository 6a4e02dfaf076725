package engine_test

import (
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/engine/policies"
)

// The engine knows no policy, but the tests' worlds have all of them.
func init() {
	engine.TestPolicies, engine.TestCheck, engine.TestCheckAudit = policies.All, policies.Check, actions.Check
}
