package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/store"
)

// trailLog is what a trail has logged.
type trailLog struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *trailLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

// take returns the records since the last call, without their times.
func (l *trailLog) take(t *testing.T) (records []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.lines.Bytes()) {
		record := map[string]any{}
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatal(err)
		}
		delete(record, "time")
		records = append(records, record)
	}
	l.lines.Reset()
	return records
}

// trailGateway returns a gateway for the callers of k whose trail has all kinds of events.
func trailGateway(t *testing.T, k *tokenSet) (*Gateway, *trailLog) {
	f, log := newFake(1), &trailLog{}
	f.auth = k.auth
	cfg := f.config()
	cfg.Admin, cfg.SQS = f.admin, true
	cfg.Trail = trail.New(trail.Config{Kinds: []trail.Kind{trail.Login, trail.Refusal, trail.Read},
		Log: slog.New(slog.NewJSONHandler(log, nil))})
	g := New(cfg)
	t.Cleanup(func() { g.Shutdown(context.Background()) })
	return g, log
}

// dialPages connects as the web UI does for a visitor.
func dialPages(t *testing.T, g *Gateway, from string) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///pawl", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return g.DialInProcess(ctx, from) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Each refusal, at whichever door and for whatever reason, is recorded once: who, from where, what, and why. No secret is.
func TestRefusalsAreRecordedOnce(t *testing.T) {
	k := newTokenSet()
	k.addAll()
	k.secret["old"] = bearer.New()
	k.tokens = append(k.tokens, auth.Token{Name: "old", Rights: auth.Rights{Namespace: "team", Roles: auth.Admin},
		Hash: auth.HashOf(k.secret["old"]), ExpiresAt: store.TimeOf(time.Now().Add(-time.Hour))})
	k.publish()
	g, log := trailGateway(t, k)
	conn := dialGateway(t, g)
	pages := dialPages(t, g, "192.0.2.7")
	const malformed = "pawl_malformed_secret"
	unknown := bearer.New()
	overGRPC := func(conn *grpc.ClientConn) func(string, string, string) {
		return func(token, namespace, queue string) {
			ctx := with(t.Context(), token, namespace)
			_, _ = pawlv1.NewProducerServiceClient(conn).Enqueue(ctx, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "t",
				Queue: new(queue)}})
		}
	}
	doors := map[string]struct {
		from map[string]any // what the records of this door have
		call func(token, namespace, queue string)
	}{
		"REST": {map[string]any{"interface": "rest", "address": "192.0.2.1", "method": "POST /api/v1/tasks"},
			func(token, namespace, queue string) {
				r := httptest.NewRequest("POST", "/api/v1/tasks", strings.NewReader(`{"type":"t","queue":"`+queue+`","payload":"private"}`))
				if token != "" {
					r.Header.Set("Authorization", "Bearer "+token)
				}
				if namespace != "" {
					r.Header.Set("Pawl-Namespace", namespace)
				}
				g.Handler().ServeHTTP(httptest.NewRecorder(), r)
			}},
		"gRPC": {map[string]any{"interface": "grpc", "address": "bufconn", "method": "ProducerService/Enqueue"}, overGRPC(conn)},
		"UI":   {map[string]any{"interface": "ui", "address": "192.0.2.7", "method": "ProducerService/Enqueue"}, overGRPC(pages)},
		"gRPC, a batch": {map[string]any{"interface": "grpc", "address": "bufconn", "method": "ProducerService/EnqueueBatch"},
			func(token, namespace, queue string) {
				spec := &pawlv1.TaskSpec{Type: "t", Queue: new(queue)}
				_, _ = pawlv1.NewProducerServiceClient(conn).EnqueueBatch(with(t.Context(), token, namespace), &pawlv1.EnqueueBatchRequest{
					Tasks: []*pawlv1.TaskSpec{spec, spec, spec}})
			}},
		"gRPC, a stream": {map[string]any{"interface": "grpc", "address": "bufconn"}, func(token, namespace, queue string) {
			s, err := pawlv1.NewProducerServiceClient(conn).Produce(with(t.Context(), token, namespace))
			if err != nil {
				t.Error(err)
				return
			}
			_ = s.Send(&pawlv1.ProduceRequest{Number: 1, Tasks: []*pawlv1.TaskSpec{{Type: "t", Queue: new(queue)}}})
			_ = s.CloseSend()
			for _, err := s.Recv(); err == nil; _, err = s.Recv() {
			}
		}},
		"SQS": {map[string]any{"interface": "sqs", "address": "192.0.2.1"}, func(token, namespace, queue string) {
			r := httptest.NewRequest("POST", "/", strings.NewReader(`{"QueueUrl":"http://localhost/`+queue+`","MessageBody":"private"}`))
			r.Header.Set("X-Amz-Target", "AmazonSQS.SendMessage")
			r.Header.Set("Content-Type", "application/x-amz-json-1.0")
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			if namespace != "" {
				r.Header.Set("Pawl-Namespace", namespace)
			}
			g.withSQS(g.rest).ServeHTTP(httptest.NewRecorder(), r)
		}},
	}
	for door, d := range doors {
		for _, c := range []struct {
			token, namespace, queue string
			code, actor, ns, reason string
		}{
			{"", "", "mail", "unauthenticated", "", "default", "a token is required"},
			{malformed, "", "mail", "unauthenticated", "", "default", "malformed token"},
			{unknown, "", "mail", "unauthenticated", "", "default", "the token is not known"},
			{k.secret["old"], "", "mail", "unauthenticated", "", "default", `token "old": it expired`},
			{k.secret["observe"], "", "mail", "permission_denied", "observe", "", `has the role observe, and this call needs`},
			{k.secret["observer of all"], "", "mail", "permission_denied", "*/observer of all", "",
				`has the role observe, and this call needs`},
			{k.secret["produce"], "default", "mail", "permission_denied", "produce", "default", `is limited to namespace "team"`},
			{k.secret["admin of mail*"], "", "sms", "permission_denied", "admin of mail*", "team", `"sms" is not one of them`},
		} {
			d.call(c.token, c.namespace, c.queue)
			records := log.take(t)
			if len(records) != 1 {
				t.Errorf("%s, %s: %d records, want one: %v", door, c.reason, len(records), records)
				continue
			}
			r := records[0]
			reason, _ := r["reason"].(string)
			actor, _ := r["actor"].(string)
			if r["event"] != "refusals" || r["level"] != "WARN" || r["code"] != c.code || actor != c.actor || c.ns != "" &&
				r["namespace"] != c.ns || !strings.Contains(reason, c.reason) {
				t.Errorf("%s: %v, want code %s, actor %q, namespace %q, reason %s", door, r, c.code, c.actor, c.ns, c.reason)
			}
			for key, want := range d.from {
				if r[key] != want {
					t.Errorf("%s, %s: %s is %v, want %v", door, c.reason, key, r[key], want)
				}
			}
			text := strings.Join(slices.Sorted(maps.Keys(r)), " ") + " " + string(must(json.Marshal(r)))
			for _, secret := range append(slices.Collect(maps.Values(k.secret)), malformed, unknown, "private", "Bearer pawl_m") {
				if strings.Contains(text, secret) {
					t.Errorf("%s: the record has a secret: %v", door, r)
				}
			}
		}
		d.call(k.secret["produce"], "", "mail") // whatever its result, it is not refused
		if records := log.take(t); len(records) != 0 {
			t.Errorf("%s: a call that was admitted left %v", door, records)
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// A record has the trace that the caller sent, and what a caller sends can't be of any length.
func TestRecordsAreBounded(t *testing.T) {
	k := newTokenSet()
	g, log := trailGateway(t, k)
	conn := dialGateway(t, g)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+strings.Repeat("a", 4000))
	_, _ = pawlv1.NewProducerServiceClient(conn).Enqueue(ctx, &pawlv1.EnqueueRequest{})
	records := log.take(t)
	if len(records) != 1 {
		t.Fatalf("records: %v", records)
	}
	if trace, _ := records[0]["traceparent"].(string); !strings.HasPrefix(trace, "00-aa") || len(trace) > 600 {
		t.Errorf("the record has the trace %q", trace)
	}
}

// Whoever reads a task with its payload is recorded once, at whichever door. Without tokens it is whom the caller says it is.
func TestReadsAreRecorded(t *testing.T) {
	k := newTokenSet()
	k.add("lena", auth.Rights{Namespace: "team", Roles: auth.Produce | auth.Observe})
	locked, lockedLog := trailGateway(t, k)
	open, openLog := trailGateway(t, &tokenSet{auth: auth.NewAuthenticator(auth.Config{Mode: auth.Never})})
	for _, c := range []struct {
		g                         *Gateway
		log                       *trailLog
		token, actor, ns, noproof string
	}{{locked, lockedLog, k.secret["lena"], "lena", "team", ""}, {open, openLog, "", "somebody", "default", "true"}} {
		conn, pages := dialGateway(t, c.g), dialPages(t, c.g, "192.0.2.7")
		ctx := metadata.AppendToOutgoingContext(with(t.Context(), c.token, ""), "pawl-actor", "somebody")
		made, err := pawlv1.NewProducerServiceClient(conn).Enqueue(ctx, &pawlv1.EnqueueRequest{Task: &pawlv1.TaskSpec{Type: "t",
			Queue: new("mail"), Payload: []byte(`"private"`)}})
		if err != nil {
			t.Fatal(err)
		}
		if records := c.log.take(t); len(records) != 0 {
			t.Errorf("an enqueue left %v", records)
		}
		id := made.GetTask().GetTaskId()
		for iface, read := range map[string]func(){
			"grpc": func() { _, _ = pawlv1.NewProducerServiceClient(conn).GetTask(ctx, &pawlv1.GetTaskRequest{TaskId: id}) },
			"ui":   func() { _, _ = pawlv1.NewProducerServiceClient(pages).GetTask(ctx, &pawlv1.GetTaskRequest{TaskId: id}) },
			"rest": func() {
				r := httptest.NewRequest("GET", "/api/v1/tasks/"+id, nil)
				r.Header.Set("Pawl-Actor", "somebody")
				if c.token != "" {
					r.Header.Set("Authorization", "Bearer "+c.token)
				}
				r.Host = "localhost"
				c.g.Handler().ServeHTTP(httptest.NewRecorder(), r)
			},
		} {
			read()
			records := c.log.take(t)
			if len(records) != 1 {
				t.Errorf("%s by %s: %d records: %v", iface, c.actor, len(records), records)
				continue
			}
			r := records[0]
			if r["event"] != "reads" || r["level"] != "INFO" || r["code"] != "ok" || r["actor"] != c.actor ||
				(r["unverified"] == true) != (c.noproof != "") || r["namespace"] != c.ns || r["interface"] != iface || r["object"] != id ||
				r["queue"] != "mail" || r["tasks"] != 1.0 || strings.Contains(string(must(json.Marshal(r))), "private") {
				t.Errorf("%s by %s: %v", iface, c.actor, r)
			}
		}
	}
}
