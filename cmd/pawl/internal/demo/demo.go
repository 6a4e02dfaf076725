// Package demo implements "pawl demo": a small program with an embedded broker that shows what Pawl does, on real pictures.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/embedded"
	"github.com/pawlq/pawl/pawltype"
	"github.com/spf13/cobra"
)

// New returns the command "pawl demo".
func New(a *cli.App) *cobra.Command {
	var stay bool
	var listen string
	cmd := &cobra.Command{
		Use: "demo [PICTURE...]", Short: "Run a real workload, in a temporary directory",
		Long: `Start a broker in this process, on a temporary directory, and run a workload on real pictures: those
that you name, or those that Go ships for its own tests. Each picture gets a checksum and a thumbnail,
and is put into a store that fails twice. A few are published to an album that doesn't exist: they
become dead letters, are replayed once it exists, and succeed. The results are verified.

examples/thumbnails does the same as a small program to copy from.`,
		Example: "  pawl demo\n  pawl demo ~/Pictures/*.jpg\n  pawl demo --stay",
		Args:    cobra.ArbitraryArgs,
	}
	cmd.Flags().BoolVar(&stay, "stay", false, "keep serving afterwards, until interrupted")
	cmd.Flags().StringVar(&listen, "listen", cli.DefaultServer, "with --stay: address to serve on")
	cmd.RunE = a.Run(func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("listen") && !stay {
			return cli.Usage("--listen needs --stay")
		}
		if !stay {
			listen = ""
		}
		return run(cmd.Context(), a, args, listen)
	})
	return cmd
}

// demo is one run of the demo. With an address to listen on, it keeps serving afterwards.
type demo struct {
	app      *cli.App
	broker   *embedded.Broker
	client   *pawl.Client
	dir      string // removed at the end
	pictures []string
	classes  []*class
}

// class is a type of task with the outcomes of its tasks.
type class struct {
	name, note string
	refs       []*pawl.Ref
	tasks      []*pawltype.Task // as of their end
}

func run(ctx context.Context, a *cli.App, args []string, listen string) (err error) {
	d := &demo{app: a}
	if d.pictures, err = findPictures(args); err != nil {
		return err
	}
	if d.dir, err = os.MkdirTemp("", "pawl-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	log := slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelError}))
	d.broker, err = embedded.Open(filepath.Join(d.dir, "data"), embedded.Options{Listen: listen, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.broker.Close(context.WithoutCancel(ctx))) }()
	d.client = d.broker.Client()
	if err := d.runAll(ctx); err != nil {
		return err
	}
	if err := d.report(listen != ""); err != nil || listen == "" {
		return err
	}
	fmt.Fprintf(a.Err, "\nServing until interrupted:\n  http://%s/   the web UI\n  pawl --server %[1]s task ls\n", d.broker.Addr())
	<-ctx.Done()
	return nil
}

// runAll runs everything with a worker in the same process.
func (d *demo) runAll(ctx context.Context) error {
	start := time.Now()
	work, stop := context.WithCancel(ctx)
	defer stop()
	worker := pawl.NewWorker(d.client, d.handlers(), pawl.WorkerConfig{
		Queues: pawl.Weighted{"pictures": 3, "store": 1}, Concurrency: 2 * runtime.NumCPU(), Name: "demo",
	})
	ran := make(chan error, 1)
	go func() { ran <- worker.Run(work) }()
	err := errors.Join(d.pictureRound(ctx), d.albumRound(ctx))
	stop()
	if err = errors.Join(err, <-ran); err != nil {
		return err
	}
	if err := d.verify(); err != nil {
		return fmt.Errorf("verification: %w", err)
	}
	n := 0
	for _, c := range d.classes {
		n += len(c.tasks)
	}
	fmt.Fprintf(d.app.Err, "%d pictures, %d tasks, each synced to disk, in %s\n", len(d.pictures), n,
		time.Since(start).Round(time.Millisecond))
	return nil
}

// pictureRound enqueues three tasks for each picture and waits until they have ended.
func (d *demo) pictureRound(ctx context.Context) error {
	sums := &class{name: checksum{}.TaskType(), note: "sha256, recomputed and equal"}
	thumbs := &class{name: thumbnail{}.TaskType(), note: "decoded again, sizes as promised"}
	puts := &class{name: put{}.TaskType(), note: "failed twice, retried, succeeded"}
	d.classes = append(d.classes, sums, thumbs, puts)
	for i, path := range d.pictures {
		for class, args := range map[*class]pawl.Args{
			sums:   checksum{Path: path},
			thumbs: thumbnail{Path: path, Out: d.thumbPath(i)},
			puts:   put{Path: path},
		} {
			ref, err := d.client.Enqueue(ctx, args)
			if err != nil {
				return err
			}
			class.refs = append(class.refs, ref)
		}
	}
	return d.await(ctx, "pictures", sums, thumbs, puts)
}

// published is the number of thumbnails that go into the album.
const published = 3

// albumRound lets tasks fail for lack of a directory, creates it, and replays them.
func (d *demo) albumRound(ctx context.Context) error {
	if ctx.Err() != nil || len(d.classes) == 0 {
		return ctx.Err()
	}
	album := &class{name: publish{}.TaskType(), note: "dead letters, replayed, succeeded"}
	for i, t := range d.classes[1].tasks {
		if t.State != pawltype.StateSucceeded || len(album.refs) == published {
			continue
		}
		ref, err := d.client.Enqueue(ctx, publish{Thumb: d.thumbPath(i), Album: d.albumPath()})
		if err != nil {
			return err
		}
		album.refs = append(album.refs, ref)
	}
	d.classes = append(d.classes, album)
	for _, ref := range album.refs {
		var ended *pawltype.EndedError
		if _, err := ref.Wait(ctx); !errors.As(err, &ended) || ended.Task.State != pawltype.StateDead {
			return fmt.Errorf("task %s was to become a dead letter: %w", ref.ID, err)
		}
	}
	if err := os.Mkdir(d.albumPath(), 0o700); err != nil {
		return err
	}
	replay, err := d.app.Admin(d.client).WithReason("the album is there now").Operations().Start(ctx,
		admin.OperationSpec{Action: admin.ActionReplay,
			Filter: &admin.Filter{Queue: "pictures", Type: album.name}})
	if err != nil {
		return err
	}
	if _, err := d.app.Admin(d.client).Operations().Wait(ctx, replay.ID, nil); err != nil {
		return err
	}
	return d.await(ctx, "album", album)
}

// await waits until all tasks have ended, in whatever state.
func (d *demo) await(ctx context.Context, label string, classes ...*class) error {
	total := 0
	for _, c := range classes {
		total += len(c.refs)
	}
	bar := d.app.Progress(label, total)
	defer bar.Done()
	n := 0
	for _, c := range classes {
		for _, ref := range c.refs {
			task, err := ref.Wait(ctx)
			if task == nil {
				return err
			}
			c.tasks = append(c.tasks, task)
			n++
			bar.Set(n)
		}
	}
	return nil
}

type report struct {
	Type      string `json:"type"`
	Tasks     int    `json:"tasks"`
	Succeeded int    `json:"succeeded"`
	Discarded int    `json:"discarded"`
	Attempts  int    `json:"attempts"`
	Failures  int    `json:"failures"`
	Verified  string `json:"verified"`
}

// report prints what happened and, unless the demo keeps serving, where to look next.
func (d *demo) report(stays bool) error {
	var views []report
	var rows [][]string
	for _, c := range d.classes {
		v := report{Type: c.name, Tasks: len(c.tasks), Verified: c.note}
		for _, t := range c.tasks {
			v.Attempts += len(t.AttemptLog)
			for _, at := range t.AttemptLog {
				if at.Error != nil {
					v.Failures++
				}
			}
			switch t.State {
			case pawltype.StateSucceeded:
				v.Succeeded++
			case pawltype.StateDiscarded:
				v.Discarded++
			}
		}
		if v.Discarded > 0 {
			v.Verified += "; damaged pictures discarded"
		}
		views = append(views, v)
		row := []string{v.Type}
		for _, n := range []int{v.Tasks, v.Succeeded, v.Discarded, v.Attempts, v.Failures} {
			row = append(row, strconv.Itoa(n))
		}
		rows = append(rows, append(row, v.Verified))
	}
	return d.app.Print(struct {
		Items []report `json:"items"`
	}{views}, func(w io.Writer) {
		text.Columns(w, "TYPE|TASKS|SUCCEEDED|DISCARDED|RUNS|FAILED|VERIFIED", rows)
		if stays {
			return
		}
		fmt.Fprint(w, `
Where to look next:
  pawl demo --stay              the same, and keeps serving: look around in the web UI
  pawl serve                    a server of your own
  examples/thumbnails           this demo as a small program to copy from
`)
	})
}
