package administration

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pawlq/pawl/internal/task"
)

// A token's lifetime is bounded. One without an end must be requested explicitly.
func TestTokenLifetimes(t *testing.T) {
	for what, do := range map[string]func() (time.Duration, error){
		"life":          func() (time.Duration, error) { return lifeOf(durationpb.New(1), false) },
		"broken life":   func() (time.Duration, error) { return lifeOf(&durationpb.Duration{Seconds: 1, Nanos: -1}, false) },
		"life for ever": func() (time.Duration, error) { return lifeOf(durationpb.New(time.Hour), true) },
	} {
		if d, err := do(); d != 0 || err == nil {
			t.Errorf("lifeOf with a wrong %s = %v, %v", what, d, err)
		}
	}
}

// Without a cluster nothing can be changed.
func TestChangesWithoutACluster(t *testing.T) {
	if err := (&ClusterService{}).change(t.Context(), "x", nil, func(task.Author) error { return nil }); err != errNoAdmin {
		t.Errorf("change without a cluster: %v, want errNoAdmin", err)
	}
}

func TestLimitsAreStable(t *testing.T) {
	if maxProblems != 20 {
		t.Errorf("up to %d problems are reported, want 20", maxProblems)
	}
}
