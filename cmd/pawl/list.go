package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/pawltype"
)

// printList reads a list and prints it: for programs as the API answers, for people as table writes it.
func printList[T any](a *app, list cli.ListFlags, read func(pawltype.PageRequest) (pawltype.Page[T], error),
	table func(io.Writer, []T)) error {
	if err := list.Check(); err != nil {
		return err
	}
	page, err := cli.Collect(list, read)
	if err != nil {
		return err
	}
	return printPage(a, page, table)
}

// printPage prints the items of a list, the cursor for more, and on standard error what is missing.
func printPage[T any](a *app, page pawltype.Page[T], table func(io.Writer, []T)) error {
	a.noteMissing(page.Missing)
	if len(page.Items) == 0 && page.NextCursor == "" && a.ForPeople() {
		fmt.Fprintf(a.Err, "no %s\n", a.Listed)
		return partial(nil, page.Missing)
	}
	err := a.PrintPages(page.NextCursor, page.Missing, func(w io.Writer) { table(w, page.Items) })
	if page.NextCursor != "" && a.ForPeople() {
		fmt.Fprintf(a.Err, "there are more: use --limit, or --cursor %s\n", page.NextCursor)
	}
	return partial(err, page.Missing)
}

// partial returns the error of a command that has shown what is known: scripts must notice that a shard is missing.
// Without a node, only its workers and its counts since its start are missing.
func partial(err error, missing []pawltype.Missing) error {
	if err == nil && slices.ContainsFunc(missing, func(m pawltype.Missing) bool { return m.Node == "" }) {
		return cli.ErrSilent
	}
	return err
}

// noteMissing names on standard error the shards and nodes whose part is missing in what is shown.
func (a *app) noteMissing(missing []pawltype.Missing) {
	for _, m := range missing {
		fmt.Fprintf(a.Err, "missing here: %s\n", text.Printable(m.String()))
	}
}
