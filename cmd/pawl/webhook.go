package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/pawltype"
)

func newWebhook(a *app) *cobra.Command {
	return cli.Group("webhook", "Notify other programs of dead letters, breakers, schedules and thresholds",
		`A webhook is a URL that receives signed requests when tasks become dead letters, breakers open,
schedules miss their time, or queues exceed a threshold. It belongs to a namespace.

Requests are signed according to Standard Webhooks (docs/webhooks.md has receivers in Go and Python).
They go only to the public internet over https, unless the servers run with --webhook-allow-network.`,
		newWebhookAdd(a), newWebhookLs(a), newWebhookShow(a), newWebhookSet(a), newWebhookRm(a), newWebhookTest(a), newWebhookPause(a),
		newWebhookResume(a), newWebhookRotate(a))
}

// webhookFlags are a webhook's settings.
type webhookFlags struct {
	events, queues []string
	depth          int64
	wait           time.Duration
}

func (h *webhookFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&h.events, "event", nil, "only these events: task.dead, task.poisoned, breaker.opened, breaker.closed, "+
		"schedule.missed, queue.over, queue.under, or a kind such as 'task.*' (default all)")
	flags.StringSliceVar(&h.queues, "queue", nil, "only events of queues whose names match, where * stands for any characters; repeatable "+
		"(default all)")
	flags.Int64Var(&h.depth, "depth-over", 0, "notify when a queue has more ready tasks than this (0: never)")
	cli.PeriodVar(flags, &h.wait, "wait-over", 0, "notify when a task has been ready for longer than this (0s: never)")
}

func (h *webhookFlags) chosen() (events []admin.WebhookEvent) {
	for _, e := range h.events {
		events = append(events, admin.WebhookEvent(e))
	}
	return events
}

// maxSecret is more than a secret has, in bytes.
const maxSecret = 1 << 10

// secretFile reads a given secret; "" without a file.
func (a *app) secretFile(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	var b []byte
	var err error
	if path == "-" {
		b, err = cli.ReadAll(a.In, "standard input", maxSecret)
	} else {
		b, err = cli.ReadFile(path, maxSecret)
	}
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(b))
	if secret == "" {
		return "", cli.Usage("--secret-file %q is empty", path)
	}
	return secret, nil
}

func secretFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "secret-file", "", "file with your own secret, whsec_ followed by 24 to 64 bytes in base64; -: standard input "+
		"(default: the server generates one)")
}

func newWebhookAdd(a *app) *cobra.Command {
	var h webhookFlags
	var file string
	cmd := &cobra.Command{
		Use: "add NAME URL", Short: "Create a webhook, and show its secret once", Args: cobra.ExactArgs(2),
		Example: `  pawl webhook add oncall https://example.com/hooks/pawl --event 'task.*,breaker.*'
  pawl webhook add backlog https://example.com/hooks/pawl --queue 'mail*' --event 'queue.*' --depth-over 10000 --wait-over 5m`,
	}
	h.add(cmd.Flags())
	secretFlag(cmd.Flags(), &file)
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		secret, err := a.secretFile(file)
		if err != nil {
			return err
		}
		made, err := a.Admin(client).Webhooks().Create(cmd.Context(), admin.WebhookSpec{Name: args[0], URL: args[1], Events: h.chosen(),
			Queues: h.queues, DepthOver: h.depth, WaitOver: h.wait, Secret: secret})
		if err != nil {
			return err
		}
		return a.printNewSecret(made)
	})
	return cmd
}

// printNewSecret prints the secret: by itself on standard output, so that it can be piped into a file.
func (a *app) printNewSecret(h *admin.NewWebhook) error {
	a.warnShards(h.Unconfirmed)
	return a.PrintAnswer(func(w io.Writer) {
		fmt.Fprintf(a.Err, "webhook %q, %s, of %s: its secret is shown only once\n", h.Name, eventWords(h.Events), patternWords(h.Queues))
		if !h.OldUntil.IsZero() {
			fmt.Fprintf(a.Err, "notices are signed with the old one as well until %s\n", text.Clock(h.OldUntil, time.Now()))
		}
		fmt.Fprintln(w, h.Secret)
	})
}

func (a *app) warnShards(shards []uint32) {
	if len(shards) > 0 {
		fmt.Fprintf(a.Err, "pawl: not confirmed by shards %v: their events are not sent until they know of the change, which "+
			"should be soon\n",
			shards)
	}
}

func eventWords(events []admin.WebhookEvent) string {
	words := make([]string, len(events))
	for i, e := range events {
		words[i] = string(e)
	}
	return strings.Join(words, ", ")
}

func newWebhookLs(a *app) *cobra.Command {
	var list cli.ListFlags
	cmd := &cobra.Command{Use: "ls", Short: "List webhooks and their state", Args: cli.NoArgs, Example: "  pawl webhook ls --watch"}
	list.Add(cmd)
	a.List(cmd, func(ctx context.Context, client *pawl.Client, _ []string) error {
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*admin.Webhook], error) {
			return a.Admin(client).Webhooks().ListPage(ctx, p)
		}, writeWebhooks)
	})
	return cmd
}

func newWebhookShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show NAME", Short: "Show a webhook and its last deliveries", Args: cobra.ExactArgs(1),
		Example: "  pawl webhook show oncall"}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		h, err := a.Admin(client).Webhooks().Get(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		said := a.Response().(*pawlv1.GetWebhookResponse).GetWebhook()
		last, err := a.Admin(client).Webhooks().Deliveries(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		var shown apijson.Writer
		shown.Open('{')
		shown.Fields(said)
		apijson.List(&shown, "deliveries", a.Response().(*pawlv1.ListWebhookDeliveriesResponse).GetItems())
		shown.Close('}')
		return a.Print(json.RawMessage(shown.B), func(w io.Writer) {
			now := time.Now()
			writeWebhook(w, h, now)
			if len(last) > 0 {
				fmt.Fprintln(w)
				writeDeliveries(w, last, now)
			}
		})
	})
	return cmd
}

func newWebhookSet(a *app) *cobra.Command {
	var h webhookFlags
	var url string
	cmd := &cobra.Command{Use: "set NAME", Short: "Change a webhook", Args: cobra.ExactArgs(1),
		Long: "Change the given settings of a webhook. Pending notices go to the new URL.",
		Example: "  pawl webhook set oncall --url https://example.com/hooks/other\n  pawl webhook set backlog --depth-over 50000 " +
			"--wait-over 0s"}
	h.add(cmd.Flags())
	cmd.Flags().StringVar(&url, "url", "", "URL")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		to := admin.WebhookChange{URL: url, Events: h.chosen(), Queues: h.queues}
		given := 0
		for _, name := range []string{"url", "event", "queue", "depth-over", "wait-over"} {
			if cmd.Flags().Changed(name) {
				given++
			}
		}
		if given == 0 {
			return cli.Usage("give a setting to change: --url, --event, --queue, --depth-over or --wait-over")
		}
		if cmd.Flags().Changed("depth-over") {
			to.DepthOver = &h.depth
		}
		if cmd.Flags().Changed("wait-over") {
			to.WaitOver = &h.wait
		}
		updated, err := a.Admin(client).Webhooks().Update(cmd.Context(), args[0], to)
		if err != nil {
			return err
		}
		a.warnShards(updated.Unconfirmed)
		return a.printWebhook(&updated.Webhook)
	})
	return cmd
}

func (a *app) printWebhook(h *admin.Webhook) error {
	return a.PrintAnswer(func(w io.Writer) { writeWebhook(w, h, time.Now()) })
}

func newWebhookRm(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "rm NAME", Short: "Remove a webhook and its pending notices", Args: cobra.ExactArgs(1),
		Example: "  pawl webhook rm oncall"}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		unconfirmed, err := a.Admin(client).Webhooks().Delete(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		a.warnShards(unconfirmed)
		shown := struct {
			Name    string `json:"name"`
			Removed bool   `json:"removed"`
		}{args[0], true}
		return a.Print(shown, func(w io.Writer) { fmt.Fprintf(w, "webhook %q removed\n", args[0]) })
	})
	return cmd
}

func newWebhookTest(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "test NAME", Short: "Send a test notice now, and show the outcome", Args: cobra.ExactArgs(1),
		Long: `Send a webhook.test notice now, and show the outcome. It is not retried. The exit status is 1 if it
was not delivered.`,
		Example: "  pawl webhook test oncall"}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		d, err := a.Admin(client).Webhooks().Test(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if d.Outcome != admin.WebhookDelivered {
			return fmt.Errorf("webhook %q: the test was not delivered: %s", args[0], text.Printable(d.Error))
		}
		return a.PrintAnswer(func(w io.Writer) {
			fmt.Fprintf(w, "delivered: the receiver answered %d after %s\n", d.Status, d.Took.Round(time.Millisecond))
		})
	})
	return cmd
}

func newWebhookPause(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "pause NAME", Short: "Pause a webhook", Args: cobra.ExactArgs(1),
		Long:    "Stop sending to a webhook. Events that occur meanwhile are sent when it is resumed, if that is within a day.",
		Example: "  pawl webhook pause oncall --reason 'receiver maintenance'"}
	a.addReason(cmd.Flags())
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		h, err := a.Admin(client).Webhooks().Pause(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.printWebhook(h)
	})
	return cmd
}

func newWebhookResume(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "resume NAME", Short: "Resume a webhook", Args: cobra.ExactArgs(1),
		Long:    "Resume a paused webhook, or one whose receiver answered that it is gone. Pending notices are sent immediately.",
		Example: "  pawl webhook resume oncall"}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		h, err := a.Admin(client).Webhooks().Resume(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		a.warnShards(h.Unconfirmed)
		return a.printWebhook(&h.Webhook)
	})
	return cmd
}

func newWebhookRotate(a *app) *cobra.Command {
	var overlap time.Duration
	var file string
	cmd := &cobra.Command{Use: "rotate NAME", Short: "Replace a webhook's secret, and show the new one once", Args: cobra.ExactArgs(1),
		Long: `Replace a webhook's secret, and show the new one once. For --overlap, notices are signed with the old one
as well, which gives you time to update the receiver.`,
		Example: "  pawl webhook rotate oncall\n  pawl webhook rotate oncall --overlap 0s   # it has leaked"}
	cli.PeriodVar(cmd.Flags(), &overlap, "overlap", 24*time.Hour, "how long notices are signed with the old secret as well, at most 30d")
	secretFlag(cmd.Flags(), &file)
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		secret, err := a.secretFile(file)
		if err != nil {
			return err
		}
		h, err := a.Admin(client).Webhooks().RotateSecret(cmd.Context(), args[0], admin.WebhookRotation{Secret: secret, Overlap: &overlap})
		if err != nil {
			return err
		}
		return a.printNewSecret(h)
	})
	return cmd
}
