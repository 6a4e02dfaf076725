//go:build planted

package serve

import (
	"errors"
	"log/slog"
	"os"
)

// checkFaults keeps a build with planted faults from serving unless that is asked for explicitly.
func checkFaults(log *slog.Logger) error {
	if os.Getenv("PAWL_SERVE_WITH_FAULTS") == "" {
		return errors.New("this build has planted faults (build tag planted) and loses data: it serves only with PAWL_SERVE_WITH_FAULTS=1")
	}
	log.Error("THIS BUILD HOLDS FAULTS ON PURPOSE AND LOSES DATA (build tag planted)", "fault", os.Getenv("PAWL_PLANTED"))
	return nil
}
