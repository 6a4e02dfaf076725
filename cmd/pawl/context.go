package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/contexts"
	"github.com/pawlq/pawl/cmd/internal/text"
)

func newContext(a *app) *cobra.Command {
	return cli.Group("context", "Manage named servers", `A context is a named server address with its TLS files, token file and namespace. Commands call the server
of the current context, unless --context or PAWL_CONTEXT names another one, or --server or PAWL_SERVER
gives an address. Contexts are stored in pawl/contexts.yaml in your configuration directory. They contain
the paths of token files, not tokens.`,
		a.contextAdd(), a.contextUse(), a.contextLs(), a.contextShow(), a.contextRm())
}

// changeContexts changes the contexts in the file, and prints which one is current now.
func (a *app) changeContexts(change func(all *contexts.Contexts) error) error {
	path, err := contexts.Path()
	if err != nil {
		return err
	}
	var name, server string // of the current one
	if err := contexts.Change(path, func(all *contexts.Contexts) error {
		err := change(all)
		name, server = all.Current, all.Contexts[all.Current].Server
		return err
	}); err != nil {
		return err
	}
	if name == "" {
		fmt.Fprintf(a.Err, "there is no current context: commands call %s\n", cli.DefaultServer)
		return nil
	}
	fmt.Fprintf(a.Err, "the current context is %s: commands call %s\n", name, server)
	return nil
}

func loadContexts() (*contexts.Contexts, error) {
	path, err := contexts.Path()
	if err != nil {
		return nil, err
	}
	return contexts.Load(path)
}

func contextNamed(all *contexts.Contexts, name string) (contexts.Context, error) {
	c, ok := all.Contexts[name]
	if !ok {
		return c, cli.Usage("context %q: not found: 'pawl context ls' lists the existing ones", name)
	}
	return c, nil
}

func (a *app) contextAdd() *cobra.Command {
	var use bool
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Add a context, or replace it", Args: cobra.ExactArgs(1),
		Long: `Add a context with the server and the credentials given by flags and environment. The first
context becomes the current one.`,
		Example: `  pawl context add staging --server https://staging.example.com:7295 --token-file ~/.staging.token
  pawl context add prod --server https://n1.example.com:7295,https://n2.example.com:7295 \
    --client-cert me.crt --client-key me.key --namespace shop --use`,
	}
	cmd.Flags().BoolVar(&use, "use", false, "make it the current context")
	cmd.RunE = a.Run(func(_ *cobra.Command, args []string) error {
		if err := contexts.CheckName(args[0]); err != nil {
			return cli.AsUsage(err)
		}
		if a.HasToken() {
			return cli.Usage("--token: a context contains no token: put it into a file and give that with --token-file")
		}
		c := a.ContextOf()
		for _, file := range []*string{&c.TLSCA, &c.ClientCert, &c.ClientKey, &c.TokenFile, &c.PayloadKeys} {
			if *file == "" {
				continue
			}
			path, err := filepath.Abs(*file)
			if err != nil {
				return err
			}
			*file = path
		}
		client, err := a.Dial() // makes no connection yet, but checks the options
		if err != nil {
			return err
		}
		_ = client.Close()
		return a.changeContexts(func(all *contexts.Contexts) error {
			all.Contexts[args[0]] = c
			if use || all.Current == "" {
				all.Current = args[0]
			}
			return nil
		})
	})
	return cmd
}

func (a *app) contextUse() *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use: "use NAME", Short: "Set the current context", Args: cobra.MaximumNArgs(1),
		Example: "  pawl context use prod\n  pawl context use --none     # back to 127.0.0.1:7295",
	}
	cmd.Flags().BoolVar(&none, "none", false, "unset the current context")
	cmd.RunE = a.Run(func(_ *cobra.Command, args []string) error {
		if none == (len(args) == 1) {
			return cli.Usage("give a context, or --none")
		}
		return a.changeContexts(func(all *contexts.Contexts) error {
			if none {
				all.Current = ""
				return nil
			}
			_, err := contextNamed(all, args[0])
			all.Current = args[0]
			return err
		})
	})
	return cmd
}

// contextView is a context in the output.
type contextView struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	contexts.Context
}

func (a *app) contextLs() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List contexts", Args: cli.NoArgs, Example: "  pawl context ls",
		RunE: a.Run(func(*cobra.Command, []string) error {
			all, err := loadContexts()
			if err != nil {
				return err
			}
			views := []contextView{}
			var rows [][]string
			for _, n := range all.Names() {
				c := all.Contexts[n]
				views = append(views, contextView{n, n == all.Current, c})
				mark := ""
				if n == all.Current {
					mark = "in use"
				}
				rows = append(rows, []string{n, c.Server, orDash(c.Namespace), orDash(c.TokenFile), mark})
			}
			return a.Print(struct {
				Contexts []contextView `json:"contexts"`
			}{views}, func(w io.Writer) { text.Columns(w, "CONTEXT|SERVER|NAMESPACE|TOKEN FILE|NOTE", rows) })
		}),
	}
}

func (a *app) contextShow() *cobra.Command {
	return &cobra.Command{
		Use: "show [NAME]", Short: "Show a context; without a name, the current one", Args: cobra.MaximumNArgs(1),
		Example: "  pawl context show prod", RunE: a.Run(func(_ *cobra.Command, args []string) error {
			all, err := loadContexts()
			if err != nil {
				return err
			}
			name := all.Current
			if len(args) == 1 {
				name = args[0]
			}
			if name == "" {
				return fmt.Errorf("there is no current context: give one, or set one with 'pawl context use NAME'")
			}
			c, err := contextNamed(all, name)
			if err != nil {
				return err
			}
			return a.Print(contextView{name, name == all.Current, c}, func(w io.Writer) {
				text.Fields(w, "Context", name, "Server", c.Server, "Namespace", c.Namespace, "Token file", c.TokenFile,
					"TLS authority", c.TLSCA, "Certificate", c.ClientCert, "Payload keys", c.PayloadKeys)
			})
		}),
	}
}

func (a *app) contextRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Remove a context", Args: cobra.ExactArgs(1), Example: "  pawl context rm staging",
		RunE: a.Run(func(_ *cobra.Command, args []string) error {
			return a.changeContexts(func(all *contexts.Contexts) error {
				if _, err := contextNamed(all, args[0]); err != nil {
					return err
				}
				delete(all.Contexts, args[0])
				if all.Current == args[0] {
					all.Current = ""
				}
				return nil
			})
		}),
	}
}
