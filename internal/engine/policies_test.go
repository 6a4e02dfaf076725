package engine_test

import (
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/policies"
)

// The engine knows no policy: its worlds have all of them.
func init() { engine.TestPolicies = policies.All }
