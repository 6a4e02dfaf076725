package tasks

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/pawltype"
)

// TestFilterErrors: the error of a filter is shown at its field, whose name it does not repeat.
func TestFilterErrors(t *testing.T) {
	_, _, err := parseFilter("state:sleeping", time.Now())
	e := (*pawltype.Error)(nil)
	if !errors.As(err, &e) || e.Field != "q" || !strings.HasPrefix(e.Message, `"sleeping" is not a state: the states are scheduled,`) {
		t.Errorf("parseFilter of an unknown state: %v, want an error with the known states", err)
	}
}
