// Package docs tests the documentation: every link leads somewhere, every page is in the index, and the code of the
// pages works as it stands there.
//
//	links_test.go   links, anchors and the index
//	pages_test.go   reads the pages: their code blocks, and what each language needs
//	go_test.go      programs in Go compile, and their tests pass; fragments type-check with what testdata/PAGE.go declares
//	shell_test.go   commands run, in the order of the page, against a server of their own, and print what the page says
//	worker_test.go  the workers of docs/workers-in-any-language.md do what a worker should
//
// Package main of cmd/pawl checks that every command and flag that a page names exists. The SDKs for Python and
// TypeScript run the programs of their own pages.
package docs
