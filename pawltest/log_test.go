package pawltest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltest"
)

// logbook collects the lines of a log in JSON.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logbook) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// lines returns the lines that have a message.
func (l *logbook) lines(t *testing.T, msg string) (out []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range strings.Split(strings.TrimSpace(l.buf.String()), "\n") {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("log line %q is not JSON: %v", line, err)
		}
		if fields["msg"] == msg || msg == "" {
			out = append(out, fields)
		}
	}
	return out
}

// Whatever happens to a task, no log line of the broker, the client or the worker contains what its producer and its
// handler put into it. Only the text of an error appears, in the lines that report it.
func TestLogsRevealNoPayloads(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	synctest.Test(t, func(t *testing.T) {
		server, client := &logbook{}, &logbook{}
		c := pawltest.New(t, pawltest.WithLogger(server.logger())).Client(t, pawl.DialOptions{Logger: client.logger(),
			Token: "canary-token"})
		mux := pawl.NewMux()
		handle := func(name string, end func(c *pawl.Claim) error) {
			mux.HandleFunc(name, func(ctx context.Context, c *pawl.Claim) error {
				if err := errors.Join(c.Checkpoint(ctx, "canary-checkpoint"), c.Progress(ctx, 50, "canary-progress"),
					c.SetResult("canary-result")); err != nil {
					return err
				}
				_, err := pawl.Step(ctx, c, "canary-step", func(context.Context) (string, error) { return "canary-kept", nil })
				time.Sleep(2 * time.Second) // so that progress is reported
				return errors.Join(err, end(c))
			})
		}
		handle("succeed", func(*pawl.Claim) error { return nil })
		handle("die", func(*pawl.Claim) error { return pawl.DeadLetter(errors.New("canary-error")) })
		handle("retry", func(*pawl.Claim) error { return errors.New("canary-error") })
		handle("discard", func(*pawl.Claim) error { return pawl.Discard(errors.New("canary-error")) })
		handle("poison", func(*pawl.Claim) error { return pawl.Poison(errors.New("canary-error")) })
		handle("snooze", func(*pawl.Claim) error { return pawl.Snooze(time.Hour) })
		handle("panic", func(*pawl.Claim) error { panic("canary-error") })
		handle("large", func(c *pawl.Claim) error { return c.SetResult(strings.Repeat("canary-result", 100_000)) })
		handle("vanish", func(*pawl.Claim) error { time.Sleep(3 * time.Minute); return nil })
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- pawl.NewWorker(c, mux, pawl.WorkerConfig{Name: "w1", Concurrency: 20}).Run(ctx) }()
		refs := map[string]*pawl.Ref{}
		for _, name := range mux.Types() {
			ref, err := c.Enqueue(ctx, pawl.RawTask{Type: name, Payload: []byte(`"canary-payload"`)}, pawl.Header("traceparent", parent),
				pawl.Header("x-key", "canary-header"), pawl.MaxAttempts(2), pawl.Timeout(time.Minute), pawl.Retention(time.Minute),
				pawl.Then(pawl.RawTask{Type: "succeed", Payload: []byte(`"canary-then"`)}))
			if err != nil {
				t.Fatal(err)
			}
			refs[name] = ref
		}
		bad := []pawl.RawTask{{Type: "t", Payload: []byte(`{"canary-payload`)},
			{Type: "t", Payload: []byte(`"` + strings.Repeat("canary-payload", 100_000) + `"`)}}
		for _, args := range bad {
			if _, err := c.Enqueue(ctx, args); err == nil {
				t.Error("an invalid task was accepted")
			}
		}
		time.Sleep(time.Minute)
		if _, err := admin.New(c).WithReason("tidying up").Tasks().Cancel(ctx, refs["snooze"].ID); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Minute) // until dead letters are archived
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		meant := map[string]bool{"task failed": true, "task dead": true, "task discarded": true, "task poisoned": true,
			"task dead-lettered": true}
		for from, book := range map[string]*logbook{"the broker": server, "the client": client} {
			for _, fields := range book.lines(t, "") {
				line := fmt.Sprint(fields)
				if meant[fields["msg"].(string)] {
					line = strings.ReplaceAll(line, "canary-error", "")
				}
				if strings.Contains(line, "canary") {
					t.Errorf("%s logged a secret: %s", from, line)
				}
			}
		}
		for name, book := range map[string]*logbook{"task dead-lettered": server, "dead letter archived": server, "task cancelled": server,
			"task dead": client, "task failed": client, "task discarded": client} {
			lines := book.lines(t, name)
			if len(lines) == 0 {
				t.Errorf("no log line has the message %q", name)
			}
			for _, l := range lines {
				for _, attr := range []string{"task_id", "queue", "type", "attempt", "trace_id", "span_id"} {
					if name == "task cancelled" && attr == "attempt" { // it has used none
						continue
					}
					if l[attr] == nil {
						t.Errorf("a log line lacks %s: %v", attr, l)
					}
				}
				if l["trace_id"] != "0af7651916cd43dd8448eb211c80319c" {
					t.Errorf("a log line has another trace: %v", l)
				}
			}
		}
		dead := server.lines(t, "task dead-lettered")
		count := map[any]int{}
		for _, l := range dead {
			count[l["type"]]++
		}
		for _, name := range []string{"die", "retry", "panic", "large", "vanish"} {
			if count[name] != 1 {
				t.Errorf("%d log lines report that %s is dead, want 1", count[name], name)
			}
		}
	})
}
