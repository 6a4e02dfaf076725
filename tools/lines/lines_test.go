package main

import (
	"os"
	"strings"
	"testing"
)

// Each pair of files in testdata is a file and what becomes of it.
func TestFormat(t *testing.T) {
	for _, name := range []string{"code", "comments", "texts"} {
		src, err := os.ReadFile("testdata/" + name + ".in")
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("testdata/" + name + ".want")
		if err != nil {
			t.Fatal(err)
		}
		got, err := Format(src)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s, %v:\n%s\nwant:\n%s", name, err, got, want)
		}
		if again, err := Format(want); err != nil || string(again) != string(want) {
			t.Errorf("%s, formatted once more, %v:\n%s", name, err, again)
		}
	}
}

// A file is refused rather than changed into another program.
func TestProgram(t *testing.T) {
	same := [][2]string{
		{"package a\nvar x = \"a b\"", "package a\nvar x = \"a \" +\n\"b\""},
		{"package a\nfunc f() { g(); h() }", "package a\nfunc f() {\ng()\nh()\n}"},
		{"package a\nvar x int // y", "package a\n\n// y\nvar x int"},
	}
	for _, pair := range same {
		if a, b := strings.Join(program([]byte(pair[0])), " "), strings.Join(program([]byte(pair[1])), " "); a != b {
			t.Errorf("%q and %q are the same program: %s, %s", pair[0], pair[1], a, b)
		}
	}
	for _, other := range []string{"package a\nvar x = \"a  b\"", "package a\nvar x = \"a \" + `b`", "package a\nvar x = \"a \"; \"b\""} {
		if strings.Join(program([]byte(same[0][0])), " ") == strings.Join(program([]byte(other)), " ") {
			t.Errorf("%q was taken for %q", other, same[0][0])
		}
	}
}
