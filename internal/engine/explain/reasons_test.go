package explain

import (
	"testing"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/task"
)

// A queue's explanation uses only the codes that package task lists, so that all of them have a place in the order.
func TestReasonsAreOrdered(t *testing.T) {
	for _, code := range []task.Why{whyDraining().Code, whyHeld("q", task.Hold{Key: "k"}).Code, whyHeld("q", task.Hold{Type: "t"}).Code, whyBreaker("q", breaker.Info{}).Code} {
		if code.Order() < 0 {
			t.Errorf("code %s is missing from task.Whys", code)
		}
	}
}
