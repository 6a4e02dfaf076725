package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/internal/node"
)

// everyCommand returns the commands of all programs, except those that cobra adds.
func everyCommand() (all []*cobra.Command) {
	for _, program := range programs {
		all = append(all, program(&cli.App{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}).Commands()...)
	}
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].Commands()...)
	}
	return all
}

// TestHelp: every command has a description and an example.
func TestHelp(t *testing.T) {
	for _, cmd := range everyCommand() {
		if cmd.Short == "" || len(cmd.Commands()) == 0 && cmd.Example == "" {
			t.Errorf("%s: the short description is %q and the example is %q", cmd.CommandPath(), cmd.Short, cmd.Example)
		}
	}
}

// TestExamplesCanBeCopied: a continued line in an example ends with one backslash, as a shell requires.
func TestExamplesCanBeCopied(t *testing.T) {
	for _, cmd := range everyCommand() {
		if strings.Contains(cmd.Example, `\\`) {
			t.Errorf("%s: the example has two backslashes\n%s", cmd.CommandPath(), cmd.Example)
		}
	}
}

// TestIdleFlags: the commands in IdleFlags exist, reject those flags, and hide them in their help.
func TestIdleFlags(t *testing.T) {
	does := func(words ...string) (status int, said string) {
		program := "pawl"
		if programs[words[0]] != nil {
			program, words = words[0], words[1:]
		}
		var out bytes.Buffer
		status = runProgram(program, words, strings.NewReader(""), &out, &out)
		return status, out.String()
	}
	argument := map[string]string{"cert": "ca", "completion": "bash", "restore": "file", "payload-key": "k1", "pawl-bench": "enqueue",
		"pawl-bench completion": "bash", "pawl-outbox completion": "bash"}
	for name, flags := range cli.IdleFlags {
		_, help := does(append(strings.Fields(name), "--help")...)
		_, help, _ = strings.Cut(help, "\nFlags:")
		for _, flag := range flags {
			given := "--" + flag
			if flag != "plaintext" {
				given += "=json"
			}
			status, said := does(strings.Fields(name + " " + argument[name] + " " + given)...)
			if status != cli.ExitUsage || !strings.Contains(said, " takes no --"+flag) {
				t.Errorf("pawl %s %s: status %d, %q, want a usage error", name, given, status, said)
			}
			if help == "" || strings.Contains(help, "--"+flag+" ") {
				t.Errorf("pawl %s --help mentions --%s, or shows no flags:\n%s", name, flag, help)
			}
		}
	}
}

// TestListsWatch: every list can be watched, except for events, which are followed anyway.
func TestListsWatch(t *testing.T) {
	lists := 0
	for _, cmd := range everyCommand() {
		if cmd.CommandPath() == "pawl context ls" || cmd.CommandPath() == "pawl dlq archive ls" { // local files
			continue
		}
		if cmd.Name() == "events" || cmd.Name() != "ls" && cmd.Flags().Lookup("limit") == nil && !strings.HasPrefix(cmd.Short, "List ") ||
			cmd.HasSubCommands() {
			continue
		}
		lists++
		if cmd.Flags().Lookup("watch") == nil {
			t.Errorf("%s has no --watch", cmd.CommandPath())
		}
	}
	if lists < 13 {
		t.Errorf("found %d lists, want at least 13", lists)
	}
}

// TestLongNamesAreClipped: a queue name of 256 bytes does not push the other columns off the screen.
func TestLongNamesAreClipped(t *testing.T) {
	var b bytes.Buffer
	writeQueues(&b, []*admin.Queue{{Name: "mail"}, {Name: strings.Repeat("q", 256)}})
	lines := strings.Split(b.String(), "\n")
	if at := strings.Index(lines[0], "READY"); at != text.MaxCell+2 || !strings.HasPrefix(lines[2], strings.Repeat("q", text.MaxCell-1)+
		"…") {
		t.Errorf("the second column begins at %d, want %d:\n%s", at, text.MaxCell+2, b.String())
	}
}

// TestRecoveryOfShardsThatStartOver: a dry run says how to keep the shards that are not there, a recovery that they start over.
func TestRecoveryOfShardsThatStartOver(t *testing.T) {
	for dryRun, want := range map[bool]string{true: "\nit has no state of the shards [2]: recover from a node that has one",
		false: "\nshard 2: starting over empty, since there was no replica\n"} {
		var out strings.Builder
		v := recoveryOf(node.Recovery{Node: "n1", Lost: []uint32{2}}, dryRun)
		if writeRecovery(&out, &v); !strings.Contains(out.String(), want) {
			t.Errorf("dry run %v: it says %q, want %q", dryRun, out.String(), want)
		}
	}
}

// A list of the tasks before another one shows no worker and no lease if none of them runs.
func TestRunnersOrTheFirst(t *testing.T) {
	var out bytes.Buffer
	writeRunners(&out, []admin.TaskHolder{{TaskID: "t1"}})
	if got := strings.Fields(out.String()); !slices.Equal(got, []string{"FIRST", "t1"}) {
		t.Errorf("of a task that does not run it prints %q", got)
	}
	out.Reset()
	writeRunners(&out, []admin.TaskHolder{{TaskID: "t1"}, {TaskID: "t2", Worker: "w"}})
	if got := out.String(); !strings.Contains(got, "RUNNING") || !strings.Contains(got, "LEASE UNTIL") || strings.Contains(got, "FIRST") {
		t.Errorf("of tasks of which one runs it prints %q", got)
	}
}

// A lost worker runs nothing: it held tasks.
func TestLostWorkersHeldTasks(t *testing.T) {
	var out bytes.Buffer
	writeWorkers(&out, []*admin.Worker{{Name: "a", Running: 3, Slots: 5}, {Name: "b", Running: 2, Slots: 5, LostAt: time.Now()}})
	if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, "a busy 3/5") ||
		!strings.Contains(got, "b lost held 2") {
		t.Errorf("it prints %q", got)
	}
}
