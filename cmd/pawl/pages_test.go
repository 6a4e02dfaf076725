package main

import (
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pawlq/pawl/cmd/internal/cli"
)

// pageCommand finds the commands that the UI shows to newcomers.
var pageCommand = regexp.MustCompile(`"Text" "(pawl (?:[^"\\]|\\.)*)"|<code>(pawl [^<]*)</code>`)

// TestCommandsInPagesExist: this program accepts every command that the UI shows.
func TestCommandsInPagesExist(t *testing.T) {
	var files []string
	for _, pattern := range []string{"templates/*.html", "templates/parts/*.html", "*/templates/*.html", "*/templates/parts/*.html"} {
		some, err := filepath.Glob("../../internal/ui/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, some...)
	}
	found := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pageCommand.FindAllStringSubmatch(string(data), -1) {
			found++
			line := html.UnescapeString(strings.ReplaceAll(m[1]+m[2], `\"`, `"`))
			cmd, rest, err := newRoot(&app{&cli.App{}}).Find(wordsOf(line)[1:])
			if err == nil {
				cmd.InitDefaultHelpFlag()
				err = cmd.ParseFlags(rest)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if help := cmd.Flags().Lookup("help"); err != nil && (help == nil || !help.Changed) || cmd.HasSubCommands() && !cmd.Runnable() {
				t.Errorf("%s: the command %q is invalid: %v", filepath.Base(file), line, err)
			}
		}
	}
	if found < 8 {
		t.Errorf("found %d commands, want at least 8", found)
	}
}

// wordsOf splits a line like a shell, as far as quotes are concerned.
func wordsOf(line string) (words []string) {
	for _, part := range regexp.MustCompile(`'[^']*'|[^\s']+`).FindAllString(line, -1) {
		words = append(words, strings.Trim(part, "'"))
	}
	return words
}
