package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/internal/node"
)

// TestDryRuns: no command changes anything with --dry-run, with or without --yes, for one thing, for many, or for all
// that match. Each line is then run in earnest, to show that it would have changed something.
func TestDryRuns(t *testing.T) {
	s := startServer(t, node.Config{InMemory: true, DataShards: 2})
	defer s.stop()
	files := t.TempDir()
	apply := func(queue string) []string {
		write := func(name, text string) string {
			path := filepath.Join(files, queue+name)
			if err := os.WriteFile(path, []byte("owner: "+queue+"\nschedules:\n"+text), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		s.run(cli.ExitDone, "schedule", "apply", "-f", write("old", "- {name: "+queue+"-changed, every: 1h, task: {type: a}}\n- {name: "+
			queue+
			"-gone, every: 1h, task: {type: a}}\n"))
		return []string{write("new", "- {name: "+queue+"-changed, every: 2h, task: {type: a}}\n- {name: "+queue+
			"-new, every: 1h, task: {type: a}}\n")}
	}
	rows := map[string]struct {
		flags   string
		prepare func(queue string) []string // returns ids, or what replaces FILE
		forms   []string                    // besides those that the command's usage names
	}{
		"pawl task cancel":         {prepare: s.ready},
		"pawl task retry":          {prepare: s.discarded},
		"pawl task discard":        {prepare: s.ready},
		"pawl task run-now":        {prepare: s.scheduled},
		"pawl task set-priority":   {prepare: s.ready, flags: "--priority high"},
		"pawl task move":           {prepare: s.ready, flags: "--to bulk"},
		"pawl dlq replay":          {prepare: s.dead, forms: []string{"--all"}},
		"pawl dlq discard":         {prepare: s.dead, forms: []string{"--all"}},
		"pawl queue purge":         {prepare: s.ready},
		"pawl queue spread":        {prepare: s.ready, flags: "--parts 2"},
		"pawl schedule apply":      {prepare: apply, forms: []string{"-f FILE", "-f FILE --prune", "-f FILE --prune --take-over"}},
		"pawl recover":             {}, // see TestDryRunOfARecovery
		"pawl dlq archive restore": {}, // see TestRestoreFromNodes
	}
	root := newRoot(&app{&cli.App{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}})
	todo, queues := slices.Clone(root.Commands()), 0
	for len(todo) > 0 {
		cmd := todo[0]
		todo = append(todo[1:], cmd.Commands()...)
		row, ok := rows[cmd.CommandPath()]
		if has := cmd.Flags().Lookup("dry-run") != nil; has != ok {
			t.Errorf("%s has --dry-run: %t, and is in the table: %t", cmd.CommandPath(), has, ok)
		}
		if row.prepare == nil {
			continue
		}
		forms := row.forms
		for word, these := range map[string][]string{"ID...": {"ID", "ID ID ID"}, "FILTER...": {"--queue QUEUE", "queue:QUEUE"},
			" QUEUE": {"QUEUE"}} {
			if strings.Contains(cmd.Use, word) {
				forms = append(forms, these...)
			}
		}
		if len(forms) == 0 {
			t.Errorf("%s: the table has no forms of %q", cmd.CommandPath(), cmd.Use)
		}
		for _, form := range forms {
			queues++
			queue := fmt.Sprintf("q%d", queues)
			given := row.prepare(queue)
			var line []string
			for _, word := range strings.Fields(cmd.CommandPath() + " " + form + " " + row.flags)[1:] {
				switch {
				case word == "ID" || word == "FILE":
					word, given = given[0], given[1:]
				default:
					word = strings.ReplaceAll(word, "QUEUE", queue)
				}
				line = append(line, word)
			}
			yes := []string{"--yes"}
			if cmd.Flags().Lookup("yes") == nil {
				yes = nil
			}
			before := s.state()
			for _, sure := range [][]string{nil, yes} {
				s.run(cli.ExitDone, slices.Concat(line, []string{"--dry-run"}, sure)...)
				if after := s.state(); after != before {
					t.Fatalf("pawl %s --dry-run changed something: before\n%s\nafter\n%s", strings.Join(line, " "), before, after)
				}
			}
			s.run(cli.ExitDone, slices.Concat(line, yes)...)
			if s.state() == before {
				t.Errorf("pawl %s changed nothing, so that its dry run proves nothing", strings.Join(line, " "))
			}
		}
	}
}

// TestDryRunOfARecovery: a recovery with --dry-run leaves every file as it is.
func TestDryRunOfARecovery(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, node.Config{Dir: dir})
	s.ready("q")
	s.stop()
	state := func() (all string) {
		if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				all += path + "\n"
				return err
			}
			text, err := os.ReadFile(path)
			all += fmt.Sprintf("%s %x\n", path, sha256.Sum256(text))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := state()
	for _, line := range []string{"--dry-run", "--dry-run --yes"} {
		if status := run(append([]string{"recover", "--data", dir}, strings.Fields(line)...), strings.NewReader(""), io.Discard,
			io.Discard); status != cli.ExitDone || state() != before {
			t.Errorf("pawl recover %s: status %d; before\n%s\nafter\n%s", line, status, before, state())
		}
	}
	if status := run([]string{"recover", "--data", dir, "--yes"}, strings.NewReader(""), io.Discard, io.Discard); status != cli.ExitDone ||
		state() == before {
		t.Errorf("pawl recover: status %d, and the files are as before", status)
	}
}

// TestOwnersOfSchedules: a file changes and prunes the schedules of its own owner only. Schedules without an owner are nobody's.
func TestOwnersOfSchedules(t *testing.T) {
	s := startServer(t, node.Config{InMemory: true})
	defer s.stop()
	schedules := admin.New(s.client).Schedules()
	owned := func() map[string]string {
		all := map[string]string{}
		for v, err := range schedules.List(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			all[v.Name] = fmt.Sprintf("%q has type %s", v.Owner, v.Task.Type)
		}
		return all
	}
	owners := []string{"", "billing", "shop"}
	for _, c := range []struct {
		file, flags string
		changes     []string // the owners whose schedule it may have in it
		prunes      bool
	}{
		{file: "", changes: owners[:1]},
		{file: "", flags: "--take-over", changes: owners},
		{file: "", flags: "--prune"},
		{file: "", flags: "--take-over --prune"},
		{file: "billing", changes: owners[1:2]},
		{file: "billing", flags: "--prune", changes: owners[1:2], prunes: true},
		{file: "billing", flags: "--take-over", changes: owners},
		{file: "billing", flags: "--take-over --prune", changes: owners, prunes: true},
	} {
		for _, owner := range owners {
			for name := range owned() {
				if err := schedules.Delete(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
			want := map[string]string{}
			for _, of := range owners {
				for _, name := range []string{"in." + of, "out." + of} {
					if _, err := schedules.Create(t.Context(), admin.ScheduleSpec{Name: name, Owner: of, Every: time.Hour,
						Task: pawl.RawTask{Type: "old"}}); err != nil {
						t.Fatal(err)
					}
					want[name] = fmt.Sprintf("%q has type old", of)
				}
			}
			path := filepath.Join(t.TempDir(), "schedules.yaml")
			text := fmt.Sprintf("schedules:\n- {name: in.%s, every: 1h, task: {type: new}}\n", owner)
			if c.file != "" {
				text = fmt.Sprintf("owner: %q\n", c.file) + text
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			status := cli.ExitRefused
			switch {
			case slices.Contains(c.changes, owner):
				status = cli.ExitDone
				if c.prunes {
					delete(want, "in."+c.file)
					delete(want, "out."+c.file)
				}
				want["in."+owner] = fmt.Sprintf("%q has type new", c.file)
			case c.changes == nil && (owner == "" || strings.HasPrefix(c.flags, "--take-over")):
				status = cli.ExitUsage // nobody's schedules can't be pruned
			}
			s.run(status, append([]string{"schedule", "apply", "-f", path}, strings.Fields(c.flags)...)...)
			if got := owned(); !maps.Equal(got, want) {
				t.Errorf("owner %q applied a schedule of %q with %q: %q, want %q", c.file, owner, c.flags, got, want)
			}
		}
	}
}

// A dry run with --max shows no more tasks than that, for programs too, and more than it found only if there may be more.
func TestDryRunUpToMax(t *testing.T) {
	preview := &pawlv1.OperationPreview{Matched: 5}
	addr := serveLists(t, func(answer protoreflect.Message) {
		answer.Interface().(*pawlv1.StartOperationResponse).Preview = preview
	})
	for _, c := range []struct {
		lowerBound  bool
		flags       string
		json, table string
	}{
		{false, "", `"matched": 5, "is_lower_bound": false`, "5 tasks would be cancelled\n"},
		{false, "--max 3", `"matched": 3, "is_lower_bound": false`, "3 tasks would be cancelled\n"},
		{false, "--max 9", `"matched": 5, "is_lower_bound": false`, "5 tasks would be cancelled\n"},
		{true, "", `"matched": 5, "is_lower_bound": true`, "at least 5 tasks would be cancelled\n"},
		{true, "--max 3", `"matched": 3, "is_lower_bound": false`, "3 tasks would be cancelled\n"},
		{true, "--max 5", `"matched": 5, "is_lower_bound": false`, "5 tasks would be cancelled\n"},
		{true, "--max 6", `"matched": 5, "is_lower_bound": true`, "at least 5 tasks would be cancelled\n"},
	} {
		preview.IsLowerBound = c.lowerBound
		for format, want := range map[string]string{"json": c.json, "table": c.table} {
			var out, said bytes.Buffer
			line := "task cancel --queue mail --dry-run " + c.flags + " -o " + format + " --server " + addr
			exit := run(strings.Fields(line), strings.NewReader(""), &out, &said)
			if got := strings.Join(strings.Fields(out.String()), " "); exit != cli.ExitDone || !strings.Contains(got+"\n", want) {
				t.Errorf("pawl %s, lower bound %v: status %d, %s, want %s\n%s", line, c.lowerBound, exit, got, want, &said)
			}
		}
	}
}
