package node

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/stats"
)

// Statistics survive a restart; a damaged file only causes a line in the log.
func TestStatsSurvive(t *testing.T) {
	dir, log := t.TempDir(), &bytes.Buffer{}
	open := func() *savedStats {
		return openStats(filepath.Join(dir, datadir.StatsFile), slog.New(slog.NewTextHandler(log, nil)))
	}
	enqueued := func(s *savedStats) uint32 {
		return s.recorder.Report(time.Now(), stats.Queue{Namespace: "default", Name: "mail"}, stats.Day).Total().Enqueued
	}
	s := open()
	s.recorder.Record(time.Now(), []stats.Event{{Namespace: "default", Queue: "mail", Type: "t", Ran: -1, Counts: stats.Set(0).With(stats.Enqueued)}})
	s.save()
	if s = open(); enqueued(s) != 1 || log.Len() > 0 {
		t.Errorf("after a restart it has counted %d, and said %q; want 1 and nothing", enqueued(s), log)
	}
	if err := os.WriteFile(filepath.Join(dir, datadir.StatsFile), []byte("pawl stats 1\nnonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s = open(); enqueued(s) != 0 || !strings.Contains(log.String(), "starting with empty ones") {
		t.Errorf("with a damaged file it has counted %d, and said %q; want 0 and a word", enqueued(s), log)
	}
}

// A node that stops saves its statistics.
func TestStoppingSavesStats(t *testing.T) {
	dir := t.TempDir()
	start(t, Config{Dir: dir}).end()
	if _, err := os.Stat(filepath.Join(dir, datadir.StatsFile)); err != nil {
		t.Error(err)
	}
}
