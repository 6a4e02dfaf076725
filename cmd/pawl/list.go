package main

import (
	"fmt"
	"io"

	"github.com/pawlq/pawl/cmd/pawl/internal/cli"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
	"github.com/pawlq/pawl/pawltype"
)

// printList reads a list and prints it: for programs each item converted by show, for people all of them as table writes them.
func printList[T, V any](a *app, list cli.ListFlags, read func(pawltype.PageRequest) (pawltype.Page[T], error), show func(T) V, table func(io.Writer, []T)) error {
	if err := list.Check(); err != nil {
		return err
	}
	items, next, err := cli.Collect(list, read)
	if err != nil {
		return err
	}
	return printPage(a, items, next, show, table)
}

// printPage prints the items of a list, and the cursor for more.
func printPage[T, V any](a *app, items []T, next string, show func(T) V, table func(io.Writer, []T)) error {
	shown := view.List[V]{Items: make([]V, len(items)), NextCursor: next}
	for i, item := range items {
		shown.Items[i] = show(item)
	}
	err := a.Print(shown, func(w io.Writer) { table(w, items) })
	if next != "" && a.Format == "table" {
		fmt.Fprintf(a.Err, "there are more: use --limit, or --cursor %s\n", next)
	}
	return err
}
