package stats

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Statistics survive a restart; a damaged file only causes a line in the log.
func TestStatsSurvive(t *testing.T) {
	file, log := filepath.Join(t.TempDir(), "stats"), &bytes.Buffer{}
	open := func() *File { return Open(file, slog.New(slog.NewTextHandler(log, nil))) }
	enqueued := func(s *File) uint32 {
		return s.Recorder.Report(time.Now(), Queue{Namespace: "default", Name: "mail"}, Day).Total().Enqueued
	}
	s := open()
	s.Recorder.Record(time.Now(), []Event{{Namespace: "default", Queue: "mail", Type: "t", Ran: -1, Counts: Set(0).With(Enqueued)}})
	s.Save()
	if s = open(); enqueued(s) != 1 || log.Len() > 0 {
		t.Errorf("after a restart it has counted %d, and said %q; want 1 and nothing", enqueued(s), log)
	}
	if err := os.WriteFile(file, []byte("pawl stats 1\nnonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s = open(); enqueued(s) != 0 || !strings.Contains(log.String(), "starting with empty ones") {
		t.Errorf("with a damaged file it has counted %d, and said %q; want 0 and a word", enqueued(s), log)
	}
}
