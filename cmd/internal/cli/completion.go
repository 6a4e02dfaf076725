package cli

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/contexts"
	"github.com/pawlq/pawl/pawltype"
)

const (
	completionTime = time.Second // for the server to answer while the user waits for Tab
	maxCompletions = 200
	recentTasks    = 100 // how many recent tasks are searched for types and tags
)

// names lists names that begin with a prefix. It may return others too: the caller filters them.
type names func(ctx context.Context, a admin.Client, prefix string) ([]string, error)

// fromServer lists names from the server, by what they name.
var fromServer = map[string]names{
	"QUEUE": func(ctx context.Context, a admin.Client, prefix string) ([]string, error) {
		return collect(a.Queues().List(ctx, admin.QueueFilter{Pattern: prefix + "*"}), func(q *admin.Queue) string { return q.Name })
	},
	"SCHEDULE": func(ctx context.Context, a admin.Client, _ string) ([]string, error) {
		return collect(a.Schedules().List(ctx), func(s *admin.Schedule) string { return s.Name })
	},
	"WORKER": func(ctx context.Context, a admin.Client, _ string) ([]string, error) {
		return collect(a.Workers().List(ctx, admin.WorkerFilter{}), func(w *admin.Worker) string { return w.Name })
	},
	"NAMESPACE": func(ctx context.Context, a admin.Client, prefix string) ([]string, error) {
		return collect(a.Namespaces().List(ctx, admin.NamespaceFilter{Pattern: prefix + "*"}), func(n *admin.Namespace) string {
			return n.Name
		})
	},
	"WEBHOOK": func(ctx context.Context, a admin.Client, _ string) ([]string, error) {
		return collect(a.Webhooks().List(ctx), func(w *admin.Webhook) string { return w.Name })
	},
	"MARKER": func(ctx context.Context, a admin.Client, _ string) ([]string, error) {
		return collect(a.Markers().List(ctx, admin.MarkerFilter{}), func(m *admin.Marker) string { return m.ID })
	},
	"TOKEN": func(ctx context.Context, a admin.Client, prefix string) ([]string, error) {
		return collect(a.Access().ListTokens(ctx, admin.TokenFilter{Pattern: prefix + "*"}), func(t *admin.Token) string { return t.Name })
	},
	"NODE": func(ctx context.Context, a admin.Client, _ string) ([]string, error) {
		status, err := a.Cluster().Status(ctx)
		if err != nil {
			return nil, err
		}
		var out []string
		for _, n := range status.Nodes {
			out = append(out, n.Name)
		}
		return out, nil
	},
	"TASK": func(ctx context.Context, a admin.Client, _ string) ([]string, error) {
		page, err := a.Tasks().ListPage(ctx, admin.Filter{}, pawltype.PageRequest{Limit: recentTasks})
		return idsOf(page.Items), err
	},
	"DEAD": func(ctx context.Context, a admin.Client, _ string) ([]string, error) {
		f := admin.Filter{States: []pawltype.State{pawltype.StateDead, pawltype.StatePoisoned}}
		page, err := a.Tasks().ListPage(ctx, f, pawltype.PageRequest{Limit: recentTasks})
		return idsOf(page.Items), err
	},
	"GROUP": func(ctx context.Context, a admin.Client, _ string) ([]string, error) {
		return collect(a.Groups().List(ctx), func(g *pawltype.Group) string { return g.ID + "\t" + g.Name })
	},
	"OPERATION": func(ctx context.Context, a admin.Client, _ string) ([]string, error) {
		return collect(a.Operations().List(ctx), func(o *admin.Operation) string {
			return o.ID + "\t" + string(o.Action) + ", " + string(o.State)
		})
	},
	"FILTER": func(context.Context, admin.Client, string) ([]string, error) { return nil, nil },
	"TYPE":   typesOf,
	"TAG": func(ctx context.Context, a admin.Client, _ string) ([]string, error) {
		page, err := a.Tasks().ListPage(ctx, admin.Filter{}, pawltype.PageRequest{Limit: recentTasks})
		if err != nil {
			return nil, err
		}
		var out []string
		for _, t := range page.Items {
			out = append(out, t.Tags...)
		}
		return out, nil
	},
}

// idsOf returns the ids of tasks, each with a tab and what the user may know it by.
func idsOf(tasks []*pawltype.Task) (out []string) {
	for _, t := range tasks {
		out = append(out, t.ID+"\t"+t.Type+", "+string(t.State))
	}
	return out
}

// typesOf returns the types that workers take, and those of the newest tasks.
func typesOf(ctx context.Context, a admin.Client, _ string) (out []string, err error) {
	for w, err := range Known(a.Workers().List(ctx, admin.WorkerFilter{})) {
		if err != nil {
			return nil, err
		}
		out = append(out, w.Types...)
	}
	page, err := a.Tasks().ListPage(ctx, admin.Filter{}, pawltype.PageRequest{Limit: recentTasks})
	if err != nil {
		return nil, err
	}
	for _, t := range page.Items {
		out = append(out, t.Type)
	}
	return out, nil
}

func collect[T any](list iter.Seq2[T, error], name func(T) string) (out []string, err error) {
	for item, err := range Known(list) {
		if err != nil {
			return nil, err
		}
		if out = append(out, name(item)); len(out) == maxCompletions {
			break
		}
	}
	return out, nil
}

// Known iterates over the items that a list has, also if others may be missing.
func Known[T any](list iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range list {
			if _, incomplete := errors.AsType[*pawltype.IncompleteError](err); incomplete || !yield(item, err) {
				return
			}
		}
	}
}

// words are the values of flags that take a fixed set of words.
var words = map[string][]string{
	"output":   {"table", "json", "yaml", "wide", "name"}, // the last two are for lists
	"priority": {string(pawltype.High), string(pawltype.Normal), string(pawltype.Low)},
	"on-conflict": {string(pawltype.OnConflictKeep), string(pawltype.OnConflictReplace), string(pawltype.OnConflictKeepLast),
		string(pawltype.OnConflictReject)},
	"key-order":  {"none", "strict"},
	"log-format": {"text", "json"},
	"log-level":  {"debug", "info", "warn", "error"},
	"state":      {"scheduled", "ready", "claimed", "retrying", "succeeded", "dead", "poisoned", "discarded", "cancelled"},
}

// flagNames maps flags to the kind of server-side names that they take.
var flagNames = map[string]string{
	"queue": "QUEUE", "type": "TYPE", "worker": "WORKER", "tag": "TAG", "namespace": "NAMESPACE", "from": "NODE", "to": "NODE",
}

// nouns maps a parent command to what its subcommands' first argument names, where they call it NAME or ID.
var nouns = map[string]string{"queue": "QUEUE", "ns": "NAMESPACE", "token": "TOKEN", "webhook": "WEBHOOK", "context": "CONTEXT",
	"task": "TASK", "dlq": "DEAD", "group": "GROUP", "operation": "OPERATION"}

// Complete adds shell completion of the names of queues, types, workers and others, for which the server is asked. It
// completes the first argument of a command if that is QUEUE, SCHEDULE, WORKER, NODE or TYPE, or NAME or ID below one
// of the nouns, all arguments of a command that takes several or a filter, of which it knows the states, and flags of
// those names.
func (a *App) Complete(root *cobra.Command) {
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(words["output"], cobra.ShellCompDirectiveNoFileComp))
	_ = root.RegisterFlagCompletionFunc("namespace", a.completeFrom("NAMESPACE", -1))
	_ = root.RegisterFlagCompletionFunc("context", a.completeFrom("CONTEXT", -1))
	visit(root, func(cmd *cobra.Command) {
		if !callsServer(cmd) && !strings.HasPrefix(cmd.CommandPath(), "pawl context") {
			return
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if list, ok := words[f.Name]; ok {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
			} else if noun, ok := flagNames[f.Name]; ok {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, a.completeFrom(noun, -1))
			}
		})
		if noun := nounOf(cmd); noun != "" && cmd.ValidArgsFunction == nil {
			args := 1
			if strings.Contains(cmd.Use, "...") {
				args = math.MaxInt
			}
			cmd.ValidArgsFunction = a.completeFrom(noun, args)
		}
	})
}

func visit(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, c := range cmd.Commands() {
		visit(c, do)
	}
}

// nounOf returns what a command's first argument names, if a server or a file can list those names.
func nounOf(cmd *cobra.Command) string {
	parts := strings.Fields(cmd.Use)
	if len(parts) < 2 || cmd.Name() == "add" || cmd.Parent() == nil {
		return ""
	}
	word := strings.Trim(parts[1], "[].")
	if word == "NAME" || word == "PATTERN" || word == "ID" {
		return nouns[cmd.Parent().Name()]
	}
	if _, ok := fromServer[word]; ok {
		return word
	}
	return ""
}

// completeFrom completes names of a kind in the first args arguments, or in a flag if args is -1.
func (a *App) completeFrom(noun string, args int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if args >= 0 && len(given) >= args {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		// In a list such as a,b, the last name is completed.
		before := ""
		if i := strings.LastIndexByte(prefix, ','); i >= 0 && args < 0 {
			before, prefix = prefix[:i+1], prefix[i+1:]
		}
		if strings.HasPrefix(prefix, "state:") && args >= 0 && strings.Contains(cmd.Use, "FILTER") {
			return stateTerms(prefix), cobra.ShellCompDirectiveNoFileComp
		}
		list, err := a.namesOf(cmd, noun, prefix)
		if err != nil {
			return cobra.AppendActiveHelp(nil, "pawl: "+a.explain(err)), cobra.ShellCompDirectiveNoFileComp
		}
		slices.Sort(list)
		list = slices.DeleteFunc(slices.Compact(list), func(s string) bool { return !strings.HasPrefix(s, prefix) })
		for i := range list {
			list[i] = before + list[i]
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// stateTerms completes the last state of a condition such as state:dead,po.
func stateTerms(term string) (out []string) {
	at := strings.LastIndexAny(term, ":,") + 1
	for _, state := range words["state"] {
		if strings.HasPrefix(state, term[at:]) {
			out = append(out, term[:at]+state)
		}
	}
	return out
}

func (a *App) namesOf(cmd *cobra.Command, noun, prefix string) ([]string, error) {
	if noun == "CONTEXT" {
		path, err := contexts.Path()
		if err != nil {
			return nil, err
		}
		all, err := contexts.Load(path)
		if err != nil {
			return nil, err
		}
		return all.Names(), nil
	}
	if err := a.useContext(cmd); err != nil {
		return nil, err
	}
	client, err := a.Dial(pawl.DialOptions{NoRouting: true, RetryFor: -1})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	return fromServer[noun](ctx, admin.New(client), prefix)
}
