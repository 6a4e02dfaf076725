// Package ui is the web UI: pages rendered on the server from templates, and a few small scripts, all in the binary. It
// has the pages about queues as a whole and about the server; those about single tasks, to which it links, are in package tasks.
//
// The pages stand on web, which answers requests. They use the public API through the SDK like any other client, with
// the visitor's rights: see visitor.Of, the one place that decides as whom a request calls the API. The UI knows
// nothing of shards, stores and other packages of the server, and keeps no state except visitors' connections and, for
// some seconds, the counts of their menus.
//
// A page is one file, with its data, its actions, and its row in a list such as queuePages; its template has the same
// name in templates/ beside it. A change is an action: GET shows its form, and POST performs it. Forms are data
// (package form) and share one template, so an action is just a Go function.
package ui
