package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestThirdParty: the page lists the binary's dependencies, and all their licenses are allowed.
func TestThirdParty(t *testing.T) {
	t.Chdir("../..")
	var page, bom bytes.Buffer
	if err := run(nil, &page); err != nil {
		t.Fatal(err)
	}
	had, err := os.ReadFile("docs/third-party.md")
	if err != nil || string(had) != page.String() {
		t.Errorf("docs/third-party.md is out of date: go run ./deploy/thirdparty > docs/third-party.md (%v)", err)
	}
	if err := run([]string{"-sbom"}, &bom); err != nil {
		t.Fatal(err)
	}
	var b bill
	if err := json.Unmarshal(bom.Bytes(), &b); err != nil || len(b.Components) != strings.Count(page.String(), "\n| ")-1 || b.Components[0].PURL == "" {
		t.Errorf("the bill of materials has %d components, %v", len(b.Components), err)
	}
}

// TestLicenses: allowed licenses are recognized, and no others.
func TestLicenses(t *testing.T) {
	for text, want := range map[string]string{
		"Apache License\n   Version 2.0, January 2004": "Apache-2.0", "GNU AFFERO GENERAL PUBLIC LICENSE\nVersion 3": "", "": "",
		"Mozilla Public License, version 2.0": "MPL-2.0",
		"Business Source License 1.1":         "",
		"Redistribution and use in source and binary forms, with or without … Neither the name of":              "BSD-3-Clause",
		"Redistribution and use in source and binary forms, with or without modification":                       "BSD-2-Clause",
		"Permission is hereby granted, free of charge, to any person obtaining a copy":                          "MIT",
		"Permission to use, copy, modify, and distribute this software for any\npurpose with or without fee is": "ISC",
	} {
		if id, ok := licenseOf([]byte(text)); id != want || ok != (want != "") {
			t.Errorf("%.40q: %q, want %q", text, id, want)
		}
	}
}
