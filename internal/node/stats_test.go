package node

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/stats"
)

// Statistics survive a restart; a damaged file only causes a line in the log.
func TestStatsSurvive(t *testing.T) {
	dir, log := t.TempDir(), &bytes.Buffer{}
	open := func() *Node {
		n := &Node{cfg: Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(log, nil))}}
		if err := n.openStats(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	enqueued := func(n *Node) uint32 {
		return n.stats.Report(time.Now(), stats.Queue{Namespace: "default", Name: "mail"}, stats.Day).Total().Enqueued
	}
	n := open()
	n.stats.Record(time.Now(), []stats.Event{{Namespace: "default", Queue: "mail", Type: "t", Ran: -1, Counts: stats.Set(0).With(stats.Enqueued)}})
	if err := n.close(0); err != nil {
		t.Fatal(err)
	}
	if n = open(); enqueued(n) != 1 || log.Len() > 0 {
		t.Errorf("after a restart it has counted %d, and said %q; want 1 and nothing", enqueued(n), log)
	}
	if err := os.WriteFile(filepath.Join(dir, statsFile), []byte("pawl stats 1\nnonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n = open(); enqueued(n) != 0 || !strings.Contains(log.String(), "starting with empty ones") {
		t.Errorf("with a damaged file it has counted %d, and said %q; want 0 and a word", enqueued(n), log)
	}
}
