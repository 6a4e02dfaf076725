// Package system has the pages about the server rather than its tasks: the cluster, namespaces and quotas, tokens,
// webhooks, the audit log, settings, and the API reference.
//
// It knows no page of another package.
package system

import (
	"embed"
	"slices"

	"github.com/pawlq/pawl/internal/ui/web"
)

//go:embed templates
var templates embed.FS

// Pages returns the pages of this package. openAPI returns the document of the API reference; nil: there is none.
func Pages(openAPI func() []byte) web.Set {
	return web.Set{
		Templates: templates,
		Pages:     slices.Concat(auditPages, clusterPages, webhookPages, namespacePages, tokenPages, settingsPages, apiPages(openAPI)),
		Actions:   slices.Concat(clusterActions, webhookActions, namespaceActions, tokenActions, settingsActions),
	}
}
