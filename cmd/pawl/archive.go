package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/archive"
)

func newArchive(a *app) *cobra.Command {
	return cli.Group("archive", "List and restore archived dead letters",
		`Before a dead letter is removed, by retention or discard, the node that leads its shard writes it to its
archive: files of JSON lines in archive/ of its data directory. These commands read the files, so run them
where the files are, or copy archive/ of each node first.`,
		newArchiveLs(a), newArchiveRestore(a))
}

// archives are the directories of the archives that a command reads, and what it looks for there.
type archives struct {
	from  []string
	queue string
}

func (r *archives) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&r.from, "from", nil, "archive or data directory of a node; repeat it for each node")
	cmd.Flags().StringVar(&r.queue, "queue", "", "in this queue")
}

// archived is an archived dead letter, and where it is.
type archived struct {
	archive.Place
	id, queue                  string
	archivedAt, created, ended time.Time
}

// Read reads the dead letter again.
func (a archived) Read() (archive.Record, error) {
	r, err := a.Place.Read()
	if err == nil && r.ID != a.id {
		err = fmt.Errorf("%s: the file has changed: repeat the command", a.Place)
	}
	return r, err
}

// read finds the dead letters of a namespace, or of all if it is "". It names damaged records on standard error and
// leaves them out; whole says that there were none.
func (r *archives) read(a *app, ns string, found func(archived)) (whole bool, err error) {
	if len(r.from) == 0 {
		return false, cli.Usage("--from is required: the archive or data directory of each node")
	}
	var files []archive.File
	for _, dir := range r.from {
		in, err := archive.FilesIn(dir)
		if err != nil {
			return false, fmt.Errorf("--from: %w", err)
		}
		files = append(files, in...)
	}
	if len(files) == 0 {
		return false, fmt.Errorf("--from: no file of an archive in %s", strings.Join(r.from, ", "))
	}
	whole = true
	for _, f := range files {
		if ns != "" && f.Namespace != ns {
			continue
		}
		for record, err := range f.Records() {
			switch {
			case err != nil:
				fmt.Fprintln(a.Err, text.Printable(err.Error()))
				whole = false
			case r.queue == "" || r.queue == record.Queue:
				found(archived{record.Place, record.ID, record.Queue, record.ArchivedAt, record.CreatedAt, record.EndedAt})
			}
		}
	}
	return whole, nil
}

func newArchiveLs(a *app) *cobra.Command {
	var from archives
	var limit int
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List archived dead letters, newest first", Args: cli.NoArgs,
		Long:    "List archived dead letters of all namespaces, newest first. With -o json they are printed as they are in the files.",
		Example: "  pawl dlq archive ls --from /var/lib/pawl --queue mail",
	}
	from.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "show at most this many, 1 to 100000")
	cmd.RunE = a.Run(func(*cobra.Command, []string) error {
		if err := (&cli.ListFlags{Limit: limit}).Check(); err != nil {
			return err
		}
		newest, more := []archived(nil), false
		cut := func() {
			slices.SortStableFunc(newest, func(x, y archived) int { return y.archivedAt.Compare(x.archivedAt) })
			more = more || len(newest) > limit
			newest = newest[:min(len(newest), limit)]
		}
		whole, err := from.read(a, "", func(found archived) {
			if newest = append(newest, found); len(newest) > 2*limit {
				cut()
			}
		})
		if err != nil {
			return err
		}
		cut()
		shown := struct {
			Items []archive.Record `json:"items"`
		}{[]archive.Record{}}
		for _, at := range newest {
			r, err := at.Read()
			if err != nil { // its node has removed the file meanwhile, or writes a new one
				fmt.Fprintln(a.Err, text.Printable(err.Error()))
				whole = false
				continue
			}
			shown.Items = append(shown.Items, r)
		}
		if err := a.Print(shown, func(w io.Writer) { writeArchive(w, shown.Items) }); err != nil {
			return err
		}
		if more {
			fmt.Fprintln(a.Err, "there are more: use --limit or --queue")
		}
		if !whole {
			return cli.ErrSilent
		}
		return nil
	})
	return cmd
}

func writeArchive(w io.Writer, records []archive.Record) {
	now := time.Now()
	rows := make([][]string, len(records))
	for i, r := range records {
		message := ""
		for _, at := range r.Attempts {
			message = cmp.Or(at.Message, message)
		}
		rows[i] = []string{r.ID, r.Type, r.Namespace, r.Queue, r.Cause, text.Ago(r.ArchivedAt, now), text.Short(message, 60)}
	}
	text.Columns(w, "ID|TYPE|NAMESPACE|QUEUE|CAUSE|ARCHIVED|ERROR", rows)
}
