package gateway

import (
	"maps"
	"slices"
	"testing"

	"github.com/pawlq/pawl/internal/sqs"
)

// Each action of the SQS door says who may do it, and nothing else stands in the table.
func TestSQSAccessTable(t *testing.T) {
	if rows, actions := slices.Sorted(maps.Keys(sqsNeeds)), sqs.Actions(); !slices.Equal(rows, actions) || len(actions) != 23 {
		t.Errorf("the table has rows for %q, the door serves %q", rows, actions)
	}
	for action, n := range sqsNeeds {
		if n.reach == 0 || n.roles == 0 {
			t.Errorf("%s is open to whoever has a token, or to nobody: %+v", action, n)
		}
	}
}
