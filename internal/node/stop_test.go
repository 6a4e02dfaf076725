package node

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/claims"
)

// A node that is stopped before it has started to serve has not failed.
func TestStopAtOnce(t *testing.T) {
	for range 5 {
		start(t, Config{InMemory: true}).end()
	}
}

// What a node writes to a backup is refused once it is stopping.
func TestStoppingEndsBackups(t *testing.T) {
	s := start(t, Config{InMemory: true})
	w := stoppableWriter{newClusterAdmin(s.Node).stopping, io.Discard}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	s.end()
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("a stopped node goes on with its backup")
	}
}

// Stop ends every goroutine, or the bubble would complain: of shards on disk and in memory, of a connection with a waiting claim,
// and of the loops that advance time and archive.
func TestStopEndsEverything(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"in memory", Config{InMemory: true, DataShards: 2}},
		{"on disk", Config{Dir: t.TempDir(), DataShards: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, c.cfg)
				client := s.client()
				if _, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "job"}, pawl.Queue("mail"), pawl.In(time.Hour)); err != nil {
					t.Fatal(err)
				}
				answered := make(chan error, 1)
				go func() {
					_, err := claims.New(client).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"mail", "other"}, Wait: time.Minute})
					answered <- err
				}()
				pass(time.Second) // it is waiting by now
				begin := time.Now()
				s.end()
				if err := <-answered; err != nil {
					t.Errorf("the claim that waited got %v, want an empty answer", err)
				}
				if took := time.Since(begin); took > 5*time.Second {
					t.Errorf("stop took %s", took)
				}
				s.end() // a second call changes nothing
				if err := client.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A failed start releases everything: goroutines, which the bubble would detect, and the directory.
func TestFailedStartReleasesEverything(t *testing.T) {
	dir := t.TempDir()
	start(t, Config{Dir: dir, DataShards: 3}).end()
	shard, aside := filepath.Join(dir, "shard-0003"), filepath.Join(t.TempDir(), "aside")
	if err := os.Rename(shard, aside); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(shard, []byte("not a directory"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { refused(t, Config{Dir: dir}, "shard-0003") })
	if err := os.Remove(shard); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, shard); err != nil {
		t.Fatal(err)
	}
	start(t, Config{Dir: dir})
}
