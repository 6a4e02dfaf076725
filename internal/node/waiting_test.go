package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/node/datadir"
)

// get requests a path of a node, which need not have started, and returns the status and a field of the answer.
func (w *network) get(name, path, field string) (code int, value string) {
	w.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return w.dial(ctx, name+":7295")
	}}}
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if field == "__type" { // of an error of SQS
		r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	}
	a, err := client.Do(r)
	if err != nil {
		w.t.Errorf("%s of %s: %v", path, name, err)
		return 0, ""
	}
	defer a.Body.Close()
	fields := map[string]any{}
	if err := json.NewDecoder(a.Body).Decode(&fields); err != nil {
		w.t.Errorf("%s of %s: %v", path, name, err)
	}
	return a.StatusCode, fmt.Sprint(fields[field])
}

// mustWait checks the answers of a node that waits.
func (w *network) mustWait(name, what string) {
	w.t.Helper()
	for _, c := range []struct {
		path, field, want string
		code              int
	}{{"/healthz", "status", "ok", http.StatusOK}, {"/readyz", "status", what, http.StatusServiceUnavailable}, {"/api/v1/queues", "detail",
		what, http.StatusServiceUnavailable}} {
		if code, value := w.get(name, c.path, c.field); code != c.code || !strings.Contains(value, c.want) {
			w.t.Errorf("%s of %s: %d %q, want %d and %q", c.path, name, code, value, c.code, c.want)
		}
	}
}

// A node that waits for others answers probes: it is alive, it is not ready, and why. It does the same while it waits to be admitted again
// after damage.
func TestProbesOfWaitingNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		all := func() []string { return []string{"n1", "n2", "n3"} }
		dirs := map[string]string{"n1": t.TempDir(), "n2": t.TempDir(), "n3": t.TempDir()}
		started := make(chan struct{}, 3)
		begin := func(name string) {
			go func() {
				defer func() { started <- struct{}{} }()
				w.start(name, dirs[name], all()...)
			}()
			pass(time.Second)
		}
		begin("n1")
		client, err := pawl.Dial("node", pawl.DialOptions{Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
			return w.dial(ctx, "n1:7295")
		}})
		if err != nil {
			t.Fatal(err)
		}
		enqueued := make(chan error, 1)
		go func() {
			_, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "job"})
			enqueued <- errors.Join(err, client.Close())
		}()
		w.mustWait("n1", "the node waits for the nodes of --join: 1 of 3 answer")
		begin("n2")
		w.mustWait("n2", "the node waits for the nodes of --join: 2 of 3 answer")
		begin("n3")
		for range 3 {
			<-started
		}
		w.until("three voters each", w.replicated(3))
		for name := range dirs {
			if code, status := w.get(name, "/readyz", "status"); code != http.StatusOK {
				t.Errorf("%s has started, and is not ready: %d %s", name, code, status)
			}
		}
		if err := <-enqueued; err != nil {
			t.Errorf("an enqueue at n1 while it waited: %v, want that the SDK repeated it until it was accepted", err)
		}

		w.crash("n3")
		put(t, filepath.Join(dirs["n3"], datadir.LogDir, "marks"), "damaged")
		began := time.Now()
		begin("n3")
		w.mustWait("n3", "the node's data is damaged: it waits for its cluster to admit it again")
		<-started
		if time.Since(began) < 2*time.Second {
			t.Error("n3 did not wait")
		}
		w.until("ready", func() error {
			if code, status := w.get("n3", "/readyz", "status"); code != http.StatusOK {
				return fmt.Errorf("%d %s", code, status)
			}
			return nil
		})
	})
}
