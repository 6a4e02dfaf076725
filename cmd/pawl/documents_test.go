package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/internal/node"
	"github.com/pawlq/pawl/outbox"
)

// hostileTasks are tasks that every door must refuse, each with the field that the refusal names.
var hostileTasks = []struct{ text, field string }{
	{`{"type":"a","key":"\ud800"}`, "key"},
	{`{"type":"a","tags":["x","\udc00x"]}`, "tags"},
	{`{"type":"a","headers":{"h":"\ud800"}}`, "headers.h"},
	{`{"type":"a","headers":{"\ud800":"h"}}`, "headers"},
	{`{"type":"a","cost":1,"cost":2}`, "cost"},
	{`{"type":"a","headers":{"h":"1","h":"2"}}`, "headers.h"},
	{`{"type":"a","retry":{"max":"1s","max":"2s"}}`, "retry.max"},
	{`{"type":"a","then":[{"type":"b","key":"1","key":"2"}]}`, "then[0].key"},
	{`{"type":"a","Cost":1}`, "Cost"},
	{`{"type":"a","max_attempts":0}`, "max_attempts"},
	{`{"type":"a","max_attempts":1001}`, "max_attempts"},
	{`{"type":"a","cost":0}`, "cost"},
	{`{"type":"a","cost":1.0}`, "cost"},
	{`{"type":"a","then":[{"type":"b","cost":0}]}`, "then[0].cost"},
	{`{"type":"a","retry":{"factor":0}}`, "retry.factor"},
	{`{"type":"a","retry":{"initial":""}}`, "retry.initial"},
	{`{"type":"a","unique":{"key":""}}`, "unique.key"},
	{`{"type":"a","unique":{"states":[]}}`, "unique.states"},
	{`{"type":"a","unique":{"states":[""]}}`, "unique.states"},
	{`{"type":"a","unique":{"on_conflict":""}}`, "unique.on_conflict"},
	{`{"type":"a","queue":""}`, "queue"},
	{`{"type":"a","idempotency_key":""}`, "idempotency_key"},
	{`{"type":"a","request_id":""}`, "request_id"},
	{`{"type":"a","delay":".5s"}`, "delay"},
	{`{"type":"a","timeout":"+1s"}`, "timeout"},
	{`{"type":"a","priority":""}`, "priority"},
	{`{"type":"a","timeout":""}`, "timeout"},
	{`{"type":"a","delay":""}`, "delay"},
	{`{"type":"a","run_at":""}`, "run_at"},
	{`{"type":"a","delay":"1d"}`, "delay"},
	{`{"type":"a","content_type":"image/png","payload":"AA=\n="}`, "payload"},
	{`{"type":null}`, "type"},
	{`{"type":"a","key":null}`, "key"},
	{`{"type":"a","cost":null}`, "cost"},
	{`{"type":"a","max_attempts":null}`, "max_attempts"},
	{`{"type":"a","priority":null}`, "priority"},
	{`{"type":"a","timeout":null}`, "timeout"},
	{`{"type":"a","retry":null}`, "retry"},
	{`{"type":"a","retry":{"jitter":null}}`, "retry.jitter"},
	{`{"type":"a","unique":null}`, "unique"},
	{`{"type":"a","unique":{"states":null}}`, "unique.states"},
	{`{"type":"a","tags":null}`, "tags"},
	{`{"type":"a","tags":[null]}`, "tags"},
	{`{"type":"a","headers":null}`, "headers"},
	{`{"type":"a","headers":{"h":null}}`, "headers.h"},
	{`{"type":"a","then":null}`, "then"},
	{`{"type":"a","then":[null]}`, "then[0]"},
}

// The body of a request, a row of an outbox, a flag and a file are read alike: what one refuses, all do, and each names the field.
func TestHostileDocuments(t *testing.T) {
	s := startServer(t, node.Config{InMemory: true})
	defer s.stop()
	before := s.state()
	var texts []string
	for _, c := range hostileTasks {
		texts = append(texts, c.text)
	}
	dead := s.deadRows(texts)
	for door, refusal := range map[string]func(t *testing.T, text string) string{
		"body":   s.refusedBody,
		"row":    func(_ *testing.T, text string) string { return dead[text] },
		"then":   func(_ *testing.T, text string) string { return s.refusedUsage("enqueue", "a", "--then", text) },
		"member": func(_ *testing.T, text string) string { return s.refusedUsage("group", "add", `{"tasks":[`+text+`]}`) },
		"file": func(t *testing.T, text string) string {
			name := filepath.Join(t.TempDir(), "schedules.json")
			if err := os.WriteFile(name, []byte(`{"schedules":[{"name":"s","every":"1h","task":`+text+`}]}`), 0o600); err != nil {
				t.Fatal(err)
			}
			return s.refusedUsage("schedule", "apply", "-f", name)
		},
	} {
		t.Run(door, func(t *testing.T) {
			prefix := map[string]string{"member": "tasks[0].", "file": "schedules[0].task."}[door]
			for _, c := range hostileTasks {
				got := refusal(t, c.text)
				pointer := `"/schedules/0/task` // of what is not JSON for the reader of YAML
				if !strings.Contains(got, " "+prefix+c.field+": ") && !(door == "file" && strings.Contains(got, pointer)) {
					t.Errorf("%s: %s, want a refusal of %q", c.text, got, c.field)
				}
			}
		})
	}
	if after := s.state(); after != before {
		t.Errorf("refused documents changed something: %s", after)
	}
}

// refusedBody enqueues a task by REST, and returns the detail of the refusal.
func (s *server) refusedBody(t *testing.T, text string) string {
	t.Helper()
	resp, err := http.Post("http://"+s.addr+"/api/v1/tasks", "application/json", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var problem struct{ Field, Detail string }
	if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil || resp.StatusCode != http.StatusBadRequest ||
		!strings.HasPrefix(problem.Detail, problem.Field+": ") {
		t.Errorf("%s: status %d, %+v (%v), want 400", text, resp.StatusCode, problem, err)
	}
	return " " + problem.Detail
}

// refusedUsage runs a command, and returns what it says of its wrong usage.
func (s *server) refusedUsage(line ...string) string {
	s.t.Helper()
	_, stderr := s.run(cli.ExitUsage, line...)
	return stderr
}

func rowID(i int) string { return fmt.Sprintf("0198c5a3-7ac1-7000-8000-%012d", i) }

// signals gets a value for each write.
type signals chan struct{}

func (s signals) Write(b []byte) (int, error) {
	s <- struct{}{}
	return len(b), nil
}

// deadRows relays rows of an outbox, and returns why each died.
func (s *server) deadRows(tasks []string) map[string]string {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	db, err := sql.Open("sqlite", "file:"+filepath.Join(s.t.TempDir(), "db")+"?_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	statements, err := outbox.Schema(outbox.SQLite)
	if err == nil {
		_, err = db.ExecContext(ctx, statements)
	}
	for i, text := range tasks {
		if err == nil {
			_, err = db.ExecContext(ctx, "INSERT INTO pawl_outbox (id, queue, task) VALUES (?, 'default', ?)", rowID(i), text)
		}
	}
	box, opened := outbox.New(db, outbox.SQLite)
	moved := make(signals, len(tasks))
	relay, made := outbox.NewRelay(box, s.client, outbox.RelayConfig{
		Logger: slog.New(slog.NewTextHandler(moved, &slog.HandlerOptions{Level: slog.LevelError}))})
	if err := errors.Join(err, opened, made); err != nil {
		s.t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- relay.Run(ctx) }()
	for n := range tasks { // the relay logs each row that it has moved
		select {
		case <-moved:
		case <-time.After(time.Minute):
			s.t.Fatalf("%d of %d rows are dead", n, len(tasks))
		}
	}
	rows, err := box.DeadRows(ctx, 0, len(tasks))
	stop()
	if err := errors.Join(err, <-done); err != nil {
		s.t.Fatal(err)
	}
	why := map[string]string{}
	for i, text := range tasks {
		for _, r := range rows {
			if r.ID == rowID(i) {
				why[text] = r.Error
			}
		}
	}
	return why
}
