package docs

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const root = "../.."

// block is a fenced code block of a page.
type block struct {
	page string // "docs/go.md"
	line int
	lang string
	text string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// name returns the file name of a block whose first line is a comment with nothing but a file name.
func (b block) name() string {
	if m := regexp.MustCompile(`^(?:#|//) (\S+\.\w+)\n`).FindStringSubmatch(b.text); m != nil {
		return m[1]
	}
	return ""
}

// pages returns the README and the pages of docs except for decisions, which record what was true when they were made.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(found) < 20 {
		t.Fatalf("only %d pages were found: %v", len(found), err)
	}
	out := []string{"README.md"}
	for _, path := range found {
		out = append(out, "docs/"+filepath.Base(path))
	}
	return out
}

// TestDecisions: every decision says whether it holds, and is in the index.
func TestDecisions(t *testing.T) {
	found, err := filepath.Glob(root + "/docs/decisions/0*.md")
	if err != nil || len(found) < 50 {
		t.Fatalf("only %d decisions were found: %v", len(found), err)
	}
	index := read(t, "docs/decisions/README.md")
	form := regexp.MustCompile(`^# (\d+)\. (.+)\n\nStatus: (accepted|superseded by \[\d+\])[;.]`)
	for _, path := range found {
		name := filepath.Base(path)
		m := form.FindStringSubmatch(read(t, "docs/decisions/"+name))
		if m == nil {
			t.Errorf(`%s does not begin with "# NUMBER. TITLE", an empty line and "Status: accepted" or "superseded by [NUMBER](FILE)"`,
				name)
			continue
		}
		if entry := fmt.Sprintf("- [%s. %s](%s)\n", m[1], m[2], name); !strings.Contains(index, entry) {
			t.Errorf("the index has no line %q", entry)
		}
	}
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocksOf returns the code blocks of a page.
func blocksOf(t *testing.T, page string) (out []block) {
	t.Helper()
	var b *block
	for i, line := range strings.SplitAfter(read(t, page), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && b == nil:
			b = &block{page: page, line: i + 1, lang: strings.TrimSpace(fence)}
		case isFence:
			out = append(out, *b)
			b = nil
		case b != nil:
			b.text += line
		}
	}
	if b != nil {
		t.Errorf("%s: the code block is not closed", *b)
	}
	return out
}

// elsewhere lists, by page, the languages whose blocks are run by an SDK's tests.
var elsewhere = map[string][]string{
	"docs/python.md":             {"python", "sh"},
	"docs/typescript.md":         {"ts", "sh"},
	"docs/coming-from-bullmq.md": {"ts", "sh"},
	"docs/coming-from-celery.md": {"python"},
	"docs/coming-from-sqs.md":    {"python"},
}

// TestBlocks: every block names its language, and data can be parsed.
func TestBlocks(t *testing.T) {
	for _, page := range pages(t) {
		for _, b := range blocksOf(t, page) {
			var v any
			var err error
			switch b.lang {
			case "go", "sh", "sql", "text": // tested elsewhere; SQL statements are fragments of what the outbox's tests run
			case "json":
				for values := json.NewDecoder(strings.NewReader(b.text)); err == nil; { // one or more
					err = values.Decode(&v)
				}
				if err == io.EOF {
					err = nil
				}
			case "yaml":
				err = yaml.Unmarshal([]byte(b.text), &v)
			case "python", "ts", "js", "ruby":
				if b.name() == "" && !slices.Contains(elsewhere[page], b.lang) {
					err = shown(b)
				}
			default:
				err = fmt.Errorf("language %q: want go, sh, python, js, ts, ruby, json, yaml, sql, or text for what is no code", b.lang)
			}
			if err != nil {
				t.Errorf("%s: %v", b, err)
			}
		}
	}
}

// shown rejects code that nothing runs, unless it is that of another queue on a page about migrating from it.
func shown(b block) error {
	if strings.HasPrefix(b.page, "docs/coming-from-") || b.page == "docs/webhooks.md" && b.lang == "python" {
		return nil
	}
	return fmt.Errorf("nothing runs this program: name its file in a first line, # worker.py, and run it")
}
