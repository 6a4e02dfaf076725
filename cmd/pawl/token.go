package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/pawltype"
)

func newToken(a *app) *cobra.Command {
	return cli.Group("token", "Manage access tokens",
		`A server started with --auth requires a token for every call. A token has roles (produce, consume,
observe, operate, admin), is valid in one namespace or in all, and can be limited to some queues.
It is shown once, when it is created: only its hash is stored.

Commands read their token from PAWL_TOKEN, or from the file of --token-file or PAWL_TOKEN_FILE.`,
		newTokenAdd(a), newTokenLs(a), newTokenShow(a), newTokenRotate(a), newTokenRevoke(a), newTokenGenerate(a), newTokenWhoami(a))
}

// lifeFlags set how long a token is valid.
type lifeFlags struct {
	expiresIn time.Duration
	never     bool
}

func (l *lifeFlags) add(flags *pflag.FlagSet) {
	cli.PeriodVar(flags, &l.expiresIn, "expires-in", 90*24*time.Hour, "how long it is valid, at most 10 years (3650d)")
	flags.BoolVar(&l.never, "never-expires", false, "valid until it is revoked")
}

func (l *lifeFlags) life(flags *pflag.FlagSet) (time.Duration, error) {
	switch {
	case l.never && flags.Changed("expires-in"):
		return 0, cli.Usage("--never-expires and --expires-in exclude each other")
	case l.never:
		return admin.NeverExpires, nil
	}
	return l.expiresIn, nil
}

// requestVar adds the flag that repeats a call for a secret whose answer was lost.
func requestVar(flags *pflag.FlagSet, id *string) {
	flags.StringVar(id, "request-id", "", "repeat a call whose answer was lost, within 10m and with the same flags: its secret is revoked "+
		"and a new one is shown")
}

// withRequestID runs a call for a secret with a request id, which it generates unless one is given. If no answer
// arrives, the secret may have been created: the error then says how to replace it.
func withRequestID(id *string, call func() (*admin.NewToken, error)) (*admin.NewToken, error) {
	if *id == "" {
		made, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		*id = made.String()
	}
	t, err := call()
	refused, answered := errors.AsType[*pawltype.Error](err)
	if err != nil && (!answered || errors.Is(refused, pawltype.ErrUnavailable)) {
		err = fmt.Errorf("%w\nThe secret may have been created but not received: repeat the command with --request-id %s "+
			"within 10 minutes to replace it", err, *id)
	}
	return t, err
}

// allVar adds the flag of tokens that are valid for all namespaces.
func allVar(flags *pflag.FlagSet, all *bool, help string) {
	flags.BoolVar(all, "all-namespaces", false, help)
}

const oneOfAll = "the token that is valid in all namespaces, not that of --namespace"

func newTokenAdd(a *app) *cobra.Command {
	var t admin.TokenSpec
	var roles []string
	var life lifeFlags
	cmd := &cobra.Command{
		Use: "add NAME --role ROLE --queue PATTERN", Short: "Create a token, and show it once", Args: cobra.ExactArgs(1),
		Long: `Create a token, and show it once. It can't have more rights than the token that creates it.

  produce   enqueue tasks, wait for their results
  consume   claim tasks and settle them
  observe   read
  operate   cancel, retry, pause, purge, settings, schedules; and read
  admin     all of that, and tokens; with --all-namespaces also namespaces and the cluster

With --certificate the token has no secret: it belongs to the client certificate of that name, which is uri:, dns:,
email: or subject: followed by the name, as "pawl cert show" prints it. By default it does not expire, because the
certificate does.

With --sqs the token also gets an access key for Amazon SQS clients ("pawl serve --sqs"). The output is then an
environment file of three lines: PAWL_TOKEN, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.`,
		Example: `  pawl token add shop --role produce --queue 'mail*'
  pawl token add mailer --role consume --queue mail --expires-in 365d
  pawl token add billing --role produce --queue 'billing*' --certificate uri:spiffe://example.com/billing
  pawl token add celery --role produce,consume,operate --queue '*' --sqs > celery.env
  pawl token add oncall --role operate --queue '*' --all-namespaces`,
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&roles, "role", nil, "produce, consume, observe, operate or admin; repeatable")
	flags.StringSliceVar(&t.Queues, "queue", nil, "queues for which it is valid, where * stands for any characters: '*' for "+
		"all; repeatable")
	flags.StringVar(&t.Certificate, "certificate", "", "create it for the client certificate with this name, without a secret")
	flags.BoolVar(&t.SQS, "sqs", false, "also create an access key, with which Amazon SQS clients sign their calls")
	allVar(flags, &t.AllNamespaces, "valid in all namespaces, not only the one of --namespace")
	life.add(flags)
	requestVar(flags, &t.RequestID)
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) (err error) {
		if len(roles) == 0 {
			return cli.Usage("--role is required")
		}
		if len(t.Queues) == 0 {
			return cli.Usage("--queue is required: '*' stands for all queues")
		}
		if t.Life, err = life.life(cmd.Flags()); err != nil {
			return err
		}
		if t.Certificate != "" && !cmd.Flags().Changed("expires-in") {
			t.Life = admin.NeverExpires
		}
		t.Name = args[0]
		for _, r := range roles {
			t.Roles = append(t.Roles, admin.Role(r))
		}
		made, err := withRequestID(&t.RequestID, func() (*admin.NewToken, error) {
			return a.Admin(client).Access().CreateToken(cmd.Context(), t)
		})
		if err != nil {
			return err
		}
		return a.printNewToken(made)
	})
	return cmd
}

// printNewToken prints the secret: by itself on standard output, so that it can be piped into a file. A token with an
// access key is printed as a file of environment variables.
func (a *app) printNewToken(t *admin.NewToken) error {
	a.warnUnconfirmed(t.Unconfirmed)
	return a.PrintAnswer(func(w io.Writer) {
		now := time.Now()
		if t.Certificate != "" {
			fmt.Fprintf(w, "token %q of %s, %s, for %s, expires %s, belongs to the certificate %s\n", t.Name, namespaceWords(t.Namespace),
				roleWords(t.Roles), patternWords(t.Queues), expiryWords(t.ExpiresAt, now), t.Certificate)
			return
		}
		fmt.Fprintf(a.Err, "token %q of %s, %s, for %s, expires %s: its secret is shown only once\n", t.Name, namespaceWords(t.Namespace),
			roleWords(t.Roles), patternWords(t.Queues), expiryWords(t.ExpiresAt, now))
		if !t.OldUntil.IsZero() {
			fmt.Fprintf(a.Err, "the old one is valid until %s\n", text.Clock(t.OldUntil, now))
		}
		if t.SecretAccessKey != "" {
			fmt.Fprintf(w, "PAWL_TOKEN=%s\nAWS_ACCESS_KEY_ID=%s\nAWS_SECRET_ACCESS_KEY=%s\n", t.Secret, t.AccessKeyID, t.SecretAccessKey)
			return
		}
		fmt.Fprintln(w, t.Secret)
	})
}

func (a *app) warnUnconfirmed(nodes []string) {
	if len(nodes) > 0 {
		fmt.Fprintf(a.Err, "pawl: not confirmed by %s: a node that loses contact with the cluster accepts no tokens after 10 s\n",
			strings.Join(nodes, ", "))
	}
}

func namespaceWords(ns string) string {
	if ns == admin.AllNamespaces {
		return "all namespaces"
	}
	return fmt.Sprintf("namespace %q", ns)
}

func patternWords(queues []string) string {
	if len(queues) == 0 {
		return "all queues"
	}
	return strings.Join(queues, ", ")
}

func roleWords(roles []admin.Role) string {
	words := make([]string, len(roles))
	for i, r := range roles {
		words[i] = string(r)
	}
	return strings.Join(words, ", ")
}

func expiryWords(at, now time.Time) string {
	switch {
	case at.IsZero():
		return "never"
	case at.Before(now):
		return "expired " + text.Ago(at, now)
	}
	return text.Ago(at, now)
}

func newTokenLs(a *app) *cobra.Command {
	var list cli.ListFlags
	var filter admin.TokenFilter
	cmd := &cobra.Command{Use: "ls [PATTERN]", Short: "List tokens", Args: cobra.MaximumNArgs(1),
		Long:    "List tokens: all, or those whose names match a pattern, in which * stands for any characters.",
		Example: "  pawl token ls\n  pawl token ls 'shop*'\n  pawl token ls --all-namespaces"}
	list.Add(cmd)
	allVar(cmd.Flags(), &filter.AllNamespaces, "tokens of all namespaces, not only of --namespace")
	a.List(cmd, func(ctx context.Context, client *pawl.Client, args []string) error {
		filter.Pattern = cli.PatternArg(args)
		return printList(a, list, func(p pawltype.PageRequest) (pawltype.Page[*admin.Token], error) {
			return a.Admin(client).Access().ListTokensPage(ctx, filter, p)
		}, writeTokens)
	})
	return cmd
}

func writeTokens(w io.Writer, tokens []*admin.Token) {
	now := time.Now()
	rows := make([][]string, len(tokens))
	for i, t := range tokens {
		rows[i] = []string{t.Namespace, t.Name, roleWords(t.Roles), patternWords(t.Queues), expiryWords(t.ExpiresAt, now),
			text.Ago(t.UsedAt, now), text.Ago(t.CreatedAt, now), t.CreatedBy}
	}
	text.Columns(w, "NAMESPACE|NAME|ROLES|QUEUES|EXPIRES|USED|CREATED|BY", rows)
}

func newTokenShow(a *app) *cobra.Command {
	var of admin.TokenName
	cmd := &cobra.Command{Use: "show NAME", Short: "Show a token without its secret", Args: cobra.ExactArgs(1),
		Example: "  pawl token show shop"}
	allVar(cmd.Flags(), &of.AllNamespaces, oneOfAll)
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		of.Name = args[0]
		t, err := a.Admin(client).Access().GetToken(cmd.Context(), of)
		if err != nil {
			return err
		}
		return a.PrintAnswer(func(w io.Writer) {
			now := time.Now()
			text.Fields(w, "Name", t.Name, "Namespace", namespaceWords(t.Namespace), "Roles", roleWords(t.Roles), "Queues",
				patternWords(t.Queues), "Expires", expiryWords(t.ExpiresAt, now), "Used", text.Clock(t.UsedAt, now), "Created",
				text.Clock(t.CreatedAt, now), "By", t.CreatedBy, "Rotated", text.Clock(t.RotatedAt, now), "Old one until",
				text.Clock(t.OldUntil, now), "Certificate", t.Certificate)
		})
	})
	return cmd
}

func newTokenRotate(a *app) *cobra.Command {
	var of admin.TokenName
	var life lifeFlags
	var r admin.Rotation
	var overlap time.Duration
	cmd := &cobra.Command{Use: "rotate NAME", Short: "Replace a token's secret, and show the new one once", Args: cobra.ExactArgs(1),
		Long: `Replace a token's secret, and show the new one once. The old secret stays valid for --overlap, which
gives you time to replace it everywhere, but never beyond its own expiry.`,
		Example: "  pawl token rotate shop\n  pawl token rotate shop --overlap 0s   # it has leaked"}
	flags := cmd.Flags()
	allVar(flags, &of.AllNamespaces, oneOfAll)
	life.add(flags)
	cli.PeriodVar(flags, &overlap, "overlap", 24*time.Hour, "how long the old secret stays valid, at most 30d")
	requestVar(flags, &r.RequestID)
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) (err error) {
		r.Overlap = &overlap
		if r.Life, err = life.life(cmd.Flags()); err != nil {
			return err
		}
		of.Name = args[0]
		t, err := withRequestID(&r.RequestID, func() (*admin.NewToken, error) {
			return a.Admin(client).Access().RotateToken(cmd.Context(), of, r)
		})
		if err != nil {
			return err
		}
		return a.printNewToken(t)
	})
	return cmd
}

func newTokenRevoke(a *app) *cobra.Command {
	var of admin.TokenName
	cmd := &cobra.Command{Use: "revoke NAME", Short: "Revoke a token, and end the calls that use it", Args: cobra.ExactArgs(1),
		Example: "  pawl token revoke shop"}
	allVar(cmd.Flags(), &of.AllNamespaces, oneOfAll)
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		of.Name = args[0]
		unconfirmed, err := a.Admin(client).Access().RevokeToken(cmd.Context(), of)
		if err != nil {
			return err
		}
		a.warnUnconfirmed(unconfirmed)
		return a.Print(struct {
			Name        string   `json:"name"`
			Unconfirmed []string `json:"unconfirmed_nodes,omitempty"`
		}{of.Name, unconfirmed}, func(w io.Writer) { fmt.Fprintf(w, "token %q is revoked\n", of.Name) })
	})
	return cmd
}

func newTokenGenerate(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "generate", Short: "Print a new token for --admin-token-file", Args: cli.NoArgs,
		Long: `Print a new token that no server knows yet. Put it into a file that only the server's user can read, for
"pawl serve --admin-token-file". That token has all rights.`,
		Example: "  (umask 077 && pawl token generate > /etc/pawl/admin.token)"}
	cmd.RunE = a.Run(func(*cobra.Command, []string) error {
		_, err := fmt.Fprintln(a.Out, bearer.New())
		return err
	})
	return cmd
}

func newTokenWhoami(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "whoami", Short: "Show what your token may do", Args: cli.NoArgs, Example: "  pawl token whoami"}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, _ []string) error {
		me, err := a.Admin(client).Access().WhoAmI(cmd.Context())
		if err != nil {
			return err
		}
		return a.PrintAnswer(func(w io.Writer) {
			if !me.TokenRequired {
				fmt.Fprintln(w, "anybody: the server requires no tokens")
				return
			}
			reach := namespaceWords(me.Namespace)
			if me.AllNamespaces {
				reach = namespaceWords(admin.AllNamespaces)
			}
			text.Fields(w, "Name", me.Name, "Valid in", reach, "Current namespace", me.Namespace, "Roles", roleWords(me.Roles),
				"Queues", patternWords(me.Queues), "Expires", expiryWords(me.ExpiresAt, time.Now()), "Certificate", me.Certificate)
		})
	})
	return cmd
}
