// Package ui is the web UI: pages rendered on the server from templates, and a few small scripts, all in the binary.
//
// It uses the public API through the SDK like any other client, with the visitor's rights: see visitors.client, the one place that decides as whom a
// request calls the API. It knows how to show things and how to ask for input. It knows nothing of shards, stores and other packages of the server,
// and keeps no state except visitors' connections and, for some seconds, the counts of their menus.
//
// A page is one file, with its data, its actions, and its row in the table UI.pages; its template has the same name in templates/. A change is an
// action: GET shows its form, and POST performs it. Forms are data (form.go) and share one template, so an action is just a Go function.
package ui
