package node

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/rest"
)

const (
	// readBytes bounds what a call that reads may allocate beside what its answer takes; it is more than engine/schema.PageBytes, and much
	// less than what the node in the test has.
	readBytes = 24 << 20
	// answerFactor bounds what a byte of an answer takes. Measured: 8 for tasks with their payloads, part of it for the test's recorder.
	answerFactor = 12
)

// A caller who may see everything makes a node hold little more than it answers, whatever the node has: with each route that reads. What is
// allocated is counted, which is more than what is held: so a search by text is left out, which reads all payloads, one at a time. What is
// held is counted for clients that don't read their answers.
func TestReadsTakeNoMoreMemoryThanTheyAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("under the race detector, which runs short tests, sync.Pool drops what it should keep: allocations say nothing there")
	}
	synctest.Test(t, func(t *testing.T) {
		s, paths := largeNode(t)
		answered := 0
		for _, path := range paths {
			for _, query := range []string{"", "?limit=1000", "?limit=1000&fields=payload", "?limit=1000&queue=none",
				"?queue=mail&state=dead&fields=payload"} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				w := s.web("", "GET", path+query, "")
				runtime.ReadMemStats(&after)
				n, answer := int(after.TotalAlloc-before.TotalAlloc), w.Body.Len()
				if w.Code == http.StatusOK {
					answered++
				}
				if n > answerFactor*answer+readBytes {
					t.Errorf("GET %s%s: status %d, %d bytes allocated for an answer of %d", path, query, w.Code, n, answer)
				}
			}
		}
		if answered < 40 {
			t.Errorf("only %d calls were answered", answered)
		}
		readNothing(t, s, paths)
	})
}

// largeNode starts a node with 30 MB each of ready tasks, dead letters and archived ones. It returns the paths of all calls that read.
func largeNode(t *testing.T) (s *server, paths []string) {
	t.Helper()
	s = newNetwork(t).start("n1", t.TempDir())
	do := func(method, path, body string) string {
		t.Helper()
		w := s.web("", method, "/api/v1/"+path, body)
		if w.Code >= 300 {
			t.Fatalf("%s %s: %d %.300s", method, path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	payload := `"` + strings.Repeat("x", 100_000) + `"`
	fill := func(n int) {
		for range n / 50 {
			do("POST", "tasks/batch", `{"tasks":[`+strings.TrimSuffix(strings.Repeat(`{"type":"t","queue":"mail",`+
				`"max_attempts":1,"payload":`+
				payload+`},`, 50), ",")+`]}`)
		}
	}
	kill := func(n int) {
		for range n / 50 {
			claimed := do("POST", "claim", `{"queues":["mail"],"worker":"w","max":50}`)
			var answer struct {
				Tasks []struct {
					ID    string `json:"task_id"`
					Token string `json:"claim_token"`
				} `json:"tasks"`
			}
			if err := json.Unmarshal([]byte(claimed), &answer); err != nil || len(answer.Tasks) == 0 {
				t.Fatalf("claimed %d tasks, %v: %.200s", len(answer.Tasks), err, claimed)
			}
			var items []string
			for _, x := range answer.Tasks {
				items = append(items, `{"task_id":"`+x.ID+`","claim_token":"`+x.Token+`","error":{"message":"no"},"outcome":"dead"}`)
			}
			do("POST", "tasks/fail", `{"fails":[`+strings.Join(items, ",")+`]}`)
		}
	}
	fill(300)
	kill(300)
	do("POST", "operations", `{"action":"discard","filter":{"queue":"mail"}}`)
	pass(time.Minute)
	fill(600)
	kill(300)
	group := do("POST", "groups", `{"tasks":[{"type":"t","queue":"mail"}]}`)
	_, id, _ := strings.Cut(group, `"group_id":"`)
	names := strings.NewReplacer("{id}", id[:36], "{queue}", "mail", "{name}", "n", "{node}", "n1", "{shard}", "1", "{worker}", "w")
	pass(time.Second)
	for _, r := range rest.Routes() {
		path := names.Replace(r.Path)
		if r.Method == "GET" && !strings.HasSuffix(path, "/events") && strings.HasPrefix(path, "/api/v1/") {
			paths = append(paths, path)
		}
	}
	return s, paths
}

const (
	// unreadBytes bounds what a node holds for one caller who reads no answers: a quarter of gateway/send's memory, and
	// what the connections take.
	unreadBytes = 48 << 20
	// waitingBytes bounds what a call may allocate that finds no memory for its answer.
	waitingBytes = 1 << 20
)

// readNothing checks that a caller who sends requests and reads no answers makes a node hold a bounded part of them,
// whatever the calls, and loses the connections.
func readNothing(t *testing.T, s *server, paths []string) {
	var conns []net.Conn
	for range paths {
		for range 20 {
			c, err := s.pipe.DialContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			conns = append(conns, c)
		}
	}
	before := heldBytes()
	var allocated, now runtime.MemStats
	runtime.ReadMemStats(&allocated)
	for i, c := range conns {
		_, _ = fmt.Fprintf(c, "GET %s%s HTTP/1.1\r\nHost: localhost\r\n\r\n", paths[i/20], []string{"?limit=300",
			"?limit=300&fields=payload"}[i%2])
	}
	pass(time.Second)
	runtime.ReadMemStats(&now)
	if n := heldBytes() - before; n > unreadBytes {
		t.Errorf("%d unread answers take %d bytes, want at most %d", len(conns), n, unreadBytes)
	}
	if n, most := int(now.TotalAlloc-allocated.TotalAlloc), answerFactor*unreadBytes+len(conns)*waitingBytes; n > most {
		t.Errorf("%d calls without memory for their answers allocate %d bytes, want at most %d", len(conns), n, most)
	}
	pass(5 * time.Minute)
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatalf("a connection whose client reads nothing is still open: %v", err)
		}
	}
}

// heldBytes returns how much memory is in use.
func heldBytes() int {
	var now runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools hold
	runtime.ReadMemStats(&now)
	return int(now.HeapAlloc)
}
