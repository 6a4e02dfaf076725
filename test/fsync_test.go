package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// exitBudget is how soon the process must be gone after its disk failed.
const exitBudget = time.Second

// TestDiskFails makes one call to the disk fail while the server works, and lets all later ones succeed. A disk that
// has failed to sync has dropped the data, so a later successful sync proves nothing: the process must exit
// immediately, answer nothing more, and have everything that it has acknowledged when it starts again.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	needStrace(t)
	for _, c := range []struct {
		name  string
		fault fault
		file  string // the most recently written match in the data directory; "": any
		fill  bool   // write until tables must be flushed
		says  string // what the log tells the operator
	}{
		{name: "sync of the log", fault: syncFails, file: "raft/log/*.log", says: "input/output error"},
		{name: "write of the log", fault: fault{calls: "write,pwrite64", does: "error=ENOSPC:when=1"}, file: "raft/log/*.log",
			says: "no space left on device"},
		{name: "sync of the marks", fault: syncFails, file: "raft/marks", says: "input/output error"},
		{name: "sync of the state's list of files", fault: syncFails, file: "shard-0001/MANIFEST-*", fill: true,
			says: "input/output error"},
		{name: "open of a file", fault: fault{calls: "openat", does: "error=EIO:when=1"}, fill: true, says: "input/output error"},
		{name: "sync of the log's directory", fault: syncFails, file: "raft/log", fill: true, says: "input/output error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.start()
			w := newWorkload(t, s.addr, "a", "b")
			w.flow(&w.acked)
			if c.file != "" {
				c.fault.file = s.file(c.file)
			}
			broken := s.inject(c.fault)
			if c.fill {
				defer fill(s)()
			}
			status := s.exit()
			gone := time.Now()
			broken.lift()
			at, what, ok := broken.first(failedCall)
			if !ok {
				t.Fatalf("the server exited with status %d before a disk call failed", status)
			}
			t.Log(what)
			if status <= 0 {
				t.Errorf("the server exited with status %d, want one above 0", status)
			}
			if said := s.logSince(0); !strings.Contains(said, c.says) {
				t.Errorf("the server's log does not contain %q", c.says)
			}
			budget(t, "exit after the failure", gone.Sub(at), exitBudget)
			if strings.HasSuffix(c.file, ".log") { // no acknowledgement depends on what is synced elsewhere
				w.nothingAfter(at)
			}
			s.start()
			w.flow(&w.accepted)
			w.finish()
			w.check()
		})
	}
}

// syncFails fails the first sync of each thread.
var syncFails = fault{calls: "fsync,fdatasync", does: "error=EIO:when=1"}

// file returns the most recently written file in the data directory that matches a pattern.
func (s *server) file(pattern string) string {
	s.t.Helper()
	names, err := filepath.Glob(filepath.Join(s.data, pattern))
	if err != nil || len(names) == 0 {
		s.t.Fatalf("no file matches %s in %s: %v", pattern, s.data, err)
	}
	last, written := "", time.Time{}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && !info.ModTime().Before(written) {
			last, written = name, info.ModTime()
		}
	}
	return last
}

// fill sends the broker large tasks that the workload does not know, until it is stopped or gets no answer.
func fill(s *server) (stop func()) {
	client := s.dial()
	ctx, cancel := context.WithCancel(context.Background())
	var filling sync.WaitGroup
	filling.Go(func() {
		for ctx.Err() == nil {
			if _, err := client.EnqueueBatch(ctx, largeTasks(16)); err != nil {
				return
			}
		}
	})
	return func() { cancel(); filling.Wait() }
}

// TestDiskFailsAtStart makes a sync fail while the server starts on a directory with tasks: one sync after the other,
// from the first one of a start. The server must not start after a failed sync, and the next start has everything.
func TestDiskFailsAtStart(t *testing.T) {
	t.Parallel()
	needStrace(t)
	s := newServer(t)
	s.start()
	w := newWorkload(t, s.addr, "a", "b")
	w.flow(&w.acked)
	s.kill() // under load, so that there is something to replay
	failed := 0
	for n := 1; ; n++ {
		broken := s.startsUnder(fault{calls: "fsync,fdatasync", does: fmt.Sprintf("error=EIO:when=%d", n)})
		from := s.mark()
		line := s.launchAndListen()
		if _, _, ok := broken.first(failedCall); !ok { // a start makes no more syncs on any one thread
			s.kill()
			break
		}
		failed++
		if status := s.exit(); status <= 0 {
			t.Errorf("sync %d failed: the server exited with status %d, want one above 0", n, status)
		}
		if said := s.logSince(from); said == "" {
			t.Errorf("sync %d failed: the server logged nothing (ready: %q)", n, line)
		}
	}
	if failed == 0 {
		t.Error("no sync failed")
	}
	t.Logf("%d starts with a failed sync", failed)
	s.under = nil
	s.start()
	w.flow(&w.accepted)
	w.finish()
	w.check()
}

// TestDiskHangs delays the syncs of the log, as if the disk had stopped responding: nothing is acknowledged meanwhile.
// Then the disk recovers soon and everything continues; or late, when the server has given up by itself; or the process
// is killed before that. After a restart everything that was acknowledged is there.
func TestDiskHangs(t *testing.T) {
	t.Parallel()
	needStrace(t)
	for _, c := range []struct {
		name string
		ends func(s *server, hangs *injected)
	}{
		{"and comes back", func(_ *server, hangs *injected) { hangs.lift() }},
		{"until kill -9", func(s *server, _ *injected) { s.kill(); s.start() }},
		{"for long", func(s *server, hangs *injected) {
			eventually(s.t, "the server says that the disk hangs", startLimit, func() bool {
				return strings.Contains(s.logSince(0), "the disk hangs")
			})
			// The process can't exit while one of its threads is in a disk call, but nobody waits for it.
			eventually(s.t, "the server takes no connections", startLimit, func() bool {
				conn, err := net.Dial("tcp", s.addr)
				if err == nil {
					_ = conn.Close()
				}
				return err != nil
			})
			hangs.lift()
			if status := s.exit(); status <= 0 {
				s.t.Errorf("the server exited with status %d, want one above 0", status)
			}
			s.start()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.start()
			w := newWorkload(t, s.addr, "a", "b")
			w.flow(&w.acked)
			log := s.file("raft/log/*.log")
			hangs := s.inject(fault{calls: "fsync,fdatasync", does: "delay_enter=600000000:when=1+", file: log})
			var since time.Time
			eventually(t, "a sync hangs", startLimit, func() (ok bool) { since, _, ok = hangs.first(hungCall); return ok })
			// Each client has time to make its next call.
			quiet, answers := time.Now(), 0
			eventually(t, "all clients are stuck", startLimit, func() bool {
				if now := len(w.changes()); now != answers {
					quiet, answers = time.Now(), now
				}
				return time.Since(quiet) > time.Second
			})
			w.nothingAfter(since)
			c.ends(s, hangs)
			w.flow(&w.accepted)
			w.finish()
			w.check()
		})
	}
}

// TestKillAtSync kills the server at each sync of its first start: initializing a directory can always be completed
// later. PAWL_SYNC_STEP is the number of syncs between two kills.
func TestKillAtSync(t *testing.T) {
	t.Parallel()
	needStrace(t)
	step := count(t, "PAWL_SYNC_STEP", 7)
	killed := 0
	for n := 1 + rand.IntN(step); ; n += step {
		s := newServer(t, "--shards", "2")
		s.startsUnder(fault{calls: "fsync,fdatasync", does: fmt.Sprintf("signal=KILL:when=%d", n)})
		if line := s.launchAndListen(); line != "" {
			s.kill()
			break
		}
		if status := s.exit(); status != -1 {
			t.Errorf("sync %d: the server exited with status %d, want it killed", n, status)
		}
		killed++
		s.under = nil
		s.start()
		s.kill()
	}
	if killed == 0 {
		t.Error("no start was killed")
	}
	t.Logf("%d starts killed", killed)
}
