package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/cmd/internal/tracing"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
	"github.com/pawlq/pawl/pawltype"
)

// specFlags are all options of a task.
type specFlags struct {
	queue, priority, at, idempotencyKey, requestID, key, contentType string
	in, idempotencyTTL, timeout, expiresIn, retention                time.Duration
	maxAttempts, cost                                                int
	tags                                                             []string
	headers                                                          []string
	retry                                                            retryFlags
	unique                                                           uniqueFlags
	then                                                             []string
	group                                                            string
}

func (s *specFlags) add(flags *pflag.FlagSet) {
	s.addTemplate(flags)
	cli.PeriodVar(flags, &s.in, "in", 0, "run it this long from now")
	flags.StringVar(&s.at, "at", "", "run it at this time, in RFC 3339")
	flags.StringVar(&s.idempotencyKey, "idempotency-key", "", "idempotency key: one task per key and queue")
	cli.PeriodVar(flags, &s.idempotencyTTL, "idempotency-ttl", 0, "how long that key is remembered (default 24h)")
	flags.StringVar(&s.group, "group", "", "add it to this group, which must not be complete")
	flags.StringVar(&s.requestID, "request-id", "", "UUID of this request: repeating it returns the first task")
}

// addTemplate adds the options that all tasks of a schedule can share.
func (s *specFlags) addTemplate(flags *pflag.FlagSet) {
	flags.StringVar(&s.queue, "queue", "", `queue (default "default")`)
	flags.StringVar(&s.priority, "priority", "", "high, normal or low (default normal)")
	cli.PositiveVar(flags, &s.maxAttempts, "max-attempts", 0, "failures after which it is a dead letter (default: the queue's)")
	s.retry.add(flags)
	cli.PeriodVar(flags, &s.timeout, "timeout", 0, "time limit of one run (default: the queue's)")
	cli.PeriodVar(flags, &s.expiresIn, "expires-in", 0, "discard the task unless it has started within this time")
	cli.PeriodVar(flags, &s.retention, "retention", 0, "how long to keep the task once it has ended (default: the queue's)")
	flags.StringVar(&s.key, "key", "", "key for fairness and limits, such as a tenant or an account")
	cli.PositiveVar(flags, &s.cost, "cost", 0, "rate limit tokens that starting it takes (default 1)")
	s.unique.add(flags)
	flags.StringArrayVar(&s.then, "then", nil, "task to enqueue when it has succeeded: a JSON object, or @FILE; repeatable")
	flags.StringArrayVar(&s.tags, "tag", nil, "tag to find it by; repeatable")
	flags.StringArrayVar(&s.headers, "header", nil, "header NAME=VALUE that travels with the task; repeatable")
	flags.StringVar(&s.contentType, "content-type", "", "content type of a payload that isn't JSON")
}

// retryFlags are the fields of a retry policy.
type retryFlags struct {
	initial, max   time.Duration
	factor, jitter float64
	flags          *pflag.FlagSet
}

func (r *retryFlags) add(flags *pflag.FlagSet) {
	r.flags = flags
	cli.PeriodVar(flags, &r.initial, "retry-initial", 0, "pause after the first failure (default 30s)")
	flags.Float64Var(&r.factor, "retry-factor", 0, "factor by which the pause grows (default 2)")
	cli.PeriodVar(flags, &r.max, "retry-max", 0, "longest pause (default 30m)")
	flags.Float64Var(&r.jitter, "retry-jitter", 0, "part of the pause that is added at random, 0 to 1 (default 0.25)")
}

// over applies the given flags to p, and reports whether any was given.
func (r *retryFlags) over(p pawltype.RetryPolicy) (pawltype.RetryPolicy, bool, error) {
	given := false
	set := func(name string, do func()) {
		if r.flags.Changed(name) {
			given = true
			do()
		}
	}
	set("retry-initial", func() { p.Initial = view.Explicit(r.initial, pawltype.NoWait) })
	set("retry-factor", func() { p.Factor = r.factor })
	set("retry-max", func() { p.Max = view.Explicit(r.max, pawltype.NoWait) })
	set("retry-jitter", func() { p.Jitter = view.Explicit(r.jitter, pawltype.NoJitter) })
	if given && r.flags.Changed("retry-factor") && r.factor < 1 {
		return p, given, cli.Usage("--retry-factor %g is less than 1", r.factor)
	}
	return p, given, nil
}

// options checks the flags and returns the options that were set.
func (s *specFlags) options(flags *pflag.FlagSet) ([]pawl.Option, error) {
	var out []pawl.Option
	add := func(name string, opt pawl.Option) {
		if flags.Changed(name) {
			out = append(out, opt)
		}
	}
	if flags.Changed("priority") {
		p, err := readPriority(s.priority)
		if err != nil {
			return nil, err
		}
		out = append(out, pawl.Priority(p))
	}
	if flags.Changed("at") {
		t, err := time.Parse(time.RFC3339, s.at)
		if err != nil {
			return nil, cli.Usage("--at %q is not a time such as 2026-01-31T12:00:00Z", s.at)
		}
		out = append(out, pawl.At(t))
	}
	given := map[string]bool{}
	for _, h := range s.headers {
		name, value, ok := strings.Cut(h, "=")
		switch {
		case !ok:
			return nil, cli.Usage("--header %q is not NAME=VALUE", h)
		case given[name]:
			return nil, cli.Usage("--header %q: the name is given twice", h)
		}
		given[name] = true
		out = append(out, pawl.Header(name, value))
	}
	if p, given, err := s.retry.over(pawltype.RetryPolicy{}); err != nil {
		return nil, err
	} else if given {
		out = append(out, pawl.Retry(p))
	}
	if u, given, err := s.unique.read(); err != nil {
		return nil, err
	} else if given {
		out = append(out, pawl.Unique(u))
	}
	then, err := readThen(s.then)
	if err != nil {
		return nil, err
	}
	out = append(out, then...)
	add("group", pawl.InGroup(s.group))
	add("queue", pawl.Queue(s.queue))
	add("in", pawl.In(s.in))
	add("idempotency-key", pawl.IdempotencyKey(s.idempotencyKey))
	add("idempotency-ttl", pawl.IdempotencyTTL(s.idempotencyTTL))
	add("request-id", pawl.RequestID(s.requestID))
	add("max-attempts", pawl.MaxAttempts(s.maxAttempts))
	add("timeout", pawl.Timeout(s.timeout))
	add("expires-in", pawl.ExpiresIn(s.expiresIn))
	add("retention", pawl.Retention(s.retention))
	add("key", pawl.Key(s.key))
	add("cost", pawl.Cost(s.cost))
	add("tag", pawl.Tags(s.tags...))
	return out, nil
}

func readPriority(word string) (pawltype.Priority, error) {
	switch p := pawltype.Priority(word); p {
	case pawltype.High, pawltype.Normal, pawltype.Low:
		return p, nil
	}
	return "", cli.Usage("--priority %q is not one of high, normal, low", word)
}

// maxEnqueue is the maximum of --count: the answer lists every task.
const maxEnqueue = 1_000_000

func newEnqueue(a *app) *cobra.Command {
	var spec specFlags
	var n int
	var wait bool
	cmd := &cobra.Command{
		Use:   "enqueue TYPE [PAYLOAD | - | @FILE]",
		Short: "Enqueue a task",
		Long: `Enqueue a task and print its id. When the command returns, the task is on disk.
PAYLOAD is a JSON value; "-" reads it from standard input, "@FILE" from a file.
With --content-type it can be any bytes.

With --wait it waits until the task has ended and prints the task's result instead of its id.
The exit status is 1 if the task did not succeed.

If TRACEPARENT is in the environment, the task becomes part of that trace.`,
		Example: `  pawl enqueue mail.welcome '{"to":"a@example.com"}'
  pawl enqueue report @params.json --queue slow --priority low --in 1h
  pawl enqueue thumbnail - --content-type image/png < picture.png
  pawl enqueue charge '{"order":42}' --idempotency-key order-42 --wait
  pawl enqueue index '{"account":7}' --unique account-7 --on-conflict keep_last
  pawl enqueue fetch '{"url":"…"}' --then '{"type":"resize","queue":"cpu","then":[{"type":"mail"}]}'`,
		Args: cobra.RangeArgs(1, 2),
	}
	spec.add(cmd.Flags())
	cmd.Flags().IntVar(&n, "count", 1, "enqueue this many")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the task has ended and print its result")
	cmd.MarkFlagsMutuallyExclusive("in", "at")
	send := a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		opts, err := spec.options(cmd.Flags())
		if err != nil {
			return err
		}
		if err := checkCount(cmd.Flags(), n, wait); err != nil {
			return err
		}
		raw := pawl.RawTask{Type: args[0], ContentType: spec.contentType}
		if len(args) == 2 {
			if raw.Payload, err = a.readPayload(args[1]); err != nil {
				return err
			}
		}
		if n > 1 {
			return a.enqueueMany(cmd.Context(), client, raw, opts, n)
		}
		ref, err := client.Enqueue(cmd.Context(), raw, opts...)
		if err != nil {
			return err
		}
		if wait {
			return a.printEnd(cmd.Context(), client, ref.ID)
		}
		if ref.Duplicate {
			fmt.Fprintf(a.Err, "duplicate: the task already exists\n")
		}
		return a.PrintMessage(a.Response().(*pawlv1.EnqueueBatchResponse).GetResults()[0], func(w io.Writer) { fmt.Fprintln(w, ref.ID) })
	})
	cmd.RunE = a.Run(func(cmd *cobra.Command, args []string) error {
		stop, err := tracing.Start(a.App, cmd, "pawl-enqueue", slog.New(slog.NewTextHandler(a.Err, nil)))
		if err != nil {
			return err
		}
		defer stop()
		return send(cmd, args)
	})
	return cmd
}

func checkCount(flags *pflag.FlagSet, n int, wait bool) error {
	switch {
	case n < 1 || n > maxEnqueue:
		return cli.Usage("--count %d is not between 1 and %d", n, maxEnqueue)
	case n > 1 && wait:
		return cli.Usage("--wait is for a single task, but --count is %d", n)
	case n > 1 && (flags.Changed("idempotency-key") || flags.Changed("request-id") || flags.Changed("unique") ||
		flags.Changed("unique-content")):
		return cli.Usage("--count %d with a key would enqueue only one task", n)
	}
	return nil
}

// readPayload returns the bytes that the argument names.
func (a *app) readPayload(arg string) ([]byte, error) {
	if arg == "-" {
		return cli.ReadAll(a.In, "standard input", view.MaxPayload)
	}
	name, ok := strings.CutPrefix(arg, "@")
	if !ok {
		return []byte(arg), nil
	}
	return cli.ReadFile(name, view.MaxPayload)
}

// enqueueMany sends batches, and prints the ids of each batch as soon as it is accepted.
func (a *app) enqueueMany(ctx context.Context, client *pawl.Client, raw pawl.RawTask, opts []pawl.Option, n int) error {
	const batch = 1000
	bar := a.Progress("enqueued", n)
	defer bar.Done()
	var refused error
	all := &pawlv1.EnqueueBatchResponse{}
	for sent := 0; sent < n; {
		items := make([]pawl.Item, min(batch, n-sent))
		for i := range items {
			items[i] = pawl.Item{Args: raw, Options: opts}
		}
		answers, err := client.EnqueueBatch(ctx, items)
		for _, e := range answers {
			switch {
			case e.Err != nil:
				refused = cmp.Or(refused, e.Err)
			case a.ForPeople():
				fmt.Fprintln(a.Out, e.Ref.ID)
			}
		}
		all.Results = append(all.Results, a.resultsOf(answers)...)
		if err != nil || refused != nil {
			return errors.Join(a.printMany(all), cmp.Or(err, refused))
		}
		sent += len(items)
		bar.Set(sent)
	}
	return a.printMany(all)
}

// printMany prints the results of all batches for programs. People have them already.
func (a *app) printMany(all *pawlv1.EnqueueBatchResponse) error {
	if a.ForPeople() {
		return nil
	}
	return a.PrintMessage(all, nil)
}

// resultsOf returns the result of each item of a batch as the API answered it. What had no answer may have been sent
// again by itself, so a batch can have several answers, or none.
func (a *app) resultsOf(outcomes []pawl.Enqueued) []*pawlv1.EnqueueResult {
	if a.ForPeople() {
		return nil
	}
	tasks := map[string]*pawlv1.Enqueued{}
	if said, ok := a.Responses().(*pawlv1.EnqueueBatchResponse); ok {
		for _, r := range said.GetResults() {
			tasks[r.GetTask().GetTaskId()] = r.GetTask()
		}
	}
	results := make([]*pawlv1.EnqueueResult, len(outcomes))
	for i, e := range outcomes {
		results[i] = &pawlv1.EnqueueResult{}
		if e.Err == nil {
			results[i].Task = tasks[e.Ref.ID]
			continue
		}
		results[i].Error = &pawlv1.Error{Code: string(pawltype.ErrUnavailable), Message: cli.OneLine(e.Err)}
		if own, ok := errors.AsType[*pawltype.Error](e.Err); ok {
			results[i].Error = &pawlv1.Error{Code: string(own.Code), Message: own.Message, Reason: own.Reason, Field: own.Field}
			if own.RetryAfter > 0 {
				results[i].Error.RetryAfter = durationpb.New(own.RetryAfter)
			}
		}
	}
	return results
}

// waitFor waits until a task has ended. On a terminal it shows the task's state and how long it has waited.
func (a *app) waitFor(ctx context.Context, client *pawl.Client, id string) (*pawltype.Task, error) {
	const quiet, step = 500 * time.Millisecond, time.Second
	if !text.IsTerminal(a.Err) || a.Format != "table" {
		return client.Wait(ctx, id)
	}
	type end struct {
		task *pawltype.Task
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		task, err := client.Wait(ctx, id)
		ended <- end{task, err}
	}()
	began, next := time.Now(), time.After(quiet) // a progress line that disappears immediately can't be read
	for {
		select {
		case e := <-ended:
			fmt.Fprint(a.Err, "\r\x1b[K")
			return e.task, e.err
		case <-next:
			next = time.After(step)
			line := fmt.Sprintf("waiting for task %s for %s", id, text.Span(time.Since(began)))
			if task, err := client.Task(ctx, id); err == nil {
				line += ": it is " + string(task.State)
				if task.State == pawltype.StateReady {
					line += fmt.Sprintf(" (why? pawl task explain %s)", id)
				}
			}
			fmt.Fprintf(a.Err, "\r%s\x1b[K", line)
		}
	}
}

// printEnd waits for a task and prints its result: verbatim for people, or the whole task for programs.
func (a *app) printEnd(ctx context.Context, client *pawl.Client, id string) error {
	task, err := a.waitFor(ctx, client, id)
	if task == nil {
		return err
	}
	printed := a.PrintAnswer(func(w io.Writer) {
		if len(task.Result) > 0 {
			fmt.Fprintf(w, "%s\n", strings.TrimSuffix(string(task.Result), "\n"))
		}
	})
	return errors.Join(err, printed)
}
