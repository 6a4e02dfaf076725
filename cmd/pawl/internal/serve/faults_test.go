package serve

import (
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"testing"
)

// TestNoFaultsAreBuiltIn: the build under test has no planted faults, like the released one.
func TestNoFaultsAreBuiltIn(t *testing.T) {
	if err := checkFaults(slog.New(slog.NewTextHandler(io.Discard, nil))); err != nil {
		t.Error(err)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("the test has no build info")
	}
	for _, s := range info.Settings {
		if s.Key == "-tags" && strings.Contains(s.Value, "planted") {
			t.Errorf("the test was built with the tags %s", s.Value)
		}
	}
}
