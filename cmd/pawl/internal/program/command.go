// Package program implements "pawl work": it runs a user's program for each task, and settles the task by the exit status.
package program

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/tracing"
	"github.com/pawlq/pawl/pawltype"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"
)

// flags configure "pawl work".
type flags struct {
	program
	queues, types       []string
	concurrency         int
	lease, drainTimeout time.Duration
	name, logFormat     string
	logLevel            string
}

func (w *flags) add(flags *pflag.FlagSet) {
	flags.StringVar(&w.command, "exec", "", "command to run for each task, with /bin/sh -c")
	flags.StringSliceVar(&w.types, "type", nil, "task types to run; repeatable")
	flags.StringSliceVar(&w.queues, "queue", []string{"default"}, "queues: a,b takes from the first that has tasks, a=5,b=1 in proportion")
	cli.PositiveVar(flags, &w.concurrency, "concurrency", 10, "commands that run at the same time")
	cli.PeriodVar(flags, &w.lease, "lease", 0, "lease of a claim, extended while the command runs (default: the queue's)")
	cli.PeriodVar(flags, &w.drainTimeout, "drain-timeout", 25*time.Second, "how long commands may keep running on shutdown")
	cli.PeriodVar(flags, &w.grace, "grace", 5*time.Second,
		"time between SIGTERM and SIGKILL for a command whose task was cancelled or ran too long")
	flags.StringVar(&w.name, "name", "", "name of this worker (default host/pid)")
	flags.StringVar(&w.logFormat, "log-format", "text", "format of the log on standard error: text or json")
	flags.StringVar(&w.logLevel, "log-level", "info", "lowest level to log: debug, info, warn or error")
}

// New returns the command "pawl work".
func New(a *cli.App) *cobra.Command {
	var w flags
	cmd := &cobra.Command{
		Use: "work --type TYPE --exec CMD", Short: "Run any program as a handler", Args: cli.NoArgs,
		Long: `Claim tasks and run a command for each. The command reads the payload from standard input; its
standard output is the result of the task (at most 1 MiB). Its exit status is the outcome:

    0  the task has succeeded
   65  poison: the payload can't be read, no retry can help (EX_DATAERR)
   75  failed, retry later (EX_TEMPFAIL); the same for every status not listed here
   99  discard: there is nothing left to do
  100  dead letter immediately, without retries

The end of its standard error becomes the error in the attempt log; all of it is copied to the
standard error of this process. The command's environment has PAWL_TASK_ID, PAWL_TASK_TYPE, PAWL_QUEUE,
PAWL_ATTEMPT, PAWL_MAX_ATTEMPTS, PAWL_FENCE, PAWL_PRIORITY, PAWL_CONTENT_TYPE, PAWL_KEY and
PAWL_IDEMPOTENCY_KEY, and TRACEPARENT if the task is part of a trace: "pawl enqueue" continues it.
It does not have the worker's PAWL_TOKEN, PAWL_TOKEN_FILE, PAWL_CLIENT_CERT, PAWL_CLIENT_KEY,
PAWL_PAYLOAD_KEYS and PAWL_CONTEXT: a command that calls the server needs a token of its own.

When the task is cancelled or exceeds its timeout, or its lease is lost, the command and all processes
it started get SIGTERM, and SIGKILL after --grace. On SIGTERM or SIGINT the worker claims no more tasks,
lets commands finish for --drain-timeout, and releases the rest.`,
		Example: `  pawl work --type mail.welcome --exec ./send-mail.sh
  pawl work --type thumbnail --exec 'convert - -resize 200 png:-' --queue fast=5,slow=1 --concurrency 4`,
	}
	w.add(cmd.Flags())
	cmd.RunE = a.Run(func(cmd *cobra.Command, _ []string) error {
		queues, err := w.check()
		if err != nil {
			return err
		}
		log, err := cli.NewLogger(a.Err, w.logFormat, w.logLevel)
		if err != nil {
			return err
		}
		stop, err := tracing.Start(a, cmd, "pawl-worker", log)
		if err != nil {
			return err
		}
		defer stop()
		if err := private(); err != nil {
			log.Warn("handlers can read this process's memory", "error", err)
		}
		client, err := a.Dial(pawl.DialOptions{Logger: log})
		if err != nil {
			return err
		}
		defer client.Close()
		return run(cmd.Context(), a, client, &w, queues, log)
	})
	return cmd
}

func (w *flags) check() (pawl.Queues, error) {
	switch {
	case w.command == "":
		return nil, cli.Usage("--exec is required: the command to run for each task")
	case len(w.types) == 0:
		return nil, cli.Usage("--type is required: the types of tasks to run")
	case w.grace <= 0 || w.drainTimeout <= 0:
		return nil, cli.Usage("--grace and --drain-timeout must be positive")
	}
	seen := map[string]bool{}
	for _, name := range w.types {
		if name == "" || seen[name] {
			return nil, cli.Usage("--type %q is empty or given twice", name)
		}
		seen[name] = true
	}
	if err := w.program.check(); err != nil {
		return nil, err
	}
	return readQueues(w.queues)
}

// readQueues parses a,b as strict order and a=5,b=1 as weights.
func readQueues(words []string) (pawl.Queues, error) {
	weights := pawl.Weighted{}
	for _, word := range words {
		name, weight, weighted := strings.Cut(word, "=")
		if weighted != strings.Contains(words[0], "=") {
			return nil, cli.Usage("--queue %q: either all queues have a weight, or none", strings.Join(words, ","))
		}
		if !weighted {
			continue
		}
		n, err := strconv.Atoi(weight)
		if err != nil || n < 1 || n > 1000 {
			return nil, cli.Usage("--queue %q: the weight is not a number from 1 to 1000", word)
		}
		if _, twice := weights[name]; twice {
			return nil, cli.Usage("--queue %q is given twice", name)
		}
		weights[name] = n
	}
	if len(weights) > 0 {
		return weights, nil
	}
	return pawl.Strict(words), nil
}

func run(ctx context.Context, a *cli.App, client *pawl.Client, w *flags, queues pawl.Queues, log *slog.Logger) error {
	w.stderr = &lockedWriter{w: a.Err}
	mux := pawl.NewMux()
	for _, name := range w.types {
		mux.HandleFunc(name, w.run)
	}
	mux.Use(logRuns(log))
	worker := pawl.NewWorker(client, mux, pawl.WorkerConfig{
		Queues: queues, Concurrency: w.concurrency, Lease: w.lease, DrainTimeout: w.drainTimeout, Name: w.name, Logger: log,
	})
	log.Info("working", "server", a.Server, "queues", w.queues, "types", w.types, "concurrency", w.concurrency)
	defer w.killAll() // programs that don't stop in time must not outlive us
	if err := worker.Run(ctx); err != nil {
		return err
	}
	stats := worker.Stats()
	log.Info("stopped", "succeeded", stats.Succeeded, "failed", stats.Failed)
	return nil
}

// logRuns logs successful runs. The worker itself logs the others.
func logRuns(log *slog.Logger) func(pawl.Handler) pawl.Handler {
	return func(next pawl.Handler) pawl.Handler {
		return func(ctx context.Context, c *pawl.Claim) error {
			start := time.Now()
			if err := next(ctx, c); err != nil {
				return err
			}
			attrs := []any{"task_id", c.ID, "queue", c.Queue, "type", c.Type, "attempt", c.Attempt, "took",
				time.Since(start).Round(time.Millisecond).String(), "outcome", pawltype.OutcomeSucceeded}
			if span := trace.SpanContextFromContext(ctx); span.IsValid() {
				attrs = append(attrs, "trace_id", span.TraceID().String(), "span_id", span.SpanID().String())
			}
			log.Info("run", attrs...)
			return nil
		}
	}
}
