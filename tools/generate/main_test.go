package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneratedFilesAreUpToDate: "make generate" writes them.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	t.Chdir("../..")
	files := generated()
	for file, want := range files {
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is out of date (%v): run make generate", file, err)
		}
	}
	there, err := filepath.Glob("admin/*_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range there {
		if files[file] == nil {
			t.Errorf("%s is not generated any more", file)
		}
	}
}

// TestEveryFieldIsConverted: a field of a message is in the struct unless a rule says that it is not, and a rule for what
// is not a field is an error. So nothing that is added to the contract is left out silently.
func TestEveryFieldIsConverted(t *testing.T) {
	for i := range goTypes {
		s := goTypes[i].parse()
		given := map[string]bool{}
		for _, f := range s.fields {
			if f.field != nil {
				given[string(f.field.Name())] = true
			}
		}
		fields := s.messages[0].Fields()
		for j := range fields.Len() {
			name := string(fields.Get(j).Name())
			rules := " " + s.rules + " "
			if !given[name] && !strings.Contains(rules, " -"+name+" ") && !strings.Contains(rules, " "+name+":~ ") {
				t.Errorf("%s has no field for %s of %s", s.name, name, s.messages[0].Name())
			}
		}
	}
	defer func() {
		const want = "Breaker: message Breaker lacks the fields of the rules map[strength:-strength]"
		if got := recover(); got != want {
			t.Errorf("a rule for a field that does not exist: %v, want %s", got, want)
		}
	}()
	(&goType{name: "Breaker", messages: "Breaker", use: decode, rules: "-strength"}).parse()
}
