package node

import (
	"encoding/json"
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
// allocated is counted, which is more than what is held: so a search by text is left out, which reads all payloads, one at a time.
func TestReadsTakeNoMoreMemoryThanTheyAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("under the race detector, which runs short tests, sync.Pool drops what it should keep: allocations say nothing there")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		s := w.start("n1", t.TempDir())
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
				do("POST", "tasks/batch", `{"tasks":[`+strings.TrimSuffix(strings.Repeat(`{"type":"t","queue":"mail","max_attempts":1,"payload":`+payload+`},`, 50), ",")+`]}`)
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
		do("POST", "queues/mail/dead/discard", `{"filter":{}}`)
		fill(600)
		kill(300)
		group := do("POST", "groups", `{"tasks":[{"type":"t","queue":"mail"}]}`)
		_, id, _ := strings.Cut(group, `"group_id":"`)
		names := strings.NewReplacer("{id}", id[:36], "{queue}", "mail", "{name}", "n", "{node}", "n1", "{shard}", "1", "{worker}", "w")
		pass(time.Second)
		answered := 0
		for _, r := range rest.Routes() {
			path := names.Replace(r.Path)
			if r.Method != "GET" || strings.HasSuffix(path, "/events") || !strings.HasPrefix(path, "/api/v1/") {
				continue
			}
			for _, query := range []string{"", "?limit=1000", "?limit=1000&fields=payload", "?limit=1000&queue=none", "?queue=mail&state=dead&fields=payload"} {
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
	})
}
