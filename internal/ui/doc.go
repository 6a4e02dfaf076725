// Package ui is the web UI: pages made on the server from templates, and a few small scripts beside them, all within the binary.
//
// It uses the public API like any other client, by the SDK, with the rights of whoever visits: see visitors.client, the one place
// that decides as whom a request calls. It knows how things are shown and asked for; it knows nothing of shards, stores and other
// packages of the server, and keeps no state but the connections of its visitors and, for some seconds, the counts of their menus.
//
// A page is one file: its data, what can be done on it, and its row in the table of UI.pages; its template has the same name
// below templates/. What changes something is an action: a form, shown by GET, and what it does, by POST. Forms are data (form.go)
// and share one template, so that an action is one function of Go.
package ui
