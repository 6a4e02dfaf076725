// Command lines breaks the lines of Go files that are too long, as people do: after a comma or an operator, as late and
// as little nested as possible. Comments that are too long are filled again or put above the code; texts are split at a
// space. What it can't break, it prints. A tab counts as four columns.
//
// Usage: lines [-w] FILE...
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

const (
	width        = 140 // of a line, in columns
	commentWidth = 120 // of a comment that is filled again
	tabWidth     = 4
)

func main() {
	write := flag.Bool("w", false, "write the files; otherwise only print the lines that are too long")
	flag.Parse()
	left := 0
	for _, path := range flag.Args() {
		n, err := do(path, *write)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			n = 1
		}
		left += n
	}
	if left > 0 {
		os.Exit(1)
	}
}

// do formats or checks a file, and returns how many lines are too long.
func do(path string, write bool) (left int, err error) {
	src, err := os.ReadFile(path)
	if err != nil || bytes.HasPrefix(src, []byte("// Code generated")) {
		return 0, err
	}
	out := src
	if write {
		if out, err = Format(src); err != nil {
			return 0, err
		}
		if !bytes.Equal(out, src) {
			if err := os.WriteFile(path, out, 0o644); err != nil { // #nosec G306 -- a source file
				return 0, err
			}
		}
	}
	data := dataLines(out)
	for i, line := range strings.Split(string(out), "\n") {
		if tooLong(line) && !data[i+1] {
			fmt.Printf("%s:%d: %d columns\n", path, i+1, columns(line))
			left++
		}
	}
	return left, nil
}

func tooLong(line string) bool { return columns(line) > width }

// columns returns how wide a text is.
func columns(text string) int {
	return utf8.RuneCountInString(text) + (tabWidth-1)*strings.Count(text, "\t")
}
