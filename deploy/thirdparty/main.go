// Command thirdparty lists the third-party modules in the binary and their licenses, as the page docs/third-party.md or, with -sbom, as a
// bill of materials in CycloneDX format. It fails if a license is not allowed or not recognized.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is a third-party module.
type module struct{ path, version, dir, license string }

// texts lists the allowed licenses, each with words from its text. The first match wins, so a license whose words others contain comes last.
var texts = []struct {
	id    string
	words *regexp.Regexp
}{
	{"Apache-2.0", regexp.MustCompile(`Apache License\s+Version 2\.0`)},
	{"MPL-2.0", regexp.MustCompile(`Mozilla Public License,? [Vv]ersion 2\.0`)},
	{"BSD-3-Clause", regexp.MustCompile(`Redistribution and use in source and binary forms(?s:.*)(?:[Nn]either the name|names? of (?:its|the) (?:contributors|copyright holders?))`)},
	{"BSD-2-Clause", regexp.MustCompile(`Redistribution and use in source and binary forms`)},
	{"MIT", regexp.MustCompile(`Permission is hereby granted, free of charge, to any person`)},
	{"ISC", regexp.MustCompile(`Permission to use, copy, modify, and(?:/or)? distribute this software for any\s+purpose`)},
	{"Unlicense", regexp.MustCompile(`free and unencumbered software released into the public domain`)},
}

// licenseOf recognizes a license by its text.
func licenseOf(text []byte) (id string, ok bool) {
	for _, t := range texts {
		if t.words.Match(text) {
			return t.id, true
		}
	}
	return "", false
}

// modules returns the modules that a package depends on, sorted by path.
func modules(pkg string) (all []module, err error) {
	out, err := command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}", pkg)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	for _, line := range slices.Compact(lines) {
		parts := strings.SplitN(line, " ", 3)
		if len(parts) != 3 {
			continue
		}
		m := module{path: parts[0], version: parts[1], dir: parts[2]}
		if m.license, err = readLicense(m); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func command(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as a release is built
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, &stderr)
	}
	return out, nil
}

func readLicense(m module) (string, error) {
	files, err := filepath.Glob(filepath.Join(m.dir, "*"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		name := strings.ToUpper(filepath.Base(file))
		if !strings.HasPrefix(name, "LICENSE") && !strings.HasPrefix(name, "LICENCE") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if id, ok := licenseOf(text); ok {
			return id, nil
		}
	}
	return "", fmt.Errorf("module %s %s: its license is not allowed or not recognized: see %s", m.path, m.version, m.dir)
}

// writePage writes the Markdown page.
func writePage(w io.Writer, all []module) error {
	var b bytes.Buffer
	b.WriteString(`# Third-party libraries

These modules of other projects are in the binary.
` + "`go run ./deploy/thirdparty > docs/third-party.md`" + ` writes this page.
A test compares it with the binary's dependencies, and fails if a license is not allowed.
The scripts of the web UI are listed in its directory.

| module | version | license |
|---|---|---|
`)
	for _, m := range all {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.path, m.version, m.license)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// The bill of materials. Its fields are named as in CycloneDX 1.6.
type (
	bill struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Metadata   metadata    `json:"metadata"`
		Components []component `json:"components"`
	}
	metadata struct {
		Component component `json:"component"`
	}
	component struct {
		Type     string   `json:"type"`
		Name     string   `json:"name"`
		Version  string   `json:"version,omitempty"`
		PURL     string   `json:"purl,omitempty"`
		Licenses []choice `json:"licenses,omitempty"`
	}
	choice struct {
		License license `json:"license"`
	}
	license struct {
		ID string `json:"id"`
	}
)

// writeBill writes the bill of materials.
func writeBill(w io.Writer, all []module) error {
	b := bill{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{component{Type: "application", Name: "pawl", Licenses: []choice{{license{"Apache-2.0"}}}}}}
	for _, m := range all {
		b.Components = append(b.Components, component{Type: "library", Name: m.path, Version: m.version, PURL: "pkg:golang/" + m.path + "@" + m.version,
			Licenses: []choice{{license{m.license}}}})
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(b)
}

func run(args []string, w io.Writer) error {
	flags := flag.NewFlagSet("thirdparty", flag.ContinueOnError)
	sbom := flags.Bool("sbom", false, "write a bill of materials (CycloneDX 1.6, JSON)")
	pkg := flags.String("package", "./cmd/pawl", "package to list the dependencies of")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all, err := modules(*pkg)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("no modules: is this the repository?")
	}
	if *sbom {
		return writeBill(w, all)
	}
	return writePage(w, all)
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
