package ui_test

import (
	"os"
	"path/filepath"
	"testing"
)

// axeCore returns the accessibility checker, which make tools fetches. It is empty if not installed.
func axeCore(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("../../.cache/axe-*/node_modules/axe-core/axe.min.js")
	must(t, err)
	if len(found) == 0 {
		return ""
	}
	source, err := os.ReadFile(found[len(found)-1])
	must(t, err)
	return string(source)
}

// axeFindings returns the problems that axe-core finds on the page, of any impact and by any rule that is not experimental.
const axeFindings = `axe.run(document, {resultTypes: ["violations"], preload: false}).then((r) => r.violations.map((v) => v.id + " (" + ` +
	`v.impact + "): " + v.nodes.slice(0, 3).map((n) => n.target.join(" ") + " " + n.html.slice(0, 120)).join(" | ")).join("; "))`

// accessible runs axe-core on the page in its current state.
func (b *browser) accessible(axe, name string) {
	b.t.Helper()
	if axe == "" {
		return
	}
	if b.eval(`String(typeof axe)`) == "undefined" {
		b.eval(axe + `; ""`)
	}
	if found := b.eval(axeFindings); found != "" {
		b.t.Errorf("%s: axe-core finds %s", name, found)
	}
}
