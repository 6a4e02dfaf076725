package web

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"
)

// vendored has the checksums of third-party files, as published.
var vendored = map[string]string{
	"htmx-2.0.11.min.js":         "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
	"idiomorph-ext-0.8.0.min.js": "5811b9a7eda14878b7dab4378bf60432e1bb6f11fcfb970cc26540642650181e",
	"inter-latin-5.3.0.woff2":    "3100e775e8616cd2611beecfa23a4263d7037586789b43f035236a2e6fbd4c62",
	"htmx-LICENSE.txt":           "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
	"idiomorph-LICENSE.txt":      "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
	"inter-LICENSE.txt":          "3b0a5fca3d17942cde889069889dedbbbd075e9b599968c82a95f4d944e9b345",
}

func TestVendoredFilesAreAsPublished(t *testing.T) {
	entries, err := os.ReadDir("static/vendor")
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(vendored) {
		t.Errorf("static/vendor has %d files, but %d have a checksum here", len(entries), len(vendored))
	}
	for _, e := range entries {
		data, err := os.ReadFile("static/vendor/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		if got := hex.EncodeToString(sum[:]); got != vendored[e.Name()] {
			t.Errorf("%s has the checksum %s, want %s", e.Name(), got, vendored[e.Name()])
		}
	}
}
