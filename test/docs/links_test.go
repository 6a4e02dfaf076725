package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// TestLinks: every link of every page leads to a file of the repository, and to an existing heading in it.
func TestLinks(t *testing.T) {
	checked := 0
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == "build" || d.Name() == "bin" ||
			strings.HasPrefix(d.Name(), ".") && file != root):
			return filepath.SkipDir
		case filepath.Ext(file) != ".md":
			return nil
		}
		page, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		for _, target := range linksOf(read(t, page)) {
			checked++
			checkLink(t, page, target)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 300 {
		t.Errorf("only %d links were found, want at least 300", checked)
	}
}

var (
	fenced = regexp.MustCompile("(?ms)^```.*?^```$")
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)|\bsrc(?:set)?="([^"]+)"`) // of text, or a picture
)

func linksOf(text string) (out []string) {
	for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		out = append(out, m[1]+m[2])
	}
	return out
}

func checkLink(t *testing.T, page, target string) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "" {
		return // elsewhere
	}
	to := page
	if u.Path != "" {
		to = path.Join(path.Dir(page), u.Path)
	}
	if info, err := os.Stat(filepath.Join(root, to)); err != nil {
		t.Errorf("%s: the target of %s does not exist", page, target)
		return
	} else if info.IsDir() || u.Fragment == "" {
		return
	}
	for _, anchor := range anchorsOf(read(t, to)) {
		if anchor == u.Fragment {
			return
		}
	}
	t.Errorf("%s: %s: the page has no such heading", page, target)
}

var heading = regexp.MustCompile(`(?m)^#+ (.*)$`)

// anchorsOf returns the anchors of a page's headings, as forges generate them.
func anchorsOf(text string) (out []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		out = append(out, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return out
}

// TestIndex: every page is in the index.
func TestIndex(t *testing.T) {
	listed := map[string]bool{"docs/README.md": true, "README.md": true}
	for _, target := range linksOf(read(t, "docs/README.md")) {
		file, _, _ := strings.Cut(target, "#")
		listed[path.Join("docs", file)] = true
	}
	for _, page := range pages(t) {
		if !listed[page] {
			t.Errorf("%s is not in docs/README.md", page)
		}
	}
}
