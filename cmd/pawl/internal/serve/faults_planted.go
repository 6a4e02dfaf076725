//go:build planted

package serve

import (
	"errors"
	"log/slog"
	"os"
)

// checkFaults lets a build that holds faults on purpose serve nobody who does not want that.
func checkFaults(log *slog.Logger) error {
	if os.Getenv("PAWL_SERVE_WITH_FAULTS") == "" {
		return errors.New("this build holds faults on purpose (build tag planted) and loses data: it serves only with PAWL_SERVE_WITH_FAULTS=1")
	}
	log.Error("THIS BUILD HOLDS FAULTS ON PURPOSE AND LOSES DATA (build tag planted)", "fault", os.Getenv("PAWL_PLANTED"))
	return nil
}
