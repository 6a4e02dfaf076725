package schedule

import (
	"testing"

	"github.com/pawlq/pawl/internal/cron"
)

// A rule that is never due has no next tick.
func TestNeverDue(t *testing.T) {
	c := &progress{planned: 5, fires: 6}
	if c.planNext(&plan{}, cron.When{}, 7); c.planned != 0 || c.fires != 0 {
		t.Errorf("a rule that is never due has a next tick planned for %d, firing at %d", c.planned, c.fires)
	}
}
