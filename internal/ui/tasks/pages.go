// Package tasks has the pages about single tasks and what changes many of them: search, a task and its workflow,
// enqueueing, saved views, groups, schedules and bulk operations.
//
// It knows the language of filters, and what can be done with a task in each state. It knows no page of another package.
package tasks

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
	Pages:     slices.Concat(taskPages, schedulePages, groupPages, operationPages),
	Actions:   slices.Concat(taskActions, viewActions, selectedActions, enqueueActions, scheduleActions, groupActions, operationActions),
	Raw:       rawAddresses,
}
