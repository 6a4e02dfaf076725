// Package queues has the pages about the state of queues as a whole: the overview, queues and their settings, task
// types, dead letters, workers, and the markers on their charts.
//
// It knows the pages of package tasks, to which it links tasks and operations, but not those about the server.
package queues

import (
	"embed"
	"slices"

	"github.com/pawlq/pawl/internal/ui/web"
)

//go:embed templates
var templates embed.FS

// Pages are the pages of this package.
var Pages = web.Set{
	Templates: templates,
	Pages:     slices.Concat(overviewPages, queuePages, typePages, deadPages, workerPages, markerPages),
	Actions:   slices.Concat(queueActions, queueSettingsActions, workerActions, markerActions),
}
