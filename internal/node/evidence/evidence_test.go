package evidence

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/auth"
)

// A flood of strangers does not hide the refusal of a node with a certificate, and a flood of that node under invented names hides no other
// node's. A node whose name nothing proves is a stranger.
func TestRefusedNodesHaveTheirOwnRates(t *testing.T) {
	var lines bytes.Buffer
	tr := trail.New(trail.Config{Kinds: trail.Usual(), Log: slog.New(slog.NewTextHandler(&lines, nil))})
	r := Recorder{Auth: auth.NewAuthenticator(auth.Config{Mode: auth.Never}), Trail: tr}
	flood := func(record func()) {
		for range 1000 {
			record()
		}
		lines.Reset()
	}
	flood(func() { tr.Record(trail.Event{Kind: trail.Refusal}) })
	for _, certified := range []string{"n3", "n4"} {
		r.RefusedNode("n2", certified, "192.0.2.1:7", errors.New("no"))
		want := "event=refusals code=permission_denied reason=no actor=" + certified + " interface=node address=192.0.2.1 object=n2\n"
		if !strings.HasSuffix(lines.String(), want) {
			t.Errorf("recorded of %s: %q, want %q", certified, &lines, want)
		}
		flood(func() { r.RefusedNode("any", certified, "192.0.2.1:7", errors.New("no")) })
	}
	if r.RefusedNode("n5", "", "192.0.2.1:7", errors.New("no")); lines.Len() != 0 {
		t.Errorf("recorded of a node without a certificate, in a flood: %q", &lines)
	}
}
