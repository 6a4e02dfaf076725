package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/contract"
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

// TestEveryCodeHasAClass: an error code of the broker that has none would be a plain PawlError in Python and TypeScript.
func TestEveryCodeHasAClass(t *testing.T) {
	source, err := os.ReadFile("../../internal/task/refusal.go")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{string(contract.CodeInternal)}
	for _, m := range regexp.MustCompile(`\tCode\w+ +Code = "(\w+)"`).FindAllSubmatch(source, -1) {
		want = append(want, string(m[1]))
	}
	var got []string
	for _, e := range errorClasses {
		got = append(got, string(e.code))
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(got) < 12 || !slices.Equal(want, got) {
		t.Errorf("classes for the codes %q, want %q", got, want)
	}
}

// TestEveryFieldIsConverted: a struct has the fields of its first message. Those of the others must be there too, or a rule says that
// they are not, and a rule for what is not a field is an error. So nothing that is added to the contract is left out silently.
func TestEveryFieldIsConverted(t *testing.T) {
	for i := range goTypes {
		s := goTypes[i].parse()
		first := s.messages[0].Fields()
		for _, other := range s.messages[1:] {
			fields := other.Fields()
			for j := range fields.Len() {
				name := fields.Get(j).Name()
				if first.ByName(name) == nil && !strings.Contains(" "+s.rules+" ", " -"+string(name)+" ") {
					t.Errorf("%s has no field for %s of %s", s.name, name, other.Name())
				}
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

// TestEveryFactIsUsed: a fact about a message or a field that was renamed would be lost silently.
func TestEveryFactIsUsed(t *testing.T) {
	names := map[string]protoreflect.Kind{}
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		d := m.Descriptor()
		names[nameOf(d)] = protoreflect.MessageKind
		for i := range d.Fields().Len() {
			names[nameOf(d.Fields().Get(i))] = d.Fields().Get(i).Kind()
		}
		return true
	})
	for _, fact := range append(requestFacts, facts...) {
		for about := range strings.FieldsSeq(fact.about) {
			used := false
			for name, kind := range names {
				used = used || isAbout(about, name, kind)
			}
			if !used {
				t.Errorf("there is a fact about %s, which names nothing that it could apply to", about)
			}
		}
	}
	for message, fields := range required {
		all := apijson.Of(find(message).(protoreflect.MessageDescriptor)).All()
		for field := range strings.FieldsSeq(fields) {
			if !slices.ContainsFunc(all, func(f *apijson.Field) bool { return f.Name() == field }) {
				t.Errorf("%s.%s is required, but does not exist", message, field)
			}
		}
	}
}

// TestEveryDocHasItsPlace: a comment for a type or a field that was renamed would be lost silently.
func TestEveryDocHasItsPlace(t *testing.T) {
	places := map[string]bool{}
	for i := range goTypes {
		s := goTypes[i].parse()
		places[s.name] = true
		for _, f := range s.fields {
			places[s.name+"."+f.name] = true
		}
	}
	for place := range goDocs {
		if !places[place] {
			t.Errorf("goDocs has a comment for %s, which does not exist", place)
		}
	}
}
