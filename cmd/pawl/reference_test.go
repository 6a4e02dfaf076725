package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var rewrite = flag.Bool("rewrite", false, "write the reference of the command line anew")

// trees returns the commands of all programs by their names.
func trees(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	for _, name := range []string{"SERVER", "TLS_CA", "CLIENT_CERT", "CLIENT_KEY", "NAMESPACE", "PAYLOAD_KEYS", "ACTOR"} {
		t.Setenv("PAWL_"+name, "") // so that they don't become defaults of flags
	}
	all := map[string]*cobra.Command{}
	for name, program := range programs {
		root := program(&cli.App{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
		root.InitDefaultHelpCmd()
		root.InitDefaultCompletionCmd()
		all[name] = root
	}
	return all
}

// TestReference: docs/cli.md and docs/configuration.md are generated from the commands. "make generate" rewrites them.
func TestReference(t *testing.T) {
	all := trees(t)
	want := map[string]string{"cli.md": commandReference(all["pawl"], all["pawl-outbox"], all["pawl-bench"]),
		"configuration.md": settingsReference(all["pawl"])}
	for file, want := range want {
		path := filepath.Join("../../docs", file)
		if *rewrite {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil { // #nosec G306 -- a page
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s differs from the commands (%v): run make generate", path, err)
		}
	}
}

// commandReference returns a page with every command of the programs, its flags and examples.
func commandReference(root *cobra.Command, others ...*cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Command line\n\n<!-- Generated from the commands by \"make generate\". -->\n\n")
	fmt.Fprintf(&b, "%s\n\n", paragraphs(root.Long))
	for _, group := range root.Groups() {
		fmt.Fprintf(&b, "**%s**", group.Title)
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID {
				fmt.Fprintf(&b, " [%s](#pawl-%s)", cmd.Name(), cmd.Name())
			}
		}
		b.WriteString("\n\n")
	}
	b.WriteString("Programs beside it, with the same flags, environment and contexts:\n\n")
	for _, program := range others {
		fmt.Fprintf(&b, "- [%s](#%s): %s\n", program.Name(), program.Name(), lower(program.Short))
	}
	b.WriteString("\n## Flags of all commands\n\nA command rejects those that would have no effect.\n" +
		"With `-o json` and `-o yaml` it prints what the REST API answers to the same call, with the same names, times and durations.\n\n")
	flagTable(&b, root.PersistentFlags())
	b.WriteString("What flags don't set comes from the environment, then from the current [context](#pawl-context).\n" +
		"Completion for your shell: `source <(pawl completion bash)`, or `zsh`, `fish` and `powershell`.\nIt completes commands " +
		"and flags, and asks the server for the names of queues, types, schedules, workers and others.\n")
	var each func(cmd *cobra.Command)
	each = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		depth := "###"
		if cmd.Parent() == root || !cmd.HasParent() {
			depth = "##"
		}
		fmt.Fprintf(&b, "\n%s %s\n\n%s.\n", depth, cmd.CommandPath(), cmd.Short)
		if cmd.Long != "" {
			fmt.Fprintf(&b, "\n%s\n", paragraphs(cmd.Long))
		}
		if cmd.Runnable() && !cmd.HasSubCommands() {
			fmt.Fprintf(&b, "\n```text\n%s\n```\n", cmd.UseLine())
		}
		if cmd.Example != "" {
			fmt.Fprintf(&b, "\n```sh\n%s\n```\n", outdent(cmd.Example))
		}
		if cmd.LocalNonPersistentFlags().HasAvailableFlags() && !cmd.HasSubCommands() {
			b.WriteString("\n")
			flagTable(&b, cmd.LocalNonPersistentFlags())
		}
		for _, c := range cmd.Commands() {
			each(c)
		}
	}
	for _, c := range slices.Concat(root.Commands(), others) {
		each(c)
	}
	return tidy(b.String())
}

// settingsReference returns a page with every setting of the server: as a flag, in the environment and in the file.
func settingsReference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Generated from the flags of "pawl serve" by "make generate". -->

A server needs no configuration: ` + "`pawl serve`" + ` keeps its data in ` + "`./pawl-data`" + ` and listens on ` + "`127.0.0.1:7295`" + `.

Each setting is a flag, an environment variable, and a key in the YAML file named by ` + "`--config`" + ` or ` + "`PAWL_CONFIG`" + `.
Flags take precedence over the environment, and the environment over the file.
An unknown name in the file is an error.

` + "```yaml\n# pawl.yaml\ndata: /var/lib/pawl\nlisten: 127.0.0.1:7295\nlog-format: json\nmin-free: 1GiB\n```" + `

` + "```sh\npawl serve --config pawl.yaml\nPAWL_DATA=/var/lib/pawl pawl serve --log-format json\n```" + `

The settings of a queue (leases, retries, rates, limits, breakers) are not among these: change them at runtime with ` + "[`pawl queue set`](cli.md#pawl-queue-set)" + `.
Quotas belong to [namespaces](access.md#quotas).

| flag | environment and file | default | |
|---|---|---|---|
`)
	serve, _, _ := root.Find([]string{"serve"})
	serve.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		_, use := pflag.UnquoteUsage(f)
		fmt.Fprintf(&b, "| `--%s` | `PAWL_%s`, `%s` | %s | %s |\n", f.Name, strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")), f.Name,
			defaultOf(f), cell(use))
	})
	b.WriteString(`
OpenTelemetry's standard variables, such as ` + "`OTEL_EXPORTER_OTLP_ENDPOINT`" + `, configure the export of traces: see [tracing](tracing.md).
`)
	return b.String()
}

func flagTable(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | | default |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		kind, use := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", strings.TrimSpace(name+" "+kind), cell(use), defaultOf(f))
	})
	b.WriteString("\n")
}

func defaultOf(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "0", "false", "[]", "0s":
		return ""
	}
	return "`" + strings.Trim(f.DefValue, "[]") + "`"
}

// cell escapes text for a table cell.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "\n", " ").Replace(s)
}

// lower returns a description within a sentence.
func lower(short string) string { return strings.ToLower(short[:1]) + short[1:] }

// paragraphs converts a help text to Markdown: indented lines become code, and every sentence gets a line of its own.
func paragraphs(help string) string {
	var out []string
	for part := range strings.SplitSeq(strings.TrimSpace(help), "\n\n") {
		lines := strings.Split(part, "\n")
		if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, " ") }); i >= 0 {
			if i > 0 {
				out = append(out, sentences(strings.Join(lines[:i], " ")))
			}
			out = append(out, "```text\n"+outdent(strings.Join(lines[i:], "\n"))+"\n```")
			continue
		}
		out = append(out, sentences(strings.Join(lines, " ")))
	}
	return strings.Join(out, "\n\n")
}

var sentenceEnd = regexp.MustCompile(`([.:?]) ([A-Z])`)

func sentences(s string) string {
	return sentenceEnd.ReplaceAllString(strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(s), "$1\n$2")
}

func outdent(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n "), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

func tidy(s string) string {
	for strings.Contains(s, "\n\n\n") {
		s = strings.ReplaceAll(s, "\n\n\n", "\n\n")
	}
	return strings.TrimSpace(s) + "\n"
}

// TestCommandsInDocsExist: every command in the docs exists, with its flags, in code blocks and in sentences.
func TestCommandsInDocsExist(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked, all := 0, trees(t)
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commandsOf(text) {
			checked++
			if err := exists(all, line); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(page), line, err)
			}
		}
	}
	if checked < 200 {
		t.Errorf("found only %d commands in the docs, want at least 200", checked)
	}
}

var (
	inlineCommand = regexp.MustCompile("`(pawl(?:-bench|-outbox)? [a-z][^`]*)`")
	shellCommand  = regexp.MustCompile(`(?m)(?:^|[|;(] *|&& *)(pawl(?:-bench|-outbox)? (?:[^#|;()\n'"]|'[^']*'|"[^"]*")*)`)
)

// commandsOf finds the invocations of the programs in a page.
func commandsOf(text []byte) (out []string) {
	text = bytes.ReplaceAll(text, []byte("\\\n"), []byte(" "))
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllSubmatch(text, -1) {
		for _, c := range shellCommand.FindAllSubmatch(m[1], -1) {
			out = append(out, string(c[1]))
		}
	}
	text = regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAll(text, nil)
	for _, m := range inlineCommand.FindAllSubmatch(text, -1) {
		out = append(out, string(m[1]))
	}
	return out
}

// exists returns an error if the command or a flag of a command line doesn't exist.
func exists(programs map[string]*cobra.Command, line string) error {
	line = regexp.MustCompile(`'[^']*'|"[^"]*"`).ReplaceAllString(line, "x")
	line, _, _ = strings.Cut(line, " | ")
	words := strings.Fields(line)
	root, words := programs[words[0]], words[1:]
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if cmd == root && words[0][0] != '-' {
		return fmt.Errorf("no command %q", words[0])
	}
	if cmd.HasSubCommands() && len(rest) > 0 && regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(rest[0]) {
		return fmt.Errorf("%s has no command %q", cmd.CommandPath(), rest[0])
	}
	for _, w := range rest {
		name, _, _ := strings.Cut(strings.TrimLeft(w, "-[("), "=")
		name = strings.TrimRight(name, ",.)]…")
		switch {
		case strings.HasPrefix(strings.TrimLeft(w, "[("), "--"):
			if cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil && name != "help" && name != "" {
				return fmt.Errorf("%s has no flag --%s", cmd.CommandPath(), name)
			}
		case strings.HasPrefix(w, "-") && len(name) == 1:
			if cmd.Flags().ShorthandLookup(name) == nil && cmd.InheritedFlags().ShorthandLookup(name) == nil {
				return fmt.Errorf("%s has no flag -%s", cmd.CommandPath(), name)
			}
		}
	}
	return nil
}
