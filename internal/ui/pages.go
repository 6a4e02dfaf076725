package ui

import (
	"embed"
	"slices"

	"github.com/pawlq/pawl/internal/ui/tasks"
	"github.com/pawlq/pawl/internal/ui/web"
)

//go:embed templates
var templateFiles embed.FS

// sets are all pages. openAPI returns the document of the API reference; nil: there is none.
func sets(openAPI func() []byte) []web.Set {
	return []web.Set{tasks.Pages, {
		Templates: templateFiles,
		Pages: slices.Concat(overviewPages, queuePages, typePages, deadPages, workerPages, markerPages, auditPages,
			clusterPages, webhookPages, namespacePages, tokenPages, settingsPages, apiPages(openAPI)),
		Actions: slices.Concat(queueActions, queueSettingsActions, workerActions, markerActions, clusterActions, webhookActions,
			namespaceActions, tokenActions, settingsActions),
	}}
}
